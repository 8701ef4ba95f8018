"""Derivatives that are cheaper than those given by the plain rules."""

from __future__ import annotations

import math
from collections import Counter

import pytest

from tsm.plugin.cells import get_cell
from tsm.plugin.cells.tape.derive import activate, differentiate
from tsm.plugin.cells.tape.ops import NumpyOps
from tsm.plugin.cells.tape.record import Recorder


def derivative_of(function):
    """The tape of the derivative of a function of a and b, and a count of its operations."""
    recorder = Recorder()
    a, b = recorder.symbol("a"), recorder.symbol("b")
    tape = differentiate(recorder.tape({"y": function(recorder, a, b)}), ("a", "b"))
    return tape, Counter(node.op for node in tape.nodes)


def test_the_logarithm_of_a_quotient_divides_once_for_each():
    tape, operations = derivative_of(lambda ops, a, b: ops.log(a / b))
    found = tape.run(NumpyOps, {"a": 3.0, "b": 0.7, "d.y": 2.0})
    assert found["d.a"] == 2.0 / 3.0 and operations["div"] == 2  # a / b, and d / a
    assert found["d.b"] == pytest.approx(-2.0 / 0.7)


def test_another_quotient_keeps_its_divisions():
    tape, operations = derivative_of(lambda ops, a, b: ops.log(b / a) / b)
    found = tape.run(NumpyOps, {"a": 3.0, "b": 0.7, "d.y": 1.0})
    assert found["d.a"] == pytest.approx(-1 / (3.0 * 0.7))
    assert found["d.b"] == pytest.approx((1 - math.log(0.7 / 3.0)) / 0.7**2)
    assert operations["div"] > 2


@pytest.mark.parametrize("swapped", [False, True])
def test_adding_what_is_negative_is_subtracting(swapped):
    def difference(ops, a, b):
        return ops.exp(-b + a if swapped else a + -b)

    tape, operations = derivative_of(difference)
    found = tape.run(NumpyOps, {"a": 0.5, "b": 0.25, "d.y": 1.0})
    assert found["d.a"] == -found["d.b"] == pytest.approx(math.exp(0.25))
    assert operations["add"] == 0 and operations["sub"] == 1


@pytest.mark.parametrize("name", ["lstm", "plstm"])
def test_backward_reads_what_the_gates_became(name):
    cell = get_cell(name)
    backward = differentiate(cell.tape(), [f"z.{g}" for g in cell.gates])
    gates, step, backward = activate(cell.tape(), backward, cell.gates)
    ends = [gates.nodes[ref].op for ref in gates.outputs.values()]
    assert sorted(ends) == ["sigmoid"] * (len(cell.gates) - 1) + ["tanh"]
    assert not [i for i in step.inputs() | backward.inputs() if i.startswith("z.")]
