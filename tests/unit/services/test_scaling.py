"""The deployment's C: which steps it is tuned by, and that it reaches those who name none, and only them."""

from __future__ import annotations

import pytest

from saguaro.core.scaling_tuner import SCALES
from saguaro.types import AcceptanceMode, GenerationRequest, SamplingParams, VerifierFrame
from speculator_service.stream import Stream
from tests.unit.services.conftest import TinyModels
from tests.unit.services.in_memory_trio import InMemoryTrio
from verifier_service.scaling import AUTO, CachedScale

PROMPT = tuple(range(40, 63))


def request(
    cached_scale: float | None = None, acceptance: AcceptanceMode = AcceptanceMode.REJECTION
) -> GenerationRequest:
    sampling = SamplingParams(0.9, seed=3, acceptance=acceptance, cached_scale=cached_scale)
    return GenerationRequest("r", PROMPT, sampling, max_tokens=90)


def frames_of(trio: InMemoryTrio) -> list[float]:
    return [frame.cached_scale for frame in trio.frames if isinstance(frame, VerifierFrame)]


def test_a_fixed_c_goes_out_with_every_frame(tiny: TinyModels) -> None:
    trio = InMemoryTrio(tiny.target, tiny.draft, scale=CachedScale(0.25))
    trio.submit(request())
    for _ in range(5):
        trio.step()
    assert set(frames_of(trio)) == {0.25}


def test_auto_begins_with_1_and_tries_its_neighbour(tiny: TinyModels) -> None:
    trio = InMemoryTrio(tiny.target, tiny.draft, scale=CachedScale(AUTO))
    for _ in range(4):
        trio.generate(request())
    tried = list(dict.fromkeys(frames_of(trio)))
    assert tried[:2] == list(SCALES[:2])


@pytest.mark.parametrize(
    "other", [request(cached_scale=0.5), request(acceptance=AcceptanceMode.COUPLED)], ids=["own C", "coupled"]
)
def test_answers_that_do_not_follow_it_do_not_tune_it(tiny: TinyModels, other: GenerationRequest) -> None:
    trio = InMemoryTrio(tiny.target, tiny.draft, scale=CachedScale(AUTO))
    for _ in range(2):  # rounds enough for a window and more
        trio.generate(other)
    assert set(frames_of(trio)) == {1.0}


def test_a_request_s_own_c_wins_over_the_deployment_s(tiny: TinyModels) -> None:
    trio = InMemoryTrio(tiny.target, tiny.draft, scale=CachedScale(0.25))
    for cached_scale in (0.5, None):
        trio.submit(request(cached_scale))
    for _ in range(3):
        trio.step()
    stream: Stream = trio.stream
    scales = [stream.scale_for(session) for session in stream.sessions.values()]
    assert scales == [0.5, 0.25]
