"""The 95% interval of the difference between two models, from one value per seed.

fewer than 6 seeds   Student's t around the mean; with a bound (paired.py) among them, nothing is decided
6 seeds or more      the exact signed-rank test (Wilcoxon), which assumes no normal distribution: a run that
                     fails cannot widen its interval as it widens Student's. 5 seeds are too few for it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from .paired import Difference, mean_and_error

RANKED = 6  # seeds from which signed ranks are used
TAIL = 0.025


def decided(pairs: Sequence[Difference]) -> int:
    """The side of 0 on which the difference is, 1 or -1; 0 if that is undecided. For ranks, a bound in favour
    of a side counts with its value, and any other one, like an unknown difference, as if infinitely far
    against it. So a stronger bound never undoes a decision."""
    if sum(not one.unknown for one in pairs) < RANKED and any(one.bound for one in pairs):
        return 0
    for side in (1, -1):
        values = [
            side * one.value if side * one.value > 0 or not one.bound else -math.inf
            for one in pairs
        ]
        if interval(values)[0] > 0:
            return side
    return 0


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Both ends. A single value, which a rule must allow, is both."""
    return ranks(values) if len(values) >= RANKED else student(values)


def student(values: Sequence[float]) -> tuple[float, float]:
    mean, error = mean_and_error(values)
    margin = 0.0 if error is None else error * quantile(len(values) - 1)
    return mean - margin, mean + margin


def ranks(values: Sequence[float]) -> tuple[float, float]:
    """The differences that the signed-rank test does not reject, found from the averages of all pairs."""
    averages = sorted((a + b) / 2 for i, a in enumerate(values) for b in values[i:])
    skipped = _critical(len(values))
    return averages[skipped], averages[-1 - skipped]


def _critical(count: int) -> int:
    """The greatest sum of ranks whose probability, of this sum or a smaller one, is at most TAIL."""
    ways = [1]  # of choosing ranks with each sum
    for rank in range(1, count + 1):
        ways = [
            sum(ways[at] for at in (total, total - rank) if 0 <= at < len(ways))
            for total in range(len(ways) + rank)
        ]
    total = below = 0
    while below + ways[total] <= TAIL * 2**count:
        below += ways[total]
        total += 1
    return total - 1


def quantile(freedom: int) -> float:
    """Student's t, two-sided 95%."""
    from scipy.stats import t

    return float(t.ppf(1 - TAIL, freedom))
