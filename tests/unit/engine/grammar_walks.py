"""Answers of a model that knows nothing: random tokens among those that a constraint allows."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from saguaro.engine.grammar import ConstraintState, masks_for_runs

END_AFTER_TOKENS = 25  # from here on a walk looks for the end
_LIMIT_TOKENS = 600
_CLOSERS = ('"', "}", "]", '"}', "]}", ")")

Flags = NDArray[np.bool_]  # one a token


class Walker:
    """Walks with the tokenizer of a model folder."""

    def __init__(self, folder: Path) -> None:
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.vocab = self.tokenizer.get_vocab_size()
        texts = [self.tokenizer.decode([token_id]) for token_id in range(self.vocab)]
        self._closes: Flags = np.array([text in _CLOSERS for text in texts])
        self._shows: Flags = np.array([bool(text.strip()) for text in texts])

    def encode(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(text, add_special_tokens=False).ids)

    def decode(self, token_ids: list[int]) -> str:
        return str(self.tokenizer.decode(token_ids, skip_special_tokens=False))

    def allowed(self, state: ConstraintState) -> list[int]:
        return list(np.flatnonzero(self._allowed(state)).tolist())

    def walk(self, start: ConstraintState, seed: int) -> list[int]:
        """Token ids of one answer without its end-of-sequence id; `start` stays where it is."""
        state, choose, tokens = start.copy(), random.Random(seed), list[int]()
        eos_ids = list(state.vocabulary.eos_token_ids)
        while len(tokens) < _LIMIT_TOKENS:
            allowed = self._allowed(state)
            assert allowed[eos_ids].tolist() == [state.may_end] * len(eos_ids)
            allowed[eos_ids] = False
            assert allowed.any() != state.is_terminated
            late = len(tokens) > END_AFTER_TOKENS
            if state.is_terminated or (state.may_end and (late or choose.random() < 0.1)):
                state.advance([choose.choice(eos_ids)])
                assert self.allowed(state) == sorted(eos_ids)
                return tokens
            tokens.append(self._choice(allowed, choose, late=late))
            state.advance(tokens[-1:])
        raise AssertionError(f"no end after {_LIMIT_TOKENS} tokens: ...{self.decode(tokens)[-80:]!r}")

    def _allowed(self, state: ConstraintState) -> Flags:
        masks = masks_for_runs([(state, ())])
        assert masks is not None
        return masks.allowed(self.vocab)[0].numpy()

    def _choice(self, allowed: Flags, choose: random.Random, *, late: bool) -> int:
        """Late in a walk rather what closes than what opens or is blank."""
        if late:
            closers = allowed & self._closes
            if closers.any() and choose.random() < 0.7:
                allowed = closers
            elif (allowed & self._shows).any():
                allowed = allowed & self._shows
        return int(choose.choice(np.flatnonzero(allowed)))
