"""Verifier and speculator in one thread, without sockets: real loops, real tiny models, a clock that tests wind.

How the two interleave is the test's choice (`Pace`), so every order of events can be brought about on purpose.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

from saguaro.core.planner import FixedPolicy, Planner
from saguaro.engine.block_manager import BlockTable
from saguaro.engine.grammar import ConstraintCompiler
from saguaro.engine.model_runner import Logits, ModelRunner
from saguaro.engine.ragged_batch import Chunk
from saguaro.engine.runner import Runner
from saguaro.types import (
    AcceptanceMode,
    EventSink,
    GenerationEvent,
    GenerationFinished,
    GenerationRequest,
    SpeculatorFrame,
    TokenRun,
    VerifierFrame,
)
from speculator_service.scheduler import DraftScheduler
from speculator_service.stream import Limits
from verifier_service.audit import Auditor
from verifier_service.decode_loop import DecodeLoop
from verifier_service.scaling import CachedScale
from verifier_service.sequence import Sequence
from verifier_service.speculations import Speculations


class Pace(enum.Enum):
    """How much the speculator gets done while the verifier does one step."""

    FAST = enum.auto()  # everything
    STEPWISE = enum.auto()  # one forward
    LATE = enum.auto()  # everything, but only when the verifier is idle: nothing is ever ready in time
    HUNG = enum.auto()  # nothing, though the link stands


@dataclass
class Answer:
    """What a generation sent out."""

    events: list[GenerationEvent | Exception] = field(default_factory=list)

    @property
    def tokens(self) -> list[int]:
        return [token for event in self.events if isinstance(event, TokenRun) for token in event.token_ids]

    @property
    def runs(self) -> list[TokenRun]:
        return [event for event in self.events if isinstance(event, TokenRun)]

    @property
    def provenance(self) -> list[int]:
        return [source for event in self.events if isinstance(event, TokenRun) for source in event.provenance]

    @property
    def finished(self) -> GenerationFinished:
        assert isinstance(self.events[-1], GenerationFinished), self.events[-1]
        return self.events[-1]

    @property
    def is_over(self) -> bool:
        return bool(self.events) and isinstance(self.events[-1], (GenerationFinished, Exception))


@lru_cache(maxsize=16)
def _load(folder: Path) -> torch.nn.Module:
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)


def runner_of(
    model: Path | Runner, *, num_blocks: int = 256, block_size: int = 4, num_tokens: int | None = None
) -> Runner:
    """A runner with a pool of its own on the (shared, read-only) weights of a folder; a runner is taken as it is."""
    if isinstance(model, Path):
        return ModelRunner(_load(model), num_blocks=num_blocks, block_size=block_size, num_tokens=num_tokens)
    return model


class InMemoryTrio:
    """`draft` None runs without a speculator."""

    def __init__(
        self,
        target: Path | Runner,
        draft: Path | Runner | None,
        *,
        lookahead: int = 4,
        budget: int = 8,
        pace: Pace = Pace.FAST,
        eos_token_ids: Iterable[int] = (),
        just_in_time_ms: float | None = 50.0,
        max_running: int = 8,
        max_waiting: int = 64,
        prefill_chunk_tokens: int = 64,
        target_blocks: int = 256,
        draft_blocks: int = 256,
        is_fixed: bool = True,
        scale: CachedScale | None = None,
        speculator_modes: tuple[AcceptanceMode, ...] = tuple(AcceptanceMode),
        compiler: ConstraintCompiler | None = None,
        audit_rate: float = 0.0,
        draft_tokens: int | None = None,
    ) -> None:
        self.pace = pace
        self.now_ns = 0
        self.frames: list[VerifierFrame | SpeculatorFrame] = []
        self.stalls = 0
        self._eos_token_ids = frozenset(eos_token_ids)
        self._compiler = compiler
        self._next_id = 0
        self._modes = speculator_modes
        self.target = runner_of(target, num_blocks=target_blocks)
        self._num_slots = self.target.block_manager.num_blocks * self.target.block_manager.block_size
        self._target_forward = self.target.forward
        self.target.forward = self._forward  # type: ignore[method-assign]
        self.speculations = Speculations(
            planner=Planner(
                max_lookahead=lookahead,
                start_lookahead=lookahead,
                fixed=FixedPolicy(lookahead, budget, math.inf) if is_fixed else None,
            ),
            max_lookahead=lookahead,
            max_budget=budget,
            vocab_size=self.target.vocab_size,
            just_in_time_ns=None if just_in_time_ms is None else int(just_in_time_ms * 1e6),
            scale=scale,
            on_stall=self._on_stall,
        )
        self.auditor = Auditor(self.target, self._replay_of, rate=audit_rate) if audit_rate else None
        self.loop = DecodeLoop(
            self.target,
            self.speculations,
            deliver=lambda events: [sink(event) for sink, event in events],
            max_running=max_running,
            max_waiting=max_waiting,
            prefill_chunk_tokens=prefill_chunk_tokens,
            auditor=self.auditor,
            clock_ns=self._clock,
        )
        self.draft: Runner | None = None
        if draft is not None:
            self.draft = runner_of(draft, num_blocks=draft_blocks, num_tokens=draft_tokens)
            self.scheduler = DraftScheduler(
                self.draft,
                Limits(
                    max_sequences=64, max_lookahead=16, max_budget=64, prefill_chunk_tokens=16, lease_seconds=1000.0
                ),
                acceptance_prior=0.5,
                miss_exponent=0.5,
                compiler=compiler,
                clock_ns=self._clock,
            )
            self.attach()

    def _clock(self) -> int:
        self.now_ns += 1000
        return self.now_ns

    def _on_stall(self) -> None:
        self.stalls += 1
        self.scheduler.detach(self.stream)

    def attach(self) -> None:
        """A new stream to the speculator."""
        self.stream = self.scheduler.attach(self._to_verifier)
        stream = self.stream
        self.speculations.attach(lambda frame: self._to_speculator(stream, frame), 16, 64, self._modes)

    def detach(self) -> None:
        """The stream is lost."""
        self.scheduler.detach(self.stream)
        self.speculations.detach("lost by the test")

    def _to_speculator(self, stream: object, frame: VerifierFrame) -> None:
        self.frames.append(frame)
        self.scheduler.submit(self.stream, frame)

    def _to_verifier(self, frame: SpeculatorFrame) -> None:
        self.frames.append(frame)
        self.loop.post(lambda: self._receive(frame))

    def _receive(self, frame: SpeculatorFrame) -> None:
        now_ns = self._clock()
        self.speculations.receive_entries(frame, now_ns)
        self.speculations.receive_statuses(frame, now_ns)

    def submit(self, request: GenerationRequest) -> tuple[Sequence, Answer]:
        """Queue a request; its events gather in the answer."""
        answer = Answer()
        sequence = self._sequence(request, answer.events.append)
        self.loop.submit(sequence)
        return sequence, answer

    def _replay_of(self, request: GenerationRequest) -> Sequence:
        return self._sequence(request, lambda event: None)

    def _sequence(self, request: GenerationRequest, sink: EventSink) -> Sequence:
        constraint = request.sampling.constraint
        assert constraint is None or self._compiler is not None
        state = None if constraint is None or self._compiler is None else self._compiler.compile(constraint)
        if state is not None and request.resumption is not None:
            state.advance(request.resumption.token_ids)
        self._next_id += 1
        return Sequence(
            self._next_id,
            request,
            BlockTable(self.target.block_manager),
            sink,
            eos_token_ids=self._eos_token_ids,
            length_limit=min(self.target.context_limit, self._num_slots),
            constraint=state,
        )

    def _forward(self, chunks: Iterable[Chunk]) -> Logits:
        """The target's forward, and what the pace allows the speculator meanwhile."""
        if self.draft is not None and self.pace is Pace.FAST:
            while self.scheduler.step():
                pass
        elif self.draft is not None and self.pace is Pace.STEPWISE:
            self.scheduler.step()
        return self._target_forward(list(chunks))

    def step(self) -> None:
        """One step of the verifier."""
        idle_seconds = self.loop.step()
        if idle_seconds == 0:
            return
        if self.draft is not None and self.pace in (Pace.LATE, Pace.FAST, Pace.STEPWISE):
            while self.scheduler.step():
                pass
        if idle_seconds is not None:
            self.now_ns += int(idle_seconds * 1e9) if self.pace is Pace.HUNG else 1_000_000

    def run(self, *answers: Answer, max_steps: int = 20_000) -> None:
        """Step until all are over."""
        for _ in range(max_steps):
            if all(answer.is_over for answer in answers):
                self.loop.step()
                return
            self.step()
        raise AssertionError(f"no end after {max_steps} steps")

    def generate(self, request: GenerationRequest) -> Answer:
        """One request to its end."""
        _, answer = self.submit(request)
        self.run(answer)
        return answer

    def assert_all_blocks_free(self) -> None:
        """Every sequence ended: both pools must be whole again."""
        self.loop.step()
        assert self.target.block_manager.num_free == self.target.block_manager.num_blocks
        if self.draft is not None:
            while self.scheduler.step():
                pass
            assert self.draft.block_manager.num_free == self.draft.block_manager.num_blocks
