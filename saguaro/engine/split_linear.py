"""A linear layer of bf16 weights with float32 activations and results, on CPUs with a matrix unit for bf16 (AMX).

A float32 number is the sum of three bf16 numbers (3 x 8 bits of digits), and products of bf16 numbers are exact in the
unit's float32 sums. So the rows go in as three rows each: nothing is lost, and the weights are read once, at half the
bytes. A verification of eight rows then takes about as long as a forward of one.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from saguaro.engine.onednn import ROW_MULTIPLE, Product

_PARTS = 3


class SplitLinear(nn.Module):
    """x W^T + b with W in bf16; x, b and the result are float32."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        """`weight` [out, in] float32 that bf16 holds exactly (`fits`) is copied, not kept."""
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self._product = Product(weight.detach().to(torch.bfloat16))
        self._bias = None if bias is None else bias.detach().clone()

    @property
    def num_weight_bytes(self) -> int:
        """Bytes of the packed weight."""
        return 2 * self.out_features * self.in_features

    def forward(self, x: Tensor) -> Tensor:
        """[..., in] to [..., out]."""
        rows = x.reshape(-1, self.in_features)
        count = len(rows)
        parts = torch.empty(-(-_PARTS * count // ROW_MULTIPLE) * ROW_MULTIPLE, self.in_features, dtype=torch.bfloat16)
        rest = rows
        for part in range(_PARTS):
            piece = parts[part * count : (part + 1) * count]
            piece.copy_(rest)
            if part < _PARTS - 1:
                rest = rest - piece
        products = self._product(parts)[: _PARTS * count].view(_PARTS, count, self.out_features)
        output = products[2].add_(products[1]).add_(products[0])  # the smallest first
        if self._bias is not None:
            output = output.add_(self._bias)
        return output.view(*x.shape[:-1], self.out_features)


def fits(weight: Tensor) -> bool:
    """Whether bf16 holds every weight exactly, as of a bf16 checkpoint."""
    return all(torch.equal(rows, rows.bfloat16().float()) for rows in torch.split(weight, 256))
