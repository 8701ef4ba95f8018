"""The time limit for compiling the eager rival."""

from __future__ import annotations

import time

import pytest

from tsm.benchmarks.eager_cuda import TooLong, _at_most


def test_the_alarm_comes_through_what_catches_exceptions():
    """The alarm must get through, although torch's compiler catches exceptions to wrap them in its own."""
    with pytest.raises(TooLong), _at_most(0.05):
        for _ in range(500):
            try:
                time.sleep(0.01)
            except Exception as error:
                raise RuntimeError("wrapped") from error


def test_in_time_there_is_no_alarm():
    with _at_most(0.05):
        pass
    time.sleep(0.06)
