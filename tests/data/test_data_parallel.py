"""ordered_map preserves the order, keeps few items in flight, and raises an error instead of hanging if a
worker dies."""

from __future__ import annotations

import operator
import os
from concurrent.futures.process import BrokenProcessPool

import pytest

from tsm.plugin.data.build.parallel import ordered_map


@pytest.mark.parametrize("workers", [1, 2])
def test_order_and_window(workers):
    taken = 0

    def items():
        nonlocal taken
        for i in range(60):
            taken += 1
            yield i

    for done, result in enumerate(ordered_map(operator.mul, items(), workers, (3,)), 1):
        assert result == 3 * (done - 1)
        assert taken - done <= 2 * workers + 2
    assert done == taken == 60


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_in_a_worker_comes_through(workers):
    with pytest.raises(ZeroDivisionError):
        list(ordered_map(operator.floordiv, [1, 2, 3], workers, (0,)))


def test_a_worker_that_dies_is_an_error():
    with pytest.raises(BrokenProcessPool):
        list(ordered_map(os._exit, [3, 4, 5], 2))


def test_nothing_and_one():
    assert list(ordered_map(abs, [], 4)) == []
    assert list(ordered_map(abs, [-1], 4)) == [1]


@pytest.mark.parametrize("workers", [0, -1, 257])
def test_bad_number(workers):
    with pytest.raises(ValueError, match="--workers is"):
        list(ordered_map(abs, [1], workers))
