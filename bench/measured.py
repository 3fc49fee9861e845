"""What one measurement is: answers as they arrived, and the turn that they shared."""

from __future__ import annotations

from dataclasses import dataclass

from saguaro.types import RoundReport, TokenIds


@dataclass(frozen=True, slots=True)
class Arrival:
    """Tokens that came at once; `at` in seconds of the clock that the whole answer uses."""

    at: float
    num_tokens: int


@dataclass(frozen=True, slots=True)
class TimedAnswer:
    """One answer and when its tokens came. `cached_share`: of the prompt, what the KV pool held already, 0..1."""

    sent_at: float
    arrivals: tuple[Arrival, ...]
    token_ids: TokenIds = ()
    cached_share: float = 0.0
    rounds: tuple[RoundReport, ...] = ()

    def __post_init__(self) -> None:
        if not self.arrivals:
            raise ValueError("an answer without tokens cannot be timed")

    @property
    def num_tokens(self) -> int:
        """All tokens of the answer."""
        return sum(item.num_tokens for item in self.arrivals)

    @property
    def ttft_seconds(self) -> float:
        """From the request to the first tokens."""
        return self.arrivals[0].at - self.sent_at


@dataclass(frozen=True, slots=True)
class Turn:
    """One mode's work on one batch of prompts, all asked at once: `answers` in the order of the prompts."""

    mode: str
    batch: int
    answers: tuple[TimedAnswer, ...]

    @property
    def num_tokens(self) -> int:
        """All tokens of all answers."""
        return sum(answer.num_tokens for answer in self.answers)

    @property
    def tokens_per_second(self) -> float:
        """Decoding speed of the batch: tokens after each answer's first arrival, from the first of these to the end.

        The prompts' prefill does not count. A turn whose answers came in one piece each counts whole.
        """
        first_at = min(answer.arrivals[0].at for answer in self.answers)
        ended_at = max(answer.arrivals[-1].at for answer in self.answers)
        tokens = self.num_tokens - sum(answer.arrivals[0].num_tokens for answer in self.answers)
        if tokens == 0:
            first_at, tokens = min(answer.sent_at for answer in self.answers), self.num_tokens
        return tokens / max(ended_at - first_at, 1e-9)
