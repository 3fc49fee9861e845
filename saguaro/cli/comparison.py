"""One request, answered with speculation and without: are the tokens the same, and if not, how close was it? Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from saguaro.client import Answer
from saguaro.types import TokenIds, TokenLogprobs

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first token that differs.

    A token is None where its answer had ended. A gap is how far a run's own token lay above the other run's token, in
    the log-probabilities (so also the logits) of that run; None where it was not told, or the other token was not among
    the alternatives that were. Gaps near 1e-5, in float32, are rounding.
    """

    prompt: int
    choice: int
    position: int  # in the answer, from 0
    speculated: int | None
    plain: int | None
    speculated_gap: float | None
    plain_gap: float | None

    def __str__(self) -> str:
        return (
            f"prompt {self.prompt}, choice {self.choice}, token {self.position}: "
            f"{_token(self.speculated)} with speculation ({_gap(self.speculated_gap)}), "
            f"{_token(self.plain)} without ({_gap(self.plain_gap)})"
        )


def first_divergence(prompt: int, speculated: Answer, plain: Answer) -> Divergence | None:
    """None where the two are equal, ends included."""
    position = _first_difference(speculated.token_ids, plain.token_ids)
    if position is None:
        return None
    one, other = _at(speculated.token_ids, position), _at(plain.token_ids, position)
    return Divergence(
        prompt=prompt,
        choice=plain.choice,
        position=position,
        speculated=one,
        plain=other,
        speculated_gap=_gap_to(other, _at(speculated.logprobs, position)),
        plain_gap=_gap_to(one, _at(plain.logprobs, position)),
    )


def _first_difference(one: TokenIds, other: TokenIds) -> int | None:
    for position, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return position
    return None if len(one) == len(other) else min(len(one), len(other))


def _gap_to(other: int | None, chosen: TokenLogprobs | None) -> float | None:
    alternatives = {} if chosen is None else dict(chosen.top)
    if chosen is None or other is None or other not in alternatives:
        return None
    return chosen.logprob - alternatives[other]


def _at(items: Sequence[_T], index: int) -> _T | None:
    return items[index] if index < len(items) else None


def _token(token: int | None) -> str:
    return "the end" if token is None else f"token {token}"


def _gap(gap: float | None) -> str:
    return "gap unknown" if gap is None else f"gap {gap:.2g}"
