"""The mutations themselves: what they start from is whole, and what they make follows from the seed."""

from __future__ import annotations

from random import Random

import pytest

from tests.fuzz.corpus import METHODS
from tests.fuzz.hostile_http import hostile
from tests.fuzz.mutation import parse, write
from tests.fuzz.sender import calls_of

EVERY = [method for methods in METHODS.values() for method in methods]


@pytest.mark.parametrize("method", EVERY, ids=lambda method: method.name)
def test_what_is_parsed_is_written_again(method) -> None:  # type: ignore[no-untyped-def]
    for frame in method.frames:
        assert write(parse(frame, method.kind)) == frame


@pytest.mark.parametrize("role", METHODS)
def test_frames_follow_from_the_seed_and_most_can_be_read(role: str) -> None:
    calls = calls_of(Random(1), role, 2000)
    assert calls == calls_of(Random(1), role, 2000)
    assert calls != calls_of(Random(2), role, 2000)
    frames = [(method, frame) for method, frames in calls for frame in frames]
    readable = sum(method.is_message(frame) for method, frame in frames)
    valid = sum(frame in method.frames for method, frame in frames)
    print(role, readable / 2000, valid / 2000)
    assert len(frames) == 2000
    assert 0.5 < readable / 2000 < 0.99
    assert {method.name for method, _ in frames} == {method.name for method in METHODS[role]}


def test_requests_follow_from_the_seed() -> None:
    first, again = (list(map(hostile, [Random(seed) for seed in range(300)])) for _ in range(2))
    assert first == again
    assert len(set(first)) > 250
