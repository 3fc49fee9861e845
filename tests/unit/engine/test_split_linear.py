"""A layer of bf16 weights on the matrix unit has float32's own results, whatever runs beside a row."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from saguaro.engine import onednn
from saguaro.engine.split_linear import SplitLinear, fits

pytestmark = pytest.mark.skipif(onednn.load() is None, reason="oneDNN is not installed (extra: amx)")

SHAPES = [(1, 1), (7, 33), (256, 64), (1000, 576)]


def weights(out_features: int, in_features: int, size: float = 1.0) -> Tensor:
    generator = torch.Generator().manual_seed(out_features)
    return (torch.randn(out_features, in_features, generator=generator) * size).bfloat16().float()


def rows(count: int, in_features: int, size: float = 1.0) -> Tensor:
    return torch.randn(count, in_features, generator=torch.Generator().manual_seed(count)) * size


@pytest.mark.parametrize("size", [1e-6, 1.0, 1e4])
@pytest.mark.parametrize("shape", SHAPES)
def test_results_are_as_close_to_exact_ones_as_float32_gets(shape: tuple[int, int], size: float):
    weight, bias = weights(*shape, size=size), torch.randn(shape[0], generator=torch.Generator().manual_seed(1))
    layer = SplitLinear(weight, bias)
    for count in (1, 2, 5, 6, 16, 33):
        x = rows(count, shape[1], 1 / size)
        exact = x.double() @ weight.double().T + bias
        scale = (x.double().abs() @ weight.double().abs().T).amax() + 1
        assert (layer(x) - exact).abs().max() < 1e-6 * scale
        assert layer(x).dtype == torch.float32


def test_bits_of_a_row_do_not_depend_on_how_many_are_beside_it():
    layer, x = SplitLinear(weights(300, 576), None), rows(200, 576)
    whole = layer(x)
    for count in (1, 2, 3, 5, 8, 21, 64):
        assert torch.equal(layer(x[:count]), whole[:count])


def test_leading_dimensions_are_kept_and_inputs_untouched():
    layer, x = SplitLinear(weights(48, 32), None), rows(6, 32)
    before = x.clone()
    assert torch.equal(layer(x.view(2, 3, 32)), layer(x).view(2, 3, 48))
    assert layer(x[:, None]).shape == (6, 1, 48)
    assert torch.equal(x, before)


def test_only_weights_that_bf16_holds_fit():
    assert fits(weights(300, 4))
    assert not fits(torch.full((300, 4), 1.0 + 2.0**-9))
    assert not fits(torch.cat((weights(299, 4), torch.tensor([[1.0, 1.0, 1.0, 1.0 + 2.0**-8]]))))


def test_a_broken_call_says_which_function_failed():
    library = onednn.load()
    assert library is not None
    with pytest.raises(RuntimeError, match=r"oneDNN: memory_desc_create_with_strides failed with status \d"):
        library.matrix(-1, 4, 2, (4, 1))
