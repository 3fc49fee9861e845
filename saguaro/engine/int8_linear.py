"""Linear layers in 8-bit integers, for drafts: a wrong digit there costs acceptance, never a wrong token."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor, nn

from saguaro.engine.packed_linear import described

_LARGEST = 127
_SMALLEST_SCALE = 1e-12  # a row of zeros has no scale of its own


class Int8Linear(nn.Module):
    """Weights with one scale an output channel, activations with one scale a row; sums in int32, output float32.

    A scale a row, not one for all, keeps a row with outliers from erasing the digits of the others: with one scale for
    the whole batch the agreement with float32 falls as rows are added.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        """`weight` [out, in] float32 is rounded to int8 and not kept."""
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self.weight = described(weight)
        scales = weight.detach().abs().amax(dim=1).clamp_min(_SMALLEST_SCALE) / _LARGEST
        rounded = (weight.detach() / scales[:, None]).round().to(torch.int8)
        self._packed = torch.ops.quantized.linear_prepack(_quantised(rounded, scales), None)
        # Without VNNI the kernel adds pairs of products in 16 bits, which 8-bit activations would overflow.
        self._use_7_bits = not torch.cpu._is_vnni_supported()
        self._bias = None if bias is None else bias.detach().clone()

    @property
    def num_weight_bytes(self) -> int:
        """Bytes of the packed weight."""
        return self.out_features * self.in_features

    def forward(self, x: Tensor) -> Tensor:
        """[..., in] to [..., out]."""
        if x.numel() == self.in_features:  # one row: the batch's scale is the row's
            output: Tensor = torch.ops.quantized.linear_dynamic(x, self._packed, self._use_7_bits)
        else:
            # The kernel knows one scale for the whole batch; rows of equal size make that a scale a row.
            scales = torch.linalg.vector_norm(x, ord=torch.inf, dim=-1, keepdim=True).clamp_min_(_SMALLEST_SCALE)
            output = torch.ops.quantized.linear_dynamic(x / scales, self._packed, self._use_7_bits).mul_(scales)
        return output if self._bias is None else output.add_(self._bias)


def _quantised(rounded: Tensor, scales: Tensor) -> Tensor:
    """int8 values [out, in] and their scales [out] in the form that the packing takes.

    torch warns that this form of tensor will go. The packed kernels have no other entrance yet, and the version of
    torch is pinned.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*quantized tensor creation functions", category=UserWarning)
        return torch._make_per_channel_quantized_tensor(
            rounded, scales.double(), torch.zeros(len(scales), dtype=torch.int64), 0
        )
