"""Every family is the same as in transformers, however its tokens come, or is refused in a sentence that names it."""

from pathlib import Path
from typing import Any

import pytest
from transformers import AutoConfig

from saguaro.config.services import Linear
from saguaro.engine.loading import load_model
from saguaro.engine.model_runner import ModelRunner
from saguaro.errors import ConfigurationError
from tests.unit.engine.family_models import small_config, write_config, write_model
from tests.unit.engine.paged import PagedSequence, Reference, assert_close, random_tokens
from tests.unit.engine.test_tree_forward import DEPTH, FORKS, tree_chunk

SERVED = """
    bert bitnet cohere cwm exaone4 gemma gemma3_text glm4 gpt2 gpt_neox granite granitemoe hunyuan_v1_moe llama
    mistral mixtral olmo2 olmoe opt phi phi3 qwen2 qwen2_moe qwen3 qwen3_moe smollm3 starcoder2
""".split()  # noqa: SIM905  # a list of 40 quoted names is harder to read
SERVED_TOO = """
    afmoe apertus arcee aria_text beam bert-generation codegen cohere2 ctrl dots1 ernie4_5 ernie4_5_moe exaone
    flex_olmo gemma2 glm glm4_moe gpt_bigcode gptj helium hunyuan_v1_dense hyperclovax internlm3 jais2 lfm2
    minimax_m2 ministral nanochat olmo olmo3 persimmon phimoe sarvam_moe seed_oss solar_open vaultgemma
""".split()  # noqa: SIM905  # a list of 40 quoted names is harder to read
CHANGES: dict[str, dict[str, Any]] = {
    "bert": {"is_decoder": True},
    "bert-generation": {"is_decoder": True},
    "gpt_bigcode": {"num_key_value_heads": None},
}


def started(folder: Path, linear: Linear = "auto") -> ModelRunner:
    """As the verifier starts it on a CPU, proof and all."""
    loaded = load_model(str(folder), dtype="float32", device="cpu", linear=linear)
    runner = ModelRunner(loaded.model, num_blocks=64, block_size=4)
    runner.warm_up()
    return runner


def assert_same_as_transformers(folder: Path) -> None:
    runner, reference = started(folder), Reference(folder)
    for layer in runner.kv_pool.layers:
        layer.fill_(float("nan"))
    sequence = PagedSequence(runner)
    for count in (20, 1, 5):  # a prompt, a token, a verification
        rows = runner.forward([sequence.chunk(random_tokens(count, seed=count))]).rows
        assert_close(rows, reference.logits(sequence.token_ids)[-count:])
    tree = PagedSequence(runner)
    runner.forward([tree.chunk(random_tokens(16, seed=0), 0)])
    branches = [random_tokens(DEPTH, seed=10 + branch) for branch in range(len(FORKS))]
    for step in range(DEPTH):
        rows = runner.forward([tree_chunk(tree, 7, branches, step)]).rows
        for branch, fork in enumerate(FORKS):
            alone = tree.token_ids[: 7 + fork] + branches[branch][: step + 1]
            assert_close(rows[branch], reference.logits(alone)[-1])


@pytest.mark.parametrize("family", SERVED)
def test_prompt_decode_verification_and_tree_are_those_of_transformers(family: str, tmp_path: Path):
    assert_same_as_transformers(write_model(tmp_path, small_config(family, **CHANGES.get(family, {}))))


@pytest.mark.slow
@pytest.mark.parametrize("family", SERVED_TOO)
def test_so_they_are_in_less_usual_families(family: str, tmp_path: Path):
    assert_same_as_transformers(write_model(tmp_path, small_config(family, **CHANGES.get(family, {}))))


NO_FUNCTION = "no exchangeable function"
REFUSED_BY_CONFIG = {
    "mamba": NO_FUNCTION,
    "mamba2": NO_FUNCTION,
    "falcon_mamba": NO_FUNCTION,
    "bloom": NO_FUNCTION,
    "mpt": NO_FUNCTION,
    "falcon": NO_FUNCTION,
    "stablelm": NO_FUNCTION,
    "xlstm": NO_FUNCTION,
    "qwen3_next": NO_FUNCTION,
    "whisper": "reads its prompt with an encoder",
    "deepseek_v2": "latent attention",
    "deepseek_v3": "latent attention",
    "minicpm3": "latent attention",
    "longcat_flash": "latent attention",
    "deepseek_v4": "layers of type",
    "llama4_text": "layers of type chunked_attention",
    "gemma4_text": "differ in head_dim",
    "minimax": "layers of type linear_attention",
    "recurrent_gemma": "layers of type linear_attention",
}


@pytest.mark.parametrize("family", REFUSED_BY_CONFIG)
def test_a_family_that_cannot_be_served_is_refused_before_its_weights_are_read(family: str, tmp_path: Path):
    folder = write_config(tmp_path, AutoConfig.for_model(family))
    with pytest.raises(ConfigurationError, match=rf"\w+ForCausalLM\b.*{REFUSED_BY_CONFIG[family]}"):
        load_model(str(folder), dtype="float32", device="cpu")


REFUSED_BY_PROOF: dict[str, tuple[dict[str, Any], str]] = {
    "doge": ({}, "Doge.* make attention masks of their own"),
    "bert": ({"is_decoder": False}, "BertLM.* attends to later tokens too"),
    "electra": ({"is_decoder": False}, "Electra.* attends to later tokens too"),
    "roberta": ({"is_decoder": True, "pad_token_id": 1}, r"Roberta.* logits differ by [0-9.]+%"),
    "nemotron": ({}, "Nemotron.* does not hand on"),
    "jetmoe": ({}, "JetMoe.* has keys of 4 heads of 16 numbers in layer 0"),
    "dory": ({}, "Dory.* attends more than once in layer 0"),
    "hrm_text": ({}, "HrmText.* attends more than once in layer"),
    "diffllama": ({}, "DiffLlama.* attends more than once in layer 0"),
    "gpt_oss": ({}, "GptOss.* attention sinks"),
}


@pytest.mark.parametrize("family", REFUSED_BY_PROOF)
@pytest.mark.parametrize("linear", ["stock", "auto"])
def test_what_only_a_forward_shows_is_refused_at_the_warm_up(family: str, linear: Linear, tmp_path: Path):
    changes, reason = REFUSED_BY_PROOF[family]
    folder = write_model(tmp_path, small_config(family, **changes))
    with pytest.raises(ConfigurationError, match=reason):
        started(folder, linear)


def test_a_type_that_is_no_causal_model_is_refused_by_name(tmp_path: Path):
    folder = write_config(tmp_path, AutoConfig.for_model("t5"))
    with pytest.raises(ConfigurationError, match="a model of type t5 is no causal language model"):
        load_model(str(folder), dtype="float32", device="cpu")


@pytest.mark.parametrize("spoil", [1e-2, 1e-1])
def test_the_proof_sees_a_percent_of_wrong_attention(spoil: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    runner = started(write_model(tmp_path, small_config("llama")))
    attention = runner._model.model.layers[1].self_attn
    monkeypatch.setattr(attention, "forward", _spoiled(attention.forward, spoil))
    with pytest.raises(ConfigurationError, match="does not run on paged attention"):
        runner.warm_up()


def _spoiled(forward: Any, share: float) -> Any:
    """On paged attention alone, as if a share of what is attended to came from elsewhere."""

    def spoiled(*args: Any, **options: Any) -> Any:
        output, weights = forward(*args, **options)
        if options.get("saguaro_plan") is not None:
            output = output + share * output.roll(1, dims=-1)
        return output, weights

    return spoiled
