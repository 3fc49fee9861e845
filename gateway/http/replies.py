"""Documents of answers: one whole, or chunks. What is ours rides beside OpenAI's fields in `metrics` and `seed`."""

from __future__ import annotations

import contextlib
import time
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from gateway.http.shapes import Shape
from saguaro.answers import AnswerDelta, AnswerEvent, AnswerFinished, AnswerStarted
from saguaro.client import Answer
from saguaro.client.answer import AnswerBuilder
from saguaro.errors import InvalidRequest, SequenceFault
from saguaro.types import SpeculationReport

Document = dict[str, Any]

MAX_LOGPROBS = 1 << 18  # each takes some hundred bytes of a document, and more while it is made


class Reply:
    """One request's answer as OpenAI's clients read it. Use one of `whole` and `chunks`, once."""

    def __init__(self, shape: Shape, request_id: str, num_choices: int, *, wants_usage: bool) -> None:
        self._shape = shape
        self._id = f"{shape.id_prefix}-{request_id}"
        self._created = int(time.time())
        self._num_choices = num_choices
        self._wants_usage = wants_usage
        self._is_open = False
        # Clients measure their own times.
        self._builder = AnswerBuilder(0.0, num_choices)

    async def whole(self, events: AsyncGenerator[AnswerEvent]) -> Document:
        """The document, when all choices have ended."""
        deltas: defaultdict[int, list[AnswerDelta]] = defaultdict(list)
        num_logprobs = 0
        async with contextlib.aclosing(events):
            async for event in events:
                if (delta := self._builder.accept(event, 0.0)) is not None:
                    deltas[delta.choice].append(delta)
                    num_logprobs += sum(1 + len(item.top) for item in delta.logprobs or ())
                    _check_logprobs(num_logprobs)
        answers = self._ended()
        choices = [self._shape.choice(answer, deltas[answer.choice]) for answer in answers]
        return self._head(self._shape.whole) | {"choices": choices, "usage": usage(answers)} | _ours(answers)

    async def chunks(self, events: AsyncGenerator[AnswerEvent]) -> AsyncGenerator[Document]:
        """Pieces of the choices as they come; the last carries what is ours, and the usage where it is wanted."""
        async with contextlib.aclosing(events):
            async for event in events:
                for chunk in self._chunks_of(event):
                    yield chunk
        answers = self._ended()
        if self._wants_usage:
            yield self._head(self._shape.chunk) | {"choices": [], "usage": usage(answers)} | _ours(answers)

    def _chunks_of(self, event: AnswerEvent) -> Iterator[Document]:
        # What is said goes out and is not kept: a stream may be long.
        delta = event if isinstance(event, AnswerDelta) else self._builder.accept(event, 0.0)
        # Not before there is something to say: until the first chunk, what goes wrong has a status of its own.
        if not self._is_open and not isinstance(event, AnswerStarted):
            self._is_open = True
            for choice in range(self._num_choices):
                if (opening := self._shape.opening(choice)) is not None:
                    yield self._chunk(opening)
        if delta is not None and (delta.text or delta.logprobs or delta.tool_calls):
            yield self._chunk(self._shape.piece(delta))
        if isinstance(event, AnswerFinished):
            ending, answers = self._shape.ending(event.choice, event.reason), self._builder.results
            is_last_chunk = answers is not None and not self._wants_usage
            yield self._chunk(ending) | (_ours(self._ended()) if is_last_chunk else {})

    def _chunk(self, choice: Document) -> Document:
        # OpenAI's: where usage will come, each chunk before it says that it has none.
        without = {"usage": None} if self._wants_usage else {}
        return self._head(self._shape.chunk) | {"choices": [choice]} | without

    def _head(self, kind: str) -> Document:
        started = self._builder.started
        if started is None:
            raise SequenceFault("the answer has ended before it began")
        return {"id": self._id, "object": kind, "created": self._created, "model": started.model}

    def _ended(self) -> tuple[Answer, ...]:
        answers = self._builder.results
        if answers is None:
            raise SequenceFault("the answer has ended before all of its choices")
        return answers


def _check_logprobs(count: int) -> None:
    if count > MAX_LOGPROBS:
        raise InvalidRequest(
            "logprobs",
            f"the answer has over {MAX_LOGPROBS} log-probabilities, alternatives included, which is the most that one "
            "document has; set stream, a smaller max_tokens or n, or fewer alternatives",
        )


def usage(answers: Sequence[Answer]) -> Document:
    """Tokens of one request: its choices share the prompt."""
    prompt = answers[0].num_prompt_tokens
    generated = sum(answer.num_generated_tokens for answer in answers)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": generated,
        "total_tokens": prompt + generated,
        "prompt_tokens_details": {"cached_tokens": answers[0].num_cached_prompt_tokens},
    }


def speculative_decoding(reports: Sequence[SpeculationReport]) -> Document:
    """What speculation did for one request, its choices together; ratios are null where nothing was counted.

    `acceptance_histogram[k]` is the number of rounds that accepted k draft tokens, `rounds` has a list a choice; both
    are there where rounds were asked for.
    """
    steps = sum(report.num_rounds for report in reports)
    drafted = sum(report.num_draft_tokens for report in reports)
    accepted = sum(report.num_accepted_tokens for report in reports)
    hits = sum(report.cache_hits for report in reports)
    lookups = hits + sum(report.cache_misses + report.cache_late for report in reports)
    undrafted = next((report.reason for report in reports if not report.speculating), None)
    document: Document = {
        "mean_acceptance_length": _ratio(accepted + steps, steps),
        "draft_acceptance_rate": _ratio(accepted, drafted),
        "num_draft_tokens": drafted,
        "num_accepted_draft_tokens": accepted,
        "num_spec_steps": steps,
        "cache_hit_rate": _ratio(hits, lookups),
        "speculating": undrafted is None,
        "not_speculating_reason": undrafted,
    }
    rounds = [item for report in reports for item in report.rounds]
    if rounds:
        counts = Counter(item.num_accepted_tokens for item in rounds)
        document["acceptance_histogram"] = [counts[k] for k in range(max(counts) + 1)]
        document["rounds"] = [
            [asdict(item) | {"lookup": item.lookup.name.lower()} for item in report.rounds] for report in reports
        ]
    return document


def _ours(answers: Sequence[Answer]) -> Document:
    speculation = speculative_decoding([answer.speculation for answer in answers])
    speculation["acceptance_mode"] = answers[0].acceptance_mode.name.lower()
    return {"seed": answers[0].seed, "metrics": {"speculative_decoding": speculation}}


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None
