"""The audit replays what finished, in idle time only, and sees a single wrong token."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

import pytest
from torch import Tensor

from saguaro.engine.model_runner import Logits
from saguaro.types import GenerationRequest, SamplingParams
from tests.unit.services.conftest import TinyModels
from tests.unit.services.in_memory_trio import InMemoryTrio
from verifier_service.audit import Auditor

PROMPT = tuple(range(40, 63))
SAMPLINGS = [SamplingParams(), SamplingParams(temperature=0.9, seed=2**63 + 11, frequency_penalty=0.3)]


def request(sampling: SamplingParams, name: str = "r", max_tokens: int = 40) -> GenerationRequest:
    return GenerationRequest(name, PROMPT, sampling, max_tokens=max_tokens)


def run_idle(trio: InMemoryTrio, max_steps: int = 400) -> None:
    """Until the audit has nothing left to do."""
    for _ in range(max_steps):
        if trio.loop.step() is None:
            return
    raise AssertionError(f"not idle after {max_steps} steps")


def auditor_of(trio: InMemoryTrio) -> Auditor:
    assert trio.auditor is not None
    return trio.auditor


def raise_logit_at(trio: InMemoryTrio, forward: int, token: int, by: float) -> None:
    """From the nth forward of the target on, once, the first row's logit of `token` is wrong."""
    real: Callable[..., Logits] = trio.target.forward
    count = 0

    def tampered(*arguments: object) -> Logits:
        nonlocal count
        logits = real(*arguments)
        count += 1
        if count != forward:
            return logits
        rows: Tensor = logits.rows.clone()
        rows[0, token] += by
        return replace(logits, rows=rows)

    trio.target.forward = tampered  # type: ignore[method-assign]


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=["greedy", "temperature 0.9 with penalty"])
def test_what_speculation_emitted_passes(tiny: TinyModels, sampling: SamplingParams) -> None:
    trio = InMemoryTrio(tiny.target, tiny.draft, audit_rate=1.0)
    answer = trio.generate(request(sampling))
    assert answer.finished.speculation.num_accepted_tokens > 0
    run_idle(trio)
    assert (auditor_of(trio).num_audited, auditor_of(trio).num_mismatched) == (1, 0)
    trio.assert_all_blocks_free()


def test_one_tampered_token_is_counted_and_named(tiny: TinyModels, caplog: pytest.LogCaptureFixture) -> None:
    trio = InMemoryTrio(tiny.target, tiny.draft, audit_rate=1.0)
    clean = InMemoryTrio(tiny.target, None).generate(request(SAMPLINGS[0])).tokens
    raise_logit_at(trio, forward=4, token=7, by=100.0)
    tampered = trio.generate(request(SAMPLINGS[0], "the-bad-one")).tokens
    position = next(i for i, (one, other) in enumerate(zip(clean, tampered, strict=True)) if one != other)
    with caplog.at_level(logging.WARNING):
        run_idle(trio)
    assert (auditor_of(trio).num_audited, auditor_of(trio).num_mismatched) == (1, 1)
    (message,) = caplog.messages
    assert "request the-bad-one" in message
    assert f"at output token {position}: 7 emitted, {clean[position]} replayed, logit gap" in message
    trio.assert_all_blocks_free()


def test_it_gives_way_at_once_and_goes_on_later(tiny: TinyModels) -> None:
    trio = InMemoryTrio(tiny.target, tiny.draft, audit_rate=1.0)
    trio.generate(request(SAMPLINGS[0], "first"))
    for _ in range(5):
        trio.loop.step()
    assert auditor_of(trio).num_audited == 0
    expected = InMemoryTrio(tiny.target, None).generate(request(SAMPLINGS[1])).tokens
    forwards = 0
    real = trio.target.forward

    def counted(chunks: list[object]) -> Logits:
        nonlocal forwards
        forwards += bool(trio.loop.scheduler.running)
        assert len(chunks) == 1  # never beside the new request
        return real(chunks)  # type: ignore[arg-type]

    trio.target.forward = counted  # type: ignore[method-assign, assignment]
    answer = trio.generate(request(SAMPLINGS[1], "second"))
    assert answer.tokens == expected
    assert forwards == answer.finished.speculation.num_rounds + 1  # its rounds and its prompt, nothing between
    run_idle(trio)
    assert (auditor_of(trio).num_audited, auditor_of(trio).num_mismatched) == (2, 0)
    trio.assert_all_blocks_free()


def test_the_share_is_chosen_by_the_seed(tiny: TinyModels) -> None:
    counts = []
    for _ in range(2):
        trio = InMemoryTrio(tiny.target, None, audit_rate=0.5)
        for index in range(12):
            trio.generate(request(SAMPLINGS[0], f"r{index}", max_tokens=2))
        run_idle(trio)
        counts.append(auditor_of(trio).num_audited)
    assert counts[0] == counts[1]
    assert 0 < counts[0] < 12


def test_an_aborted_request_is_not_audited(tiny: TinyModels) -> None:
    trio = InMemoryTrio(tiny.target, tiny.draft, audit_rate=1.0)
    sequence, _ = trio.submit(request(SAMPLINGS[0]))
    for _ in range(4):
        trio.step()
    trio.loop.abort(sequence)
    run_idle(trio)
    assert auditor_of(trio).num_audited == 0
    trio.assert_all_blocks_free()
