"""Formulas written out in simple operations, for the printers of other formats.

`expanded` rewrites those primitives of a program that are defined in terms of simpler ones. `unit_norm` is a
formula over the last axis for a composite cell, written once and recorded like a program.

    abs(x), clip(x, low, high), sinh(x), cosh(x),
    power(x, p), at_least(x, number), maximum(x, y)   element by element
    is_at_most(x, y)                                  1 where x <= y, otherwise 0, with derivative 0
    row_max(x), row_sum(x)                            over the last axis, which is kept with size 1

`NumpyOps` and `TorchOps` run a formula; the ONNX and TorchScript writers print its tape.
"""

from __future__ import annotations

from collections.abc import Callable

from .ops import DEFINED, Array
from .record import Recorder, Symbol
from .tape import Literal, Ref, Tape

SIMPLE = (
    "abs",
    "clip",
    "sinh",
    "cosh",
    "power",
    "at_least",
    "maximum",
    "is_at_most",
    "row_max",
    "row_sum",
)
SMALLEST = 1e-30
"""The smallest number that a row is divided by, so that a row of zeros stays zero."""


def unit_norm(ops, x: Array, order: float, least: float, greatest: float) -> Array:
    """x / max(|x|_order, least), or 0 with gradient 0 where |x|_order exceeds `greatest`.

    Powers are computed from x / max|x|. Powers of x itself would underflow or overflow a float32 for |x| below
    1e-9 or above 1e7 (order 5). The largest entry of x / max|x| is 1, so the sum of powers is at least 1 unless
    the row is smaller than SMALLEST.
    """
    most = ops.at_least(ops.row_max(ops.abs(x)), SMALLEST)
    unit = x / most
    total = ops.at_least(ops.row_sum(ops.power(ops.abs(unit), order)), 1.0)
    norm = ops.power(total, 1 / order)  # of unit
    return unit / ops.maximum(norm, least / most) * ops.is_at_most(norm, greatest / most)


class SimpleRecorder(Recorder):
    """Records simple operations too."""

    def __getattr__(self, op: str) -> Callable[..., Symbol]:
        if op in SIMPLE:
            return lambda *args: self.emit(op, *args)
        return super().__getattr__(op)


def unit_norm_tape(order: float, least: float, greatest: float) -> Tape:
    """`unit_norm` as a program from "x" to "y"."""
    ops = SimpleRecorder()
    return ops.tape({"y": unit_norm(ops, ops.symbol("x"), order, least, greatest)})


def expanded(tape: Tape) -> Tape:
    """The same program with the primitives of `Defined` written out."""
    ops = SimpleRecorder()
    values: list[Symbol] = []

    def value(ref: Ref) -> Symbol:
        if isinstance(ref, Literal):
            return ops.symbol(ref.value)
        return values[ref] if isinstance(ref, int) else ops.symbol(ref)

    for node in tape.nodes:
        args = [value(ref) for ref in node.args]
        formula = DEFINED.get(node.op)
        values.append(ops.emit(node.op, *args) if formula is None else formula(ops, *args))
    outputs = {name: value(ref) for name, ref in tape.outputs.items()}
    return ops.tape(outputs, {name: values[number] for number, name in tape.names.items()})
