from pathlib import Path

import pytest
import torch

from distill.cut import begin_from, cut, default_layers, most_frequent, save
from saguaro.engine.loading import load_model
from saguaro.engine.model_runner import ModelRunner
from saguaro.engine.reduced_head import OUTSIDE
from saguaro.errors import ConfigurationError
from tests.tiny_models import write_tiny_model

PROMPT = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6]])


def as_draft(folder: Path, target: Path):
    return load_model(str(folder), dtype="float32", device="cpu", embeddings_from=str(target), role="draft")


def test_the_first_four_and_the_last_two_layers_are_kept_of_a_deep_target() -> None:
    assert default_layers(30) == (0, 1, 2, 3, 28, 29)
    assert default_layers(4) == (0, 1)
    assert default_layers(1) == (0,)


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3", "mistral"])
def test_a_cut_of_all_layers_is_the_target_and_a_saved_one_loads_as_its_draft(family: str, tmp_path: Path) -> None:
    target = write_tiny_model(tmp_path / "target", seed=2, layers=3, family=family)
    whole = load_model(str(target), dtype="float32", device="cpu").model
    draft = cut(str(target), (0, 1, 2), None)
    torch.testing.assert_close(draft.model(PROMPT).logits, whole(PROMPT).logits)

    short = cut(str(target), (0, 2), None)
    save(short, tmp_path / "draft", {})
    loaded = as_draft(tmp_path / "draft", target).model
    torch.testing.assert_close(loaded(PROMPT).logits, short.model(PROMPT).logits, atol=0.05, rtol=0.01)
    stored = (tmp_path / "draft" / "model.safetensors").stat().st_size
    assert stored < 2 * sum(value.numel() for value in short.trained().values()) + 8192


def test_embeddings_and_head_are_frozen_and_everything_else_trains(target: Path) -> None:
    draft = cut(str(target), None, range(0, 258, 2))
    assert {name.split(".")[1] for name in draft.trained()} == {"layers", "norm"}


def test_a_draft_with_a_token_map_runs_in_the_engine_as_the_full_head_restricted(target: Path, tmp_path: Path) -> None:
    token_ids = (0, 3, 17, 100, 257)
    draft = cut(str(target), (0, 3), token_ids)
    save(draft, tmp_path / "draft", {})
    runner = ModelRunner(as_draft(tmp_path / "draft", target).model, num_blocks=64, block_size=4)
    runner.warm_up()
    full = cut(str(target), (0, 3), None)
    logits = as_draft(tmp_path / "draft", target).model(PROMPT).logits[0]
    assert (logits == OUTSIDE).sum() == logits.shape[0] * (258 - len(token_ids))
    restricted = full.model(PROMPT).logits[0][:, list(token_ids)]
    torch.testing.assert_close(logits[:, list(token_ids)], restricted, atol=0.05, rtol=0.01)
    again = begin_from(str(tmp_path / "draft"), str(target), None)
    assert again.token_ids == token_ids
    assert again.column_of[100] == 3


def test_the_most_frequent_tokens_are_kept_in_order_with_those_that_must_be() -> None:
    counts = torch.tensor([5.0, 0.0, 9.0, 5.0, 1.0])
    assert most_frequent(counts, 3, (4,)) == (0, 2, 4)


@pytest.mark.parametrize("layers", [(0, 4), (-1,), (1, 0), (1, 1), ()])
def test_layers_that_are_not_there_or_not_in_order_are_refused(target: Path, layers: tuple[int, ...]) -> None:
    with pytest.raises(ConfigurationError, match="--layers"):
        cut(str(target), layers, None)


def test_a_target_that_squashes_its_logits_is_refused_by_name(tmp_path: Path) -> None:
    folder = write_tiny_model(tmp_path / "gemma", seed=1, family="gemma2")
    with pytest.raises(ConfigurationError, match="final_logit_softcapping"):
        cut(str(folder), (0,), None)


def test_a_start_with_embeddings_of_its_own_is_refused(target: Path) -> None:
    with pytest.raises(ConfigurationError, match="embeddings of its own"):
        begin_from(str(target), str(target), None)
