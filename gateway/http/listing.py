"""Which tokens the log-probabilities of a choice list, and where in its text each begins."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Protocol

from saguaro.answers import AnswerDelta
from saguaro.types import TokenLogprobs


class Vocabulary(Protocol):
    """What listing needs to know of a model's tokens."""

    special_ids: frozenset[int]

    def token_bytes(self, token_id: int) -> bytes:
        """What the token adds to a text; special tokens, which print nothing, as the vocabulary spells them."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A token whose text begins at character `offset` of the choice's text, or would, were it printed.

    Tokens that are parts of one character all begin where it does.
    """

    token_id: int
    logprobs: TokenLogprobs
    offset: int


class Listing:
    """The tokens of one request's choices, each listed once the text that it begins is out.

    So tokens of a stop string, which the text ends before, are not listed, whichever piece they came in.
    """

    def __init__(self, special_ids: frozenset[int]) -> None:
        self._special_ids = special_ids
        self._waiting: defaultdict[int, deque[Listed]] = defaultdict(deque)
        self._num_characters: defaultdict[int, int] = defaultdict(int)

    def take(self, delta: AnswerDelta) -> list[Listed]:
        """What can be listed now that the delta came."""
        waiting = self._waiting[delta.choice]
        self._num_characters[delta.choice] += len(delta.text)
        # An answer with calls has no offsets, since what it prints is not all text: nothing waits.
        offsets = delta.text_offsets or (-1,) * len(delta.logprobs)
        if delta.logprobs:
            waiting.extend(map(Listed, delta.token_ids, delta.logprobs, offsets))
        listed: list[Listed] = []
        while waiting and waiting[0].offset < self._num_characters[delta.choice]:
            listed.append(waiting.popleft())
        return listed

    def end(self, choice: int) -> list[Listed]:
        """The rest at the end of the choice: special tokens, of which text has nothing."""
        most = self._num_characters[choice]
        rest = self._waiting.pop(choice, ())
        return [replace(item, offset=most) for item in rest if item.token_id in self._special_ids]

    def whole(self, choice: int, deltas: Iterable[AnswerDelta]) -> list[Listed]:
        """All that a choice lists that came in these deltas."""
        return [item for delta in deltas for item in self.take(delta)] + self.end(choice)


def shown(spelled: bytes) -> str:
    """The token as text; one that is a part of a character as OpenAI writes it: "bytes:\\xe2\\x80"."""
    try:
        return spelled.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in spelled)
