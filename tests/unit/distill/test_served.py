from pathlib import Path

import pytest
import torch

from distill.served import ServedFigures, served_figures
from distill.shards import Sample
from tests.tiny_models import write_tiny_model
from tests.unit.distill.conftest import tiny_runner
from tests.unit.engine.paged import Reference


def test_the_target_as_its_own_draft_is_always_right(target: Path, samples: list[Sample]) -> None:
    read: list[int] = []
    figures = served_figures(tiny_runner(target), tiny_runner(target), samples, read.append)
    assert figures == ServedFigures(pytest.approx(1.0), pytest.approx(1.0), pytest.approx(1.0))
    assert read == list(range(1, len(samples) + 1))


def test_figures_of_another_model_are_those_of_its_whole_laws(
    target: Path, samples: list[Sample], tmp_path: Path
) -> None:
    other = write_tiny_model(tmp_path, seed=2, layers=1, hidden=16)
    runners = tiny_runner(target), tiny_runner(other)
    free = [runner.block_manager.num_free for runner in runners]
    figures = served_figures(*runners, samples, lambda done: None)
    assert [runner.block_manager.num_free for runner in runners] == free
    greedy, overlaps = [], []
    for sample in samples:
        p, q = (
            Reference(folder).logits(sample.token_ids[:-1].tolist())[-sample.num_written :].softmax(-1)
            for folder in (target, other)
        )
        if sample.temperature == 0:
            greedy.append((p.argmax(-1) == q.argmax(-1)).float())
        else:
            overlaps.append(torch.minimum(p, q).sum(-1))
    assert figures.greedy_agreement == pytest.approx(torch.cat(greedy).mean().item())
    overlap = torch.cat(overlaps)
    assert figures.overlap == pytest.approx(overlap.mean().item(), abs=1e-4)
    # Between what any two races with the same noise reach and what none can exceed (arXiv 2408.07978).
    assert (overlap / (2 - overlap)).mean().item() <= figures.coupled_acceptance <= overlap.mean().item()
