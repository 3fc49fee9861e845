from pathlib import Path

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from saguaro.engine.model_runner import ModelRunner, context_limit_tokens
from saguaro.engine.paged_attention import ATTENTION_NAME
from saguaro.errors import ConfigurationError
from tests.tiny_models import write_tiny_model
from tests.unit.engine.paged import PagedSequence, Reference, assert_close, make_runner, random_tokens

TINY = {
    "num_hidden_layers": 2,
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "vocab_size": 64,
}


@pytest.mark.parametrize(
    ("family", "settings", "limit"),
    [
        ("llama", {"max_position_embeddings": 4096}, 4096),
        ("mistral", {"max_position_embeddings": 4096, "sliding_window": 1024}, 1024),
        ("mistral", {"max_position_embeddings": 4096, "sliding_window": None}, 4096),
        ("qwen2", {"max_position_embeddings": 4096, "sliding_window": 1024, "use_sliding_window": False}, 4096),
        ("qwen2", {"max_position_embeddings": 4096, "sliding_window": 512, "use_sliding_window": True}, 4096),
        (
            "qwen2",
            {
                "max_position_embeddings": 4096,
                "sliding_window": 512,
                "use_sliding_window": True,
                "max_window_layers": 1,
            },
            512,
        ),
        ("gemma2", {"max_position_embeddings": 8192, "sliding_window": 2048}, 2048),
    ],
)
def test_the_context_limit_is_the_positions_or_one_sliding_window_where_some_layer_uses_it(
    family: str, settings: dict[str, object], limit: int
):
    assert context_limit_tokens(AutoConfig.for_model(family, **TINY, **settings)) == limit


@pytest.mark.parametrize("rope_type", ["dynamic", "longrope"])
def test_where_rotary_frequencies_depend_on_the_length_the_context_limit_is_the_original_length(rope_type: str):
    rope = {"rope_type": rope_type, "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 1024}
    config = AutoConfig.for_model("llama", **TINY, max_position_embeddings=4096)
    config.rope_parameters = rope
    assert context_limit_tokens(config) == 1024
    config.rope_parameters = {"full_attention": rope, "sliding_attention": {"rope_type": "default"}}
    assert context_limit_tokens(config) == 1024


def test_rotary_frequencies_that_are_fixed_leave_the_whole_context():
    config = AutoConfig.for_model("llama", **TINY, max_position_embeddings=4096)
    config.rope_parameters = {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 1024}
    assert context_limit_tokens(config) == 4096


def test_a_model_whose_attention_cannot_be_exchanged_is_refused_in_a_sentence():
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model("bloom", n_layer=1, hidden_size=16, n_head=4))
    with pytest.raises(ConfigurationError, match="BloomForCausalLM cannot run on paged attention"):
        ModelRunner(model, num_blocks=4)


def test_a_model_with_layers_that_keep_other_state_is_refused_in_a_sentence(llama: Path):
    model = AutoModelForCausalLM.from_pretrained(llama)
    model.config.layer_types = ["full_attention", "linear_attention"]
    with pytest.raises(ConfigurationError, match="has layers of type linear_attention"):
        ModelRunner(model, num_blocks=4)


def test_a_model_with_attention_sinks_is_refused_at_its_warm_up(runner: ModelRunner, monkeypatch: pytest.MonkeyPatch):
    forward = runner._model.forward
    monkeypatch.setattr(runner._model, "forward", lambda **inputs: forward(**inputs, s_aux=torch.zeros(4)))
    with pytest.raises(ConfigurationError, match="attention sinks"):
        runner.warm_up()


def test_warm_up_leaves_every_block_free_and_works_on_a_pool_of_one_token(llama: Path):
    runner = make_runner(llama, num_blocks=1, block_size=1)
    runner.warm_up()
    assert runner.block_manager.num_free == 1


def test_warm_up_passes_for_every_family_and_leaves_our_attention_in_place(any_model: Path):
    runner = make_runner(any_model)
    runner.warm_up()
    assert runner._model.config._attn_implementation == ATTENTION_NAME


def test_warm_up_refuses_a_model_whose_paged_logits_are_not_its_own(llama: Path):
    runner = make_runner(llama)
    runner.kv_pool.layers[1] = runner.kv_pool.layers[0]  # as if two layers shared their state
    with pytest.raises(ConfigurationError, match=r"does not run on paged attention: its logits differ by [0-9.]+%"):
        runner.warm_up()


def test_weights_that_give_no_finite_logits_are_refused_at_warm_up(llama: Path):
    runner = make_runner(llama)
    runner._model.lm_head.weight.data.fill_(float("nan"))
    with pytest.raises(ConfigurationError, match="logits that are not finite"):
        runner.warm_up()


def test_the_runner_reports_device_vocabulary_and_pool_and_takes_the_attention_over(tmp_path: Path):
    runner = make_runner(write_tiny_model(tmp_path, seed=0, vocab=300), num_blocks=7, block_size=8)
    assert (runner.device, runner.vocab_size) == (torch.device("cpu"), 300)
    assert (runner.block_manager.num_blocks, runner.block_manager.block_size) == (7, 8)
    assert runner.kv_pool.num_slots == 56
    assert runner._model.config._attn_implementation == ATTENTION_NAME


def test_a_16_bit_model_keeps_its_kv_in_16_bits_and_stays_near_its_32_bit_self(llama: Path):
    runner = ModelRunner(AutoModelForCausalLM.from_pretrained(llama, dtype=torch.bfloat16), num_blocks=16)
    assert runner.kv_pool.layers[0].dtype == torch.bfloat16
    token_ids = random_tokens(20, seed=0)
    rows = runner.forward([PagedSequence(runner).chunk(token_ids)]).rows
    assert rows.dtype == torch.float32
    correlation = torch.corrcoef(torch.stack([rows.flatten(), Reference(llama).logits(token_ids).flatten()]))[0, 1]
    assert correlation > 0.99


def test_two_models_in_one_process_do_not_disturb_each_other(llama: Path, tmp_path: Path):
    other = write_tiny_model(tmp_path, seed=8, layers=1, heads=2, kv_heads=1)
    runners, references = (make_runner(llama), make_runner(other)), (Reference(llama), Reference(other))
    sequences = [PagedSequence(runner) for runner in runners]
    for step in range(3):
        for runner, reference, sequence in zip(runners, references, sequences, strict=True):
            logits = runner.forward([sequence.chunk(random_tokens(5, seed=step))])
            assert_close(logits.rows, reference.logits(sequence.token_ids)[-5:])
