"""Packed layers have the model's own numbers, int8 ones nearly; neither costs more memory than the model had."""

from pathlib import Path

import pytest
import torch
from torch import nn
from transformers import AutoModelForCausalLM, PreTrainedModel

from saguaro.engine.fast_model import Linear, Role, make_fast, weight_bytes
from saguaro.engine.fusion import FusedAttention
from saguaro.engine.int8_linear import Int8Linear
from saguaro.engine.loading import load_model
from saguaro.engine.model_runner import ModelRunner
from saguaro.engine.packed_linear import HalfLinear, PackedLinear, half_exponent, pack
from saguaro.errors import ConfigurationError
from tests.unit.engine.paged import PagedSequence, Reference, assert_close, random_tokens

ROWS = (1, 2, 3, 5, 8, 13, 24, 65)


def load(folder: Path, *, linear: Linear = "packed", role: Role = "target", halved: bool = False) -> PreTrainedModel:
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    if halved:
        halve(model)
    make_fast(model, linear, role)
    return model


def halve(model: PreTrainedModel) -> None:
    """As if it came from a checkpoint in 16 bits."""
    for parameter in model.parameters():
        parameter.data = parameter.data.half().float()


@pytest.mark.parametrize("halved", [False, True], ids=["float32", "fp16 checkpoint"])
def test_a_packed_model_of_any_family_equals_the_stock_one(any_model: Path, halved: bool):
    reference = Reference(any_model)
    if halved:
        halve(reference.model)
    runner = ModelRunner(load(any_model, halved=halved), num_blocks=64)
    sequence = PagedSequence(runner)
    for count in ROWS:
        logits = runner.forward([sequence.chunk(random_tokens(count, seed=count))]).rows
        assert_close(logits, reference.logits(sequence.token_ids)[-count:])


def test_a_sequence_in_scattered_blocks_equals_the_reference_too(llama: Path):
    runner = ModelRunner(load(llama), num_blocks=64, block_size=4)
    first, second = PagedSequence(runner), PagedSequence(runner)
    for step in range(6):  # growing in turns, neither has consecutive blocks
        for sequence in (first, second):
            runner.forward([sequence.chunk(random_tokens(4, seed=step))])
    assert first.table.blocks[1] - first.table.blocks[0] != 1
    logits = runner.forward([first.chunk(random_tokens(4, seed=99))]).rows
    assert_close(logits, Reference(llama).logits(first.token_ids)[-4:])


def test_the_known_families_are_fused_and_others_left_alone(any_model: Path):
    model = load(any_model)
    fused = {isinstance(layer.self_attn, FusedAttention) for layer in model.model.layers}
    assert fused == {model.config.model_type != "gemma2"}


@pytest.mark.parametrize(("linear", "share"), [("packed", 1.0), ("int8", 0.45)])
def test_no_weight_is_kept_twice(any_model: Path, linear: Linear, share: float):
    before = weight_bytes(AutoModelForCausalLM.from_pretrained(any_model))
    model = load(any_model, linear=linear, role="draft")
    assert not any(type(module) is nn.Linear for module in model.modules())
    assert weight_bytes(model) <= share * before + 2048  # biases and the gains of each head


def test_a_16_bit_checkpoint_is_packed_in_16_bits_and_a_32_bit_one_is_not(llama: Path):
    kinds = [type(load(llama, halved=halved).lm_head) for halved in (True, False)]
    assert kinds == [HalfLinear, PackedLinear]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("size", [1e-6, 1e-3, 1.0, 100.0])
def test_weights_of_a_16_bit_checkpoint_lose_nothing(dtype: torch.dtype, size: float):
    generator = torch.Generator().manual_seed(0)
    weight = (torch.randn(96, 64, generator=generator) * size).to(dtype).float()
    bias, x = torch.randn(96, generator=generator), torch.randn(7, 64, generator=generator)
    layer = pack(weight, bias)
    assert isinstance(layer, HalfLinear)
    exact = (x.double() @ weight.double().T + bias).float()
    torch.testing.assert_close(layer(x), exact, rtol=1e-5, atol=1e-5 * size)


def test_weights_that_16_bits_would_round_stay_in_32():
    assert half_exponent(torch.tensor([[1.0, 1.0 + 2.0**-12]])) is None
    assert half_exponent(torch.tensor([[1.0, 1.0 + 2.0**-10]])) == 0
    assert half_exponent(torch.tensor([[1e6]])) is None
    assert half_exponent(torch.tensor([[2.0**20]])) == -6
    assert half_exponent(torch.zeros(2, 2)) == 0


def test_a_row_of_an_int8_layer_does_not_suffer_from_a_larger_one_beside_it():
    generator = torch.Generator().manual_seed(0)
    weight, x = torch.randn(64, 128, generator=generator), torch.randn(4, 128, generator=generator)
    layer = Int8Linear(weight, torch.ones(64))
    beside = layer(torch.cat([x, 1000 * x[:1], torch.zeros(1, 128)]))
    error = (beside[:4] - (x @ weight.T + 1)).norm() / (x @ weight.T).norm()
    assert error < 0.03
    assert torch.equal(beside[5], torch.ones(64))


def test_an_int8_draft_mostly_agrees_with_itself_in_float32(llama: Path):
    """0.88 here; random weights are the hard case, since their logits lie close together."""
    stock, int8 = Reference(llama).model, load(llama, linear="int8", role="draft")
    token_ids = torch.tensor([random_tokens(256, seed=5)])
    with torch.inference_mode():
        agreed = stock(token_ids).logits.argmax(-1) == int8(token_ids, use_cache=False).logits.argmax(-1)
    assert agreed.float().mean() > 0.75


def test_auto_is_packed_for_a_target_and_int8_for_a_draft_and_stock_in_16_bits(llama: Path):
    target, draft = load(llama, linear="auto"), load(llama, linear="auto", role="draft")
    assert (type(target.lm_head), type(draft.lm_head)) == (PackedLinear, Int8Linear)
    half = load_model(str(llama), dtype="bfloat16", device="cpu", linear="auto").model
    assert type(half.lm_head) is nn.Linear


def test_int8_for_a_target_is_refused(llama: Path):
    with pytest.raises(ConfigurationError, match="the target stays in its own precision"):
        load(llama, linear="int8")


def test_packing_a_16_bit_model_is_refused(llama: Path):
    with pytest.raises(ConfigurationError, match="packed needs a float32 model on a CPU, this one is bfloat16 on cpu"):
        load_model(str(llama), dtype="bfloat16", device="cpu", linear="packed")
