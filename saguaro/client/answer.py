"""The result of one answer, and how events become it: pure, shared by both clients."""

from __future__ import annotations

from dataclasses import dataclass

from saguaro.answers import AnswerDelta, AnswerEvent, AnswerFinished, AnswerStarted
from saguaro.errors import SequenceFault
from saguaro.types import FinishReason, SpeculationReport, TokenIds


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer. Times are the client's own, from sending the request: `ttft_seconds` to the first token."""

    text: str
    token_ids: TokenIds
    prompt_token_ids: TokenIds
    request_id: str
    model: str
    seed: int
    finish_reason: FinishReason
    num_prompt_tokens: int
    num_generated_tokens: int
    num_cached_prompt_tokens: int
    speculation: SpeculationReport
    ttft_seconds: float
    elapsed_seconds: float
    num_first_tokens: int

    @property
    def tokens_per_second(self) -> float:
        """Decoding speed: tokens after the first piece over the time after it, so that the prompt's prefill, which
        is `ttft_seconds`, does not count. An answer of one piece counts whole.
        """
        tokens, seconds = self.num_generated_tokens - self.num_first_tokens, self.elapsed_seconds - self.ttft_seconds
        if tokens == 0:
            tokens, seconds = self.num_generated_tokens, self.elapsed_seconds
        return tokens / seconds if seconds > 0 else 0.0

    @property
    def mean_acceptance_length(self) -> float | None:
        """Tokens emitted a round, k + 1 on average; None where no round ran."""
        rounds = self.speculation.num_rounds
        return (self.speculation.num_accepted_tokens + rounds) / rounds if rounds else None


class AnswerBuilder:
    """Collects the events of one answer. Times come in as seconds of one clock."""

    def __init__(self, sent_at: float) -> None:
        self._sent_at = sent_at
        self._started: AnswerStarted | None = None
        self._deltas: list[AnswerDelta] = []
        self._first_at: float | None = None
        self.result: Answer | None = None

    @property
    def started(self) -> AnswerStarted | None:
        """The first event, once it is here."""
        return self._started

    def accept(self, event: AnswerEvent, now: float) -> AnswerDelta | None:
        """The delta to hand on, if the event has one; sets `result` at the end."""
        match event:
            case AnswerStarted():
                self._started = event
                return None
            case AnswerDelta():
                if event.token_ids and self._first_at is None:
                    self._first_at = now
                self._deltas.append(event)
                return event
            case AnswerFinished():
                rest = AnswerDelta(event.text, (), ()) if event.text else None
                if rest is not None:
                    self._deltas.append(rest)
                self.result = self._build(event, now)
                return rest

    def _build(self, finished: AnswerFinished, now: float) -> Answer:
        if self._started is None:
            raise SequenceFault("the gateway finished an answer that it had not started")
        first_at = now if self._first_at is None else self._first_at
        return Answer(
            text="".join(delta.text for delta in self._deltas),
            token_ids=tuple(token_id for delta in self._deltas for token_id in delta.token_ids),
            prompt_token_ids=self._started.prompt_token_ids,
            request_id=self._started.request_id,
            model=self._started.model,
            seed=self._started.seed,
            finish_reason=finished.reason,
            num_prompt_tokens=finished.num_prompt_tokens,
            num_generated_tokens=finished.num_generated_tokens,
            num_cached_prompt_tokens=finished.num_cached_prompt_tokens,
            speculation=finished.speculation,
            ttft_seconds=first_at - self._sent_at,
            elapsed_seconds=now - self._sent_at,
            num_first_tokens=next((len(delta.token_ids) for delta in self._deltas if delta.token_ids), 0),
        )
