"""How often the target accepts the draft token at each place of a speculation, as measured."""

from __future__ import annotations

_DECAY = 0.99  # a round: the last hundred rounds or so count
_PRIOR_TRIALS = 4.0


class AcceptanceProfile:
    """Decayed acceptance rate a_i of the i-th draft token, given that those before it were accepted.

    Where little is known, a place leans on the places before it, and the first one on the prior: acceptance rates of
    neighbouring places are alike.
    """

    def __init__(self, max_lookahead: int, prior: float = 0.5) -> None:
        self._prior = prior
        self._accepted = [0.0] * max_lookahead
        self._trials = [0.0] * max_lookahead

    def observe(self, num_accepted: int, num_draft: int) -> None:
        """A round: each accepted token was a success, the first refused one a failure; the rest says nothing."""
        for place in range(min(num_accepted + 1, num_draft, len(self._trials))):
            self._trials[place] = self._trials[place] * _DECAY + 1.0
            self._accepted[place] = self._accepted[place] * _DECAY + (place < num_accepted)

    def rates(self, lookahead: int) -> list[float]:
        """a_1 .. a_K."""
        rates = []
        belief = self._prior
        for place in range(lookahead):
            known = min(place, len(self._trials) - 1)
            trials, accepted = self._trials[known], self._accepted[known]
            belief = (accepted + belief * _PRIOR_TRIALS) / (trials + _PRIOR_TRIALS)
            rates.append(belief)
        return rates

    @property
    def rate(self) -> float:
        """Share of accepted tokens over all places: a of the geometric laws."""
        trials, accepted = sum(self._trials), sum(self._accepted)
        return (accepted + self._prior * _PRIOR_TRIALS) / (trials + _PRIOR_TRIALS)

    def outcome_probabilities(self, lookahead: int) -> list[float]:
        """P(exactly k accepted) for k = 0 .. K."""
        probabilities, reached = [], 1.0
        for rate in self.rates(lookahead):
            probabilities.append(reached * (1.0 - rate))
            reached *= rate
        return [*probabilities, reached]

    def expected_tokens(self, lookahead: int) -> float:
        """Tokens that a round with K draft tokens emits on average, the bonus token included."""
        return self.expected_tokens_up_to(lookahead)[-1]

    def expected_tokens_up_to(self, lookahead: int) -> list[float]:
        """The same for each of 0 .. K draft tokens."""
        totals, reached = [1.0], 1.0
        for rate in self.rates(lookahead):
            reached *= rate
            totals.append(totals[-1] + reached)
        return totals
