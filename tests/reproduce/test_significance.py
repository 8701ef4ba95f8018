"""The intervals behind "ahead": Student's t for few seeds, signed ranks from 6 on."""

import itertools

import numpy as np
import pytest

from tsm.plugin.reproduce.paired import Difference
from tsm.plugin.reproduce.significance import RANKED, _critical, decided, interval


def differences(*values: float) -> list[Difference]:
    return [Difference(seed, value) for seed, value in enumerate(values, 1)]


def test_few_seeds_use_students_t():
    assert interval([1.0]) == (1.0, 1.0)
    assert interval([1.0, 2.0, 3.0]) == pytest.approx((2 - 2.4841, 2 + 2.4841), abs=1e-4)


@pytest.mark.parametrize("count", [5, 6, 8, 10])
def test_critical_sums_agree_with_all_signs(count):
    sums = [
        sum(rank for rank, sign in enumerate(signs, 1) if sign)
        for signs in itertools.product((0, 1), repeat=count)
    ]
    critical = _critical(count)
    assert np.mean(np.array(sums) <= critical) <= 0.025 < np.mean(np.array(sums) <= critical + 1)
    assert critical == {5: -1, 6: 0, 8: 3, 10: 8}[count]


def test_signed_ranks_agree_with_scipy():
    from scipy.stats import wilcoxon

    random = np.random.default_rng(0)
    for _ in range(200):
        values = random.normal(0.8, 1, random.integers(RANKED, 13)).tolist()
        exact = wilcoxon(values, method="exact").pvalue <= 0.05
        assert bool(decided(differences(*values))) == exact


def test_a_failed_run_counts_with_its_rank_only():
    values = (2.6, 1.0, 1.3, 35.1, 0.2)
    assert decided(differences(*values)) == 0
    assert decided(differences(*values, 0.5)) == 1
    assert decided(differences(*(-value for value in values), -0.5)) == -1
    assert decided(differences(*values, 0.0)) == 0
    assert interval([*values, 0.5]) == (0.2, 35.1)


def test_an_unknown_difference_counts_against_both_sides():
    known = differences(*range(1, 10))
    assert decided(known) == decided([*known, Difference(10, 3.0, "b")]) == 1
    assert decided([*known, Difference(10, -1.0, "a")]) == 0
    assert decided([*known[:6], Difference(10, 0.0, "neither")]) == 0
    assert decided([*known, *known, Difference(10, 0.0, "neither")]) == 1
