"""Do two samples of tokens follow one law? Pearson's chi-square test of homogeneity. Pure, without scipy."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

# Cells with fewer in both samples together are pooled: the test's law is the chi-square law only for expected counts
# of about five and more in each.
_LEAST_CELL = 10
_MAX_TERMS = 10_000
_TINY = 1e-300


@dataclass(frozen=True, slots=True)
class LawTest:
    """`p_value`: how often samples of one law would differ by as much. 1 where there was nothing to tell apart."""

    statistic: float
    degrees_of_freedom: int
    p_value: float


def same_law(one: Sequence[Hashable], other: Sequence[Hashable]) -> LawTest:
    """Tests two samples of outcomes; rare outcomes count as one. ValueError for an empty sample."""
    if not one or not other:
        raise ValueError(f"samples of {len(one)} and {len(other)} outcomes; both must have some")
    cells = _cells(Counter(one), Counter(other))
    # Sum over cells of (sqrt(m/n) a - sqrt(n/m) b)^2 / (a + b), which is Pearson's for two rows.
    ratio = math.sqrt(len(other) / len(one))
    statistic = sum((ratio * a - b / ratio) ** 2 / (a + b) for a, b in cells)
    degrees = len(cells) - 1
    return LawTest(statistic, degrees, chi_square_tail(statistic, degrees) if degrees else 1.0)


def common_prefixes(answers: Sequence[Sequence[int]], length: int) -> list[tuple[int, ...]]:
    """The first `length` tokens of each answer, fewer where it ends sooner: the n-grams whose law is tested."""
    return [tuple(answer[:length]) for answer in answers]


def _cells(one: Mapping[Hashable, int], other: Mapping[Hashable, int]) -> list[tuple[int, int]]:
    """Counts in both samples, rare outcomes pooled into one cell, or into the smallest where they are too few."""
    pairs = sorted(((one.get(key, 0), other.get(key, 0)) for key in {**one, **other}), key=sum, reverse=True)
    frequent = [pair for pair in pairs if sum(pair) >= _LEAST_CELL]
    rare = [pair for pair in pairs if sum(pair) < _LEAST_CELL]
    if not rare:
        return frequent
    pooled = (sum(a for a, _ in rare), sum(b for _, b in rare))
    if frequent and sum(pooled) < _LEAST_CELL:
        last = frequent.pop()
        pooled = (pooled[0] + last[0], pooled[1] + last[1])
    return [*frequent, pooled]


def chi_square_tail(statistic: float, degrees_of_freedom: int) -> float:
    """P(X >= statistic) for X of the chi-square law: the regularised upper incomplete gamma function Q(k/2, x/2).

    By its series below the mean and its continued fraction above (Abramowitz and Stegun 6.5.29 and 6.5.31).
    """
    a, x = degrees_of_freedom / 2, statistic / 2
    if x <= 0:
        return 1.0
    scale = math.exp(a * math.log(x) - x - math.lgamma(a))
    return 1 - scale * _series(a, x) if x < a + 1 else scale * _continued_fraction(a, x)


def _series(a: float, x: float) -> float:
    term = total = 1 / a
    for n in range(1, _MAX_TERMS):
        term *= x / (a + n)
        total += term
        if term < total * 1e-15:
            break
    return total


def _continued_fraction(a: float, x: float) -> float:
    """Lentz's method."""
    b = x + 1 - a
    c, d = 1 / _TINY, 1 / b
    value = d
    for n in range(1, _MAX_TERMS):
        numerator = -n * (n - a)
        b += 2
        d = 1 / _nonzero(numerator * d + b)
        c = _nonzero(b + numerator / c)
        value *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return value


def _nonzero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY
