"""Answers coloured by where their tokens came from."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

from saguaro.answers import AnswerDelta
from saguaro.types import TokenProvenance

# What a reader tells apart, and how it looks.
KINDS = {"accepted": "green", "fallback": "yellow", "bonus": "cyan", "plain": ""}
_KIND_OF = {
    TokenProvenance.CACHED_DRAFT: "accepted",  # drafted ahead of time
    TokenProvenance.LATE_DRAFT: "fallback",
    TokenProvenance.NGRAM_DRAFT: "fallback",
    TokenProvenance.NEIGHBOUR_DRAFT: "fallback",
    TokenProvenance.BONUS: "bonus",
    TokenProvenance.PLAIN: "plain",
}


class ProvenancePrinter:
    """Prints the deltas of one answer, which must have text lengths, and counts its tokens."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._counts: Counter[str] = Counter()

    def print(self, delta: AnswerDelta) -> None:
        """More of the answer."""
        self._counts.update(_KIND_OF[item] for item in delta.provenance)
        for text, kind in _pieces(delta):
            self._console.print(Text(text, KINDS[kind]), end="", soft_wrap=True)

    def summary(self) -> Text:
        """How many tokens came from where, in their colours: the legend."""
        counts = (Text(f"{self._counts[kind]} {kind}", style) for kind, style in KINDS.items())
        return Text("tokens: ") + Text(", ").join(counts)


def _pieces(delta: AnswerDelta) -> Iterator[tuple[str, str]]:
    """Text and its kind; neighbours of one kind together. Text without a token of its own is the last one's."""
    kinds = [_KIND_OF[item] for item in delta.provenance] or ["plain"]
    ends = list(itertools.accumulate(delta.text_lengths))
    start = 0
    for kind, items in itertools.groupby(enumerate(kinds), key=lambda item: item[1]):
        *_, (last, _kind) = items
        end = ends[last] if last < len(kinds) - 1 else len(delta.text)
        if end > start:
            yield delta.text[start:end], kind
        start = end
