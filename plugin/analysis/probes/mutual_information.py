"""Mutual information of tokens a given distance apart, in bits.

    I(d) = sum_ab p_d(a, b) log2( p_d(a, b) / (p(a) p(b)) )

An estimate from counts is too large by about (number of distinct pairs) / (2 N ln 2) for N pairs, which for
words exceeds the true value. So the estimate for shuffled texts, whose true mutual information is 0, is
subtracted. The result is called the excess. The spread among shuffled texts is the noise floor.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...common.rng import permutation

SHUFFLES = 4


def plug_in(tokens: np.ndarray, distance: int) -> float:
    """The estimate from counts, including its bias."""
    a, b = tokens[:-distance], tokens[distance:]
    joint = _entropy(a * (int(tokens.max()) + 1) + b)
    return _entropy(a) + _entropy(b) - joint


def excess_information(
    tokens: np.ndarray, distances: Sequence[int], seed: int = 0
) -> tuple[np.ndarray, float]:
    """Returns I(d) minus its mean over shuffled texts, for each distance, and the spread among the shuffled
    texts."""
    nothing = [
        plug_in(tokens[permutation(len(tokens), seed, "mutual-information", i)], 1)
        for i in range(SHUFFLES)
    ]
    values = np.array([plug_in(tokens, d) for d in distances]) - np.mean(nothing)
    return values, float(max(nothing) - min(nothing))


def _entropy(values: np.ndarray) -> float:
    _, counts = np.unique(values, return_counts=True)
    p = counts / len(values)
    return float(-(p * np.log2(p)).sum())
