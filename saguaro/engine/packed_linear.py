"""Linear layers whose weights are laid out once for the CPU's matrix kernels: the same values, read faster.

torch's own linear hands the weight to a general matrix product, which lays it out anew in each call; with the 2 to 16
rows of a verification that costs as much as the product. A packed layer keeps the laid-out weight alone. Where 16 bits
hold every weight (any fp16 or bf16 checkpoint), it keeps 16 bits: half the memory to read, which is what bounds a
forward of few rows. Products and sums are float32 in any case.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

# The rows that oneDNN is told to expect; layouts differ little, and this one was best over 2..24 rows.
_EXPECTED_ROWS = 8
# What 16 bits may lose, relative to a layer's largest weight: a 64th of what float32 itself rounds away there.
_LOSS_LIMIT = 2.0**-30
_LARGEST_HALF_EXPONENT = 15
_ROWS_AT_A_TIME = 256  # the first that 16 bits cannot hold decides, and no temporary is large


def described(weight: Tensor) -> Tensor:
    """`weight` without content: what a family's code may ask for its type or shape. To compute with it fails."""
    return torch.empty_like(weight, device="meta")


class PackedLinear(nn.Module):
    """A linear layer in oneDNN's layout, float32."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        """`weight` [out, in] float32 is copied, not kept."""
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self.weight = described(weight)
        packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach().contiguous(), _EXPECTED_ROWS)
        self._packed: Tensor = packed
        self._bias = None if bias is None else bias.detach().clone()

    @property
    def num_weight_bytes(self) -> int:
        """Bytes of the packed weight."""
        return 4 * self.out_features * self.in_features

    def forward(self, x: Tensor) -> Tensor:
        """[..., in] to [..., out]."""
        output: Tensor = torch.ops.mkldnn._linear_pointwise(x, self._packed, self._bias, "none", [], "")
        return output


class HalfLinear(nn.Module):
    """A linear layer with fp16 weights in fbgemm's layout, float32 activations and sums.

    The weights are kept times 2**exponent, which changes no digit but moves small ones out of fp16's subnormal range.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, exponent: int) -> None:
        """`weight` [out, in] float32, finite in fp16 after scaling, is copied, not kept. See `half_exponent`."""
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self.weight = described(weight)
        scaled = weight.detach() * 2.0**exponent if exponent else weight.detach()
        self._packed = torch.ops.quantized.linear_prepack_fp16(scaled, None)
        self._unscale = 2.0**-exponent
        self._bias = None if bias is None else bias.detach().clone()

    @property
    def num_weight_bytes(self) -> int:
        """Bytes of the packed weight."""
        return 2 * self.out_features * self.in_features

    def forward(self, x: Tensor) -> Tensor:
        """[..., in] to [..., out]."""
        output: Tensor = torch.ops.quantized.linear_dynamic_fp16(x, self._packed)
        if self._unscale != 1.0:
            output = output.mul_(self._unscale)
        return output if self._bias is None else output.add_(self._bias)


def pack(weight: Tensor, bias: Tensor | None) -> PackedLinear | HalfLinear:
    """The fastest layer with these very weights, `weight` [out, in] and `bias` [out], both float32 on the CPU."""
    exponent = half_exponent(weight) if _has_fbgemm() else None
    return PackedLinear(weight, bias) if exponent is None else HalfLinear(weight, bias, exponent)


def half_exponent(weight: Tensor) -> int | None:
    """The power of two by which `weight` must be scaled so that fp16 holds it, 0 if none; None if fp16 cannot."""
    low, high = torch.aminmax(weight)
    largest = max(-float(low), float(high))
    if largest == 0.0:
        return 0
    highest = _LARGEST_HALF_EXPONENT - int(torch.frexp(torch.tensor(largest)).exponent)
    for exponent in (0, highest):
        if all(_loss(rows, exponent) <= _LOSS_LIMIT * largest for rows in torch.split(weight, _ROWS_AT_A_TIME)):
            return exponent
    return None


def _loss(weight: Tensor, exponent: int) -> float:
    """The largest error of fp16 times 2**-exponent."""
    # As a product: `torch.ldexp` takes a power of each element, seconds for a small model.
    kept = (weight * 2.0**exponent).half().float() * 2.0**-exponent
    return float((kept - weight).abs().max())


def _has_fbgemm() -> bool:
    return "fbgemm" in torch.backends.quantized.supported_engines
