"""Fixed policies to set beside the automatic one: K and B of every combination, and from which batch no miss waits."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

from saguaro.errors import ConfigurationError

# How a user writes them, and what each is where he does not.
_KEYS = ("K", "B", "b*")


@dataclass(frozen=True, slots=True)
class FixedSetting:
    """Always `lookahead` draft tokens and `budget` outcomes; a miss waits while fewer than `break_even_batch` run."""

    lookahead: int
    budget: int
    break_even_batch: str = "inf"

    @property
    def policy(self) -> str:
        """As a verifier takes it; also its name among the modes."""
        return f"fixed:{self.lookahead},{self.budget},{self.break_even_batch}"


def parse_sweep(text: str, *, lookahead: int, budget: int) -> tuple[FixedSetting, ...]:
    """ "K=4,6,8 B=16,24 b*=0,inf" as all combinations; what is not named is `lookahead`, `budget`, inf. "" as none.

    B=0 guesses no outcome: draft and target in turn. Raises ConfigurationError for another form.
    """
    if not text.strip():
        return ()
    values: dict[str, tuple[str, ...]] = {"K": (str(lookahead),), "B": (str(budget),), "b*": ("inf",)}
    for word in text.split():
        key, equals, listed = word.partition("=")
        if key not in _KEYS or not equals:
            raise ConfigurationError(f'--sweep has "{word}"; it takes {_example()}')
        values[key] = tuple(listed.split(","))
    return tuple(_setting(dict(zip(_KEYS, chosen, strict=True))) for chosen in itertools.product(*values.values()))


def _setting(chosen: Mapping[str, str]) -> FixedSetting:
    for key in ("K", "B"):
        if not chosen[key].isdecimal():
            raise ConfigurationError(f"--sweep has {key}={chosen[key]}; it takes {_example()}")
    threshold = chosen["b*"]
    if threshold != "inf" and not threshold.isdecimal():
        raise ConfigurationError(f"--sweep has b*={threshold}; it takes {_example()}")
    return FixedSetting(int(chosen["K"]), int(chosen["B"]), threshold)


def _example() -> str:
    return 'K, B and b* as in "K=4,6,8 B=16,24 b*=0,inf"'
