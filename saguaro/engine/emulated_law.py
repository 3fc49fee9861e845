"""Which tokens emulated models choose: functions of the prefix's hash alone, with exactly known laws.

A prefix has a list of candidates c_0, c_1, ..: distinct words in a random order. The target ranks them so, and c_0 is
its token at temperature 0. The draft's order differs in the place of c_0 alone: it is first with probability a;
otherwise c_1 is first, and c_0 has place R among the others, with P(R > F) = (1 + F)^-r, the miss law of
`saguaro.core.fan_out`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from saguaro.emulation.profile import Profile, Role
from saguaro.emulation.tokenizer import EOS_ID, FIRST_WORD_ID
from saguaro.engine.emulated_memory import Words, splitmix64

NUM_CANDIDATES = 64
# Logits by rank; a power law, so that temperature finds a few tokens to choose from: at 1 the first has p = 0.83.
_LOGIT_EXPONENT = 3.0
# Of all tokens that are no candidates: at temperature 1 their whole mass is below 1e-7.
FLOOR_LOGIT = -30.0
_STREAMS = np.arange(4, dtype=np.uint64)[:, None] << np.uint64(60)


class PairLaw:
    """The two models of a profile."""

    def __init__(self, profile: Profile) -> None:
        self._num_words = profile.vocabulary - FIRST_WORD_ID
        # Steps that reach every word before they come back to the first.
        steps = np.arange(1, self._num_words)
        self._steps = steps[np.gcd(steps, self._num_words) == 1]
        self._acceptance_rate = profile.acceptance_rate
        self._rank_exponent = profile.rank_exponent
        self._eos_probability = profile.eos_probability
        self._columns = np.arange(NUM_CANDIDATES)
        ladder = -_LOGIT_EXPONENT * np.log1p(self._columns)
        self._logit_of_rank = np.append(ladder, FLOOR_LOGIT).astype(np.float32)

    def logits(
        self, hashes: Words, role: Role
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:  # both [R, NUM_CANDIDATES]
        """Candidates of each of the R prefixes, best for the target first, and the logits that the model gives them."""
        draws = splitmix64(hashes ^ _STREAMS)
        token_ids = self._candidates(draws[0], draws[1])
        if role is Role.TARGET:
            return token_ids, np.broadcast_to(self._logit_of_rank[:NUM_CANDIDATES], token_ids.shape)
        place = self._place_of_the_target_token(draws[2], draws[3])[:, None]
        ranks = self._columns - (self._columns <= place)
        ranks[:, :1] = place
        return token_ids, self._logit_of_rank[ranks]

    def _candidates(self, walk: Words, ending: Words) -> npt.NDArray[np.int64]:  # [R, NUM_CANDIDATES]
        """A walk through the words; its first step may be the end of the answer instead."""
        start = (walk >> np.uint64(32)).astype(np.int64) % self._num_words
        step: npt.NDArray[np.int64] = self._steps[(walk & np.uint64(0xFFFF_FFFF)).astype(np.int64) % len(self._steps)]
        token_ids: npt.NDArray[np.int64] = (start[:, None] + step[:, None] * self._columns) % self._num_words
        token_ids += FIRST_WORD_ID
        if self._eos_probability:
            token_ids[_uniform(ending) < self._eos_probability, 0] = EOS_ID
        return token_ids

    def _place_of_the_target_token(self, agreeing: Words, rank: Words) -> npt.NDArray[np.int64]:  # [R]
        """How many tokens the draft prefers to c_0; NUM_CANDIDATES stands for that many and more."""
        place = np.ceil(_uniform(rank) ** (-1.0 / self._rank_exponent)) - 1.0
        place[_uniform(agreeing) < self._acceptance_rate] = 0.0
        return np.minimum(place, NUM_CANDIDATES).astype(np.int64)


def _uniform(words: Words) -> npt.NDArray[np.float64]:
    """In (0, 1): (m + 1/2) / 2^52 with 52 random bits m."""
    return ((words >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
