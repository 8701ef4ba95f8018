"""The n-gram baseline compared with its formula, implemented with plain dictionaries."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest

from tsm.plugin.evaluation.n_gram import n_gram_bits

V = 3


def bits(train: list[int], test: list[int], order: int) -> float:
    total = 0.0
    for t, token in enumerate(test):
        p = 1 / V
        for k in range(1, order + 1):
            context = tuple(test[t - k + 1 : t])
            if t < k - 1:
                break
            after = Counter(
                train[i + k - 1]
                for i in range(len(train) - k + 1)
                if tuple(train[i : i + k - 1]) == context
            )
            if after:
                seen = len(after)
                p = (after[token] + seen * p) / (sum(after.values()) + seen)
        total -= math.log2(p)
    return total / len(test)


@pytest.mark.parametrize("order", [1, 2, 4])
def test_witten_bell(order):
    rng = np.random.default_rng(order)
    train, test = rng.integers(0, V, 40), rng.integers(0, V, 25)
    train[::3], test[2] = 0, 2
    found = n_gram_bits(train, test, V, order)
    assert found == pytest.approx(bits(train.tolist(), test.tolist(), order), rel=1e-12)


def test_a_text_that_repeats_costs_next_to_nothing():
    text = np.tile(np.arange(V), 1000)
    assert n_gram_bits(text, text, V, 3) < 0.01


def test_a_context_that_no_integer_numbers_is_refused():
    with pytest.raises(ValueError, match=r"order is 12; accepted for 50 symbols: 1 to 11"):
        n_gram_bits(np.zeros(3), np.zeros(3), 50, 12)
