"""Chi-square tests of sampled laws. A test at FALSE_ALARM fails a right sampler once in 10,000 choices of its seeds.

Seeds are fixed, so a test that passes once passes always; the odds say how little its passing depended on luck.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chisquare  # type: ignore[import-untyped]

FALSE_ALARM = 1e-4
_LEAST_EXPECTED = 5.0


def assert_follows(
    counts: NDArray[np.int64],  # [cells]
    probabilities: NDArray[np.float64],  # [cells]
) -> None:
    """The counts are those of draws from the probabilities; cells with few expected draws are taken together."""
    assert counts.shape == probabilities.shape
    assert counts[probabilities == 0].sum() == 0, "drew what has no probability"
    expected = probabilities / probabilities.sum() * counts.sum()
    rare = expected < _LEAST_EXPECTED
    observed_cells, expected_cells = counts[~rare], expected[~rare]
    if expected[rare].sum() > 0:
        observed_cells = np.append(observed_cells, counts[rare].sum())
        expected_cells = np.append(expected_cells, expected[rare].sum())
    assert chisquare(observed_cells, expected_cells).pvalue > FALSE_ALARM
