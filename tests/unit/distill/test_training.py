from dataclasses import replace
from pathlib import Path

import pytest
import torch

from distill import checkpoint
from distill.checkpoint import Progress, load_state
from distill.cut import cut
from distill.plan import DistillPlan
from distill.shards import Sample
from distill.training import Training, learning_rate
from saguaro.errors import ConfigurationError


@pytest.fixture
def plan(target: Path, tmp_path: Path) -> DistillPlan:
    return DistillPlan(str(target), tmp_path, batch_tokens=128, dtype="float32", learning_rate=3e-3)


def trained(
    plan: DistillPlan, samples: list[Sample], steps: int, *, resume: bool = False
) -> tuple[Training, list[float]]:
    """A training that ends after `steps` in all, saved; its losses."""
    state = load_state(plan.checkpoint_folder) if resume else None
    training = Training(plan, cut(plan.target, (0, 3), None), lambda: samples, state)
    losses: list[float] = []
    training.run(
        lambda progress: progress.steps >= steps,
        lambda progress: progress.steps / 60,
        lambda _, loss: losses.append(loss),
    )
    training.save({})
    return training, losses


def test_a_resumed_training_is_the_one_that_never_stopped_to_the_bit(plan: DistillPlan, samples: list[Sample]) -> None:
    whole, losses = trained(plan, samples, 11)
    _, first = trained(plan, samples, 5)
    resumed, second = trained(plan, samples, 11, resume=True)
    assert first + second == losses
    assert replace(resumed.progress, seconds=0.0) == replace(whole.progress, seconds=0.0)
    for name, weight in whole.draft.trained().items():
        assert torch.equal(weight, resumed.draft.trained()[name])


def test_the_loss_falls_and_the_frozen_part_stays(plan: DistillPlan, samples: list[Sample]) -> None:
    embeddings = cut(plan.target, (0, 3), None).model.get_input_embeddings().weight
    training, losses = trained(plan, samples, 60)
    assert sum(losses[-5:]) < 0.7 * sum(losses[:5])
    assert torch.equal(training.draft.model.get_input_embeddings().weight, embeddings)


def test_a_kill_while_a_checkpoint_is_written_leaves_the_one_before(
    plan: DistillPlan, samples: list[Sample], monkeypatch: pytest.MonkeyPatch
) -> None:
    training, _ = trained(plan, samples, 3)

    def half(tensors: object, file: Path, metadata: object) -> None:
        file.write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(checkpoint, "save_file", half)
    training.note({"loss": 1.0})
    with pytest.raises(KeyboardInterrupt):
        training.save({})
    state = load_state(plan.checkpoint_folder)
    assert state is not None
    assert state.progress.steps == 3
    assert state.progress.curve == ()


def test_a_damaged_checkpoint_is_named(plan: DistillPlan) -> None:
    plan.checkpoint_folder.mkdir()
    (plan.checkpoint_folder / "state.safetensors").write_bytes(b"nothing")
    with pytest.raises(ConfigurationError, match=r"state\.safetensors"):
        load_state(plan.checkpoint_folder)


def test_the_rate_warms_up_and_ends_at_a_twentieth() -> None:
    assert learning_rate(1.0, 0, 0.0) == pytest.approx(1 / 40)
    assert learning_rate(1.0, 39, 0.0) == pytest.approx(1.0)
    assert learning_rate(1.0, 1_000, 0.5) == pytest.approx(0.525)
    assert learning_rate(1.0, 1_000, 1.5) == pytest.approx(0.05)


def test_progress_begins_at_nothing() -> None:
    assert load_state(Path("/nonexistent")) is None
    assert Progress().curve == ()
