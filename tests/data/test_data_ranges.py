"""The ranges of a model's inputs in its training data, and what lies far outside them."""

from __future__ import annotations

import numpy as np
import pytest

from tsm.plugin.data.ranges import Ranges, note

TWO = Ranges(((-1.0, 1.0), (5.0, 5.0)))


def test_bytes():
    exact = Ranges(((-0.1, 1e30), (3.0, 3.0)))
    assert exact.dump() == b"-0.1 1e+30\n3.0 3.0\n"
    assert Ranges.parse(exact.dump(), "here", 2) == exact


DAMAGED = (
    b"|1 2\n|1 2\n3 2\n|1 2\nnan 2\n|1 2\n3 inf\n|1 2\n3\n|1 2\n3 4 5\n|1 2\n\xff 4\n|1 2\na 4\n"
)
DAMAGED += b"|1 2\n3 4\n5 6\n"


@pytest.mark.parametrize("data", DAMAGED.split(b"|"), ids=repr)
def test_damaged_bytes(data):
    with pytest.raises(ValueError, match=r"^here is .*; accepted: 2 pairs of a smallest"):
        Ranges.parse(data, "here", 2)


@pytest.mark.parametrize("value", [None, [[1, 2.0]], [["a", 2.0]], [(1.0, 2.0)], [[2.0, 1.0]]])
def test_damaged_entries_of_meta(value):
    with pytest.raises(ValueError, match="accepted: 1 pairs"):
        Ranges.of(value, 1, "meta.json")


@pytest.mark.parametrize(
    "x, far",
    [
        ([[0, 5]], ""),
        ([[2.9, 5.004], [-2.9, 4.996]], ""),
        ([[3.1, 5], [0, 5]], "a (0 to 3.1; in training -1 to 1)"),
        ([[-3.1, 5]], "a (-3.1 to -3.1; in training -1 to 1)"),
        ([[0, 5.006]], "b (5.01 to 5.01; in training 5 to 5)"),
        ([[40, 0]], "a (40 to 40; in training -1 to 1), b (0 to 0; in training 5 to 5)"),
    ],
    ids=str,
)
def test_outside(x, far):
    assert TWO.outside(np.array(x, np.float32), ["a", "b"]) == far


def test_names_and_length_of_the_message():
    assert TWO.outside(np.zeros((0, 2), np.float32), []) == ""
    many = Ranges(((0.0, 1.0),) * 7)
    found = many.outside(np.full((1, 7), 9, np.float32), [])
    assert found.startswith("number 1 (9 to 9; in training 0 to 1), number 2")
    assert found.count("number") == 5 and found.endswith(", ...")
    assert note("new.csv:2", "x").startswith("new.csv:2: far outside the training data")
