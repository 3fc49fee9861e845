from pathlib import Path

import pytest
import safetensors.torch
import torch

from distill import shards as module
from distill.shards import Sample, ShardFolder
from saguaro.errors import ConfigurationError


def test_samples_come_back_in_order_with_all_that_was_kept(shards: ShardFolder, samples: list[Sample]) -> None:
    shards.append(samples[:2])
    read = list(shards.samples())
    assert len(shards) == 2
    assert shards.num_written == sum(sample.num_written for sample in (*samples, *samples[:2]))
    for one, other in zip(read, (*samples, *samples[:2]), strict=True):
        assert torch.equal(one.token_ids, other.token_ids)
        assert torch.equal(one.top_ids, other.top_ids)
        assert torch.equal(one.top_log_probs, other.top_log_probs)
        assert one.temperature == other.temperature


def test_a_kill_while_a_shard_is_written_leaves_the_shards_before_it_and_the_next_takes_its_number(
    shards: ShardFolder, samples: list[Sample], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def half(tensors: object, file: Path) -> None:
        safetensors.torch.save_file(tensors, file)
        file.write_bytes(file.read_bytes()[:100])
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(module, "save_file", half)
        with pytest.raises(KeyboardInterrupt):
            shards.append(samples[:1])
    reopened = ShardFolder(tmp_path / "data")
    assert len(list(reopened.samples())) == len(samples)
    reopened.append(samples[:1])
    assert len(list(reopened.samples())) == len(samples) + 1


def test_a_damaged_shard_is_named(shards: ShardFolder, tmp_path: Path) -> None:
    (file,) = (tmp_path / "data").glob("shard-*")
    file.write_bytes(b"nothing")
    with pytest.raises(ConfigurationError, match=file.name):
        list(shards.samples())


def test_a_shards_laws_are_those_of_its_texts(samples: list[Sample]) -> None:
    for sample in samples:
        assert (sample.top_log_probs.diff(dim=-1) <= 0).all()
        if sample.temperature == 0.0:
            assert torch.equal(sample.token_ids[-sample.num_written :], sample.top_ids[:, 0])
