"""Formulas over the last axis for composite cells, written once and recorded like a cell's program.

    abs(x), power(x, p), at_least(x, number), maximum(x, y)   element by element
    row_max(x), row_sum(x)   over the last axis, which is kept with size 1

`NumpyOps` and `TorchOps` run a formula; the ONNX and TorchScript writers print its tape.
"""

from __future__ import annotations

from collections.abc import Callable

from .ops import Array
from .record import Recorder, Symbol
from .tape import Tape

ROW_OPS = ("abs", "power", "at_least", "maximum", "row_max", "row_sum")
SMALLEST = 1e-30
"""What a row is divided by at least: a row of zeros stays one."""


def unit_norm(ops, x: Array, order: float, least: float) -> Array:
    """x / max(|x|_order, least).

    The powers are those of x / max|x|: of x itself they would underflow or overflow a float32 for |x| below
    1e-9 or above 1e7 (order 5). The largest entry is then 1, so the sum of powers is at least 1 unless the
    row is smaller than SMALLEST.
    """
    most = ops.at_least(ops.row_max(ops.abs(x)), SMALLEST)
    unit = x / most
    total = ops.at_least(ops.row_sum(ops.power(ops.abs(unit), order)), 1.0)
    return unit / ops.maximum(ops.power(total, 1 / order), least / most)


class RowRecorder(Recorder):
    """Records row operations too."""

    def __getattr__(self, op: str) -> Callable[..., Symbol]:
        if op in ROW_OPS:
            return lambda *args: self.emit(op, *args)
        return super().__getattr__(op)


def unit_norm_tape(order: float, least: float) -> Tape:
    """`unit_norm` as a program from "x" to "y"."""
    ops = RowRecorder()
    return ops.tape({"y": unit_norm(ops, ops.symbol("x"), order, least)})
