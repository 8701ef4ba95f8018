"""Two models on the same sequences: the confidence interval of their difference."""

import numpy as np
import pytest

from tsm.plugin.reproduce.paired import interval


def sequences(bits: np.ndarray) -> np.ndarray:
    return np.stack([100 * bits, np.full(len(bits), 100.0)], axis=1)


def test_what_both_find_hard_cancels():
    """Sequences differ by several bits, but the models by 0.1 bits everywhere: the interval is narrow and
    excludes 0."""
    hard = np.linspace(3, 7, 200)
    low, high = interval(sequences(hard + 0.1), sequences(hard), samples=500)
    ratio = 2**0.1 - 1
    assert 0 < low < high and high < 2 * low
    assert low < ratio * 2 ** hard.mean() < high


def test_equal_models_differ_by_nothing():
    hard = np.linspace(3, 7, 50)
    assert interval(sequences(hard), sequences(hard), samples=50) == (0.0, 0.0)


def test_a_difference_of_either_sign_is_not_significant():
    hard = np.full(400, 5.0)
    noise = np.where(np.arange(400) % 2, 0.5, -0.5)
    low, high = interval(sequences(hard + noise), sequences(hard), samples=500)
    assert low < 0 < high


def test_other_texts_are_refused():
    with pytest.raises(ValueError, match="same text"):
        interval(sequences(np.ones(3)), sequences(np.ones(4)))
