"""The result of one answer, and how events become it: pure, shared by both clients."""

from __future__ import annotations

from dataclasses import dataclass, field

from saguaro.answers import AnswerDelta, AnswerEvent, AnswerFinished, AnswerPrompt, AnswerStarted
from saguaro.errors import SequenceFault
from saguaro.tools import ToolCall, joined_calls
from saguaro.types import AcceptanceMode, FinishReason, SpeculationReport, TokenIds, TokenLogprobs


@dataclass(frozen=True, slots=True)
class Answer:
    """One whole choice. Times are the client's own, from sending the request: `ttft_seconds` to its first token.

    `logprobs`: one a token, and `prompt_logprobs`: one for each prompt token but the first, where asked for. What the
    model called is in `tool_calls`, not in the text.
    """

    text: str
    token_ids: TokenIds
    prompt_token_ids: TokenIds
    request_id: str
    model: str
    seed: int
    acceptance_mode: AcceptanceMode
    choice: int
    finish_reason: FinishReason
    num_prompt_tokens: int
    num_generated_tokens: int
    num_cached_prompt_tokens: int
    speculation: SpeculationReport
    ttft_seconds: float
    elapsed_seconds: float
    num_first_tokens: int
    logprobs: tuple[TokenLogprobs, ...]
    prompt_logprobs: tuple[TokenLogprobs, ...]
    tool_calls: tuple[ToolCall, ...] = ()

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


@dataclass(slots=True)
class _Choice:
    """What came of one choice so far."""

    deltas: list[AnswerDelta] = field(default_factory=list)
    first_at: float | None = None


class AnswerBuilder:
    """Collects the events of one request. Times come in as seconds of one clock."""

    def __init__(self, sent_at: float, num_choices: int = 1) -> None:
        self._sent_at = sent_at
        self._num_choices = num_choices
        self._started: AnswerStarted | None = None
        self._prompt_logprobs: tuple[TokenLogprobs, ...] = ()
        self._choices: dict[int, _Choice] = {}
        self._finished: dict[int, Answer] = {}

    @property
    def started(self) -> AnswerStarted | None:
        """The first event, once it is here."""
        return self._started

    @property
    def results(self) -> tuple[Answer, ...] | None:
        """Every choice, in order, once all have ended."""
        if len(self._finished) < self._num_choices:
            return None
        return tuple(self._finished[index] for index in sorted(self._finished))

    def accept(self, event: AnswerEvent, now: float) -> AnswerDelta | None:
        """The delta to hand on, if the event has one."""
        match event:
            case AnswerStarted():
                self._started = event
                return None
            case AnswerPrompt():
                self._prompt_logprobs = event.logprobs
                return None
            case AnswerDelta():
                choice = self._choices.setdefault(event.choice, _Choice())
                if event.token_ids and choice.first_at is None:
                    choice.first_at = now
                choice.deltas.append(event)
                return event
            case AnswerFinished():
                choice = self._choices.setdefault(event.choice, _Choice())
                rest = None
                if event.text or event.tool_calls:
                    rest = AnswerDelta(event.text, (), (), choice=event.choice, tool_calls=event.tool_calls)
                    choice.deltas.append(rest)
                self._finished[event.choice] = self._build(event, choice, now)
                return rest

    def _build(self, finished: AnswerFinished, choice: _Choice, now: float) -> Answer:
        if self._started is None:
            raise SequenceFault("the gateway finished an answer that it had not started")
        first_at = now if choice.first_at is None else choice.first_at
        deltas = choice.deltas
        return Answer(
            text="".join(delta.text for delta in deltas),
            token_ids=tuple(token_id for delta in deltas for token_id in delta.token_ids),
            prompt_token_ids=self._started.prompt_token_ids,
            request_id=self._started.request_id,
            model=self._started.model,
            seed=self._started.seed,
            acceptance_mode=self._started.acceptance_mode,
            choice=finished.choice,
            finish_reason=finished.reason,
            num_prompt_tokens=finished.num_prompt_tokens,
            num_generated_tokens=finished.num_generated_tokens,
            num_cached_prompt_tokens=finished.num_cached_prompt_tokens,
            speculation=finished.speculation,
            ttft_seconds=first_at - self._sent_at,
            elapsed_seconds=now - self._sent_at,
            num_first_tokens=next((len(delta.token_ids) for delta in deltas if delta.token_ids), 0),
            logprobs=tuple(item for delta in deltas for item in delta.logprobs),
            prompt_logprobs=self._prompt_logprobs,
            tool_calls=joined_calls(tuple(call for delta in deltas for call in delta.tool_calls)),
        )
