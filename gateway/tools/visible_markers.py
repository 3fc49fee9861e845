"""Some vocabularies hold the markers of calls as special tokens, which print nothing: here they print."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from gateway.detokenize import Decoder


class VisibleMarkers:
    """`decoder`, but the tokens in `markers` (id to text) print their text."""

    def __init__(self, decoder: Decoder, markers: Mapping[int, str]) -> None:
        self._decoder = decoder
        self._markers = markers
        self.special_ids = decoder.special_ids - markers.keys()

    def decode(self, token_ids: list[int]) -> str:
        """Text of the ids; other special tokens print nothing."""
        return "".join(
            "".join(self._markers[token_id] for token_id in ids) if is_marker else self._decoder.decode(list(ids))
            for is_marker, ids in itertools.groupby(token_ids, self._markers.__contains__)
        )

    def token(self, token_id: int) -> str:
        """The token as the vocabulary spells it."""
        return self._decoder.token(token_id)

    def token_bytes(self, token_id: int) -> bytes:
        """What the token adds to a text."""
        return self._decoder.token_bytes(token_id)
