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


def bound(value: float) -> Difference:
    return Difference(0, value, "b not within 9 updates" if value else "neither within 9 updates")


def test_students_t_takes_no_bounds():
    """Replacing one by a stronger one would widen the interval, so it would undo the decision."""
    exact = (-78_982, -76_636, -65_688)
    assert decided(differences(*exact)) == -1
    for weakest in (-65_688, -400_000):
        assert decided([bound(value) for value in (*exact[:2], weakest)]) == 0
    assert decided([*differences(*exact[:2]), bound(-65_688)]) == 0


def test_a_stronger_bound_never_undoes_a_decision():
    random = np.random.default_rng(0)
    sides = set()
    for _ in range(2000):
        values = random.normal(random.choice([-2, 0, 2]), 1, random.integers(1, 11)).tolist()
        pairs = [bound(v) if random.random() < 0.3 else Difference(0, v) for v in values]
        i = random.integers(len(pairs))
        stronger = bound(values[i] * (1 + random.exponential(5)))
        if pairs[i].bound and (side := decided(pairs)):
            sides.add(side)
            assert decided([*pairs[:i], stronger, *pairs[i + 1 :]]) == side
    assert sides == {1, -1}


def test_an_unknown_difference_never_helps():
    random = np.random.default_rng(0)
    lost = 0
    for _ in range(2000):
        pairs = differences(*random.normal(1, 1, random.integers(1, 14)).tolist())
        with_it = decided([*pairs, bound(0)])
        assert with_it in (0, decided(pairs))
        assert not (with_it and len(pairs) < RANKED)
        lost += with_it != decided(pairs)
    assert lost


def test_ranks_take_a_bound_for_its_value_or_for_the_worst():
    known = differences(*range(1, 10))
    assert decided(known) == decided([*known, bound(3)]) == 1
    assert decided([*known, bound(-1)]) == 0
    assert decided([*known[:6], bound(0)]) == 0
    assert decided([*known, *known, bound(0)]) == decided([*known, *known, bound(-1)]) == 1
