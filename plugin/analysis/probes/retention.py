"""The forget factor of any element-wise cell, taken from its program.

    f = d c / d c'    with the pre-activations z, the vectors and the other states held fixed

For a cell that writes c = f c' + i g this is f itself, whatever the gates are called. Cells declare nothing for
this: the tape is reduced to the memory c and differentiated, and the result shows which inputs f reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ...cells import Cell
from ...cells.tape.derive import differentiate
from ...cells.tape.ops import NumpyOps
from ...cells.tape.tape import Tape


def memory_of(cell: type[Cell]) -> str:
    """The state that holds the memory: "c", "m" or "a" if the cell has it, otherwise "h"."""
    return next((name for name in ("c", "m", "a") if name in cell.states), "h")


@dataclass(frozen=True)
class Retention:
    """The program of f: `factor(inputs)` for inputs named as in a tape ("z.f", "s.age", "v.p", "k.eps", "dt").

    gates and vectors are those that f depends on, directly or through states, in the cell's order: a forget or
    reset gate, an exponent, a time constant.
    """

    memory: str
    program: Tape
    gates: tuple[str, ...]
    vectors: tuple[str, ...]

    def factor(self, inputs: Mapping[str, np.ndarray | float]) -> np.ndarray:
        result = self.program.run(NumpyOps, {**inputs, f"d.{self.memory}": 1.0})
        return np.asarray(result[f"d.s.{self.memory}"], dtype=np.float64)


def retention(cell: type[Cell]) -> Retention:
    """The forget factor of `cell`; ValueError for a composite cell, whose memory is not kept unit by unit."""
    if not cell.elementwise:
        raise ValueError(
            f"cell {cell.name!r} is not element-wise, so its units have no forget factor; "
            "accepted: an element-wise cell (forgetting.gap_curves measures any)"
        )
    memory = memory_of(cell)
    program = differentiate(_only(cell.tape(), memory), [f"s.{memory}"])
    reads = program.inputs()
    pending = {name for name in reads if name.startswith("s.")}
    while pending:
        more = _only(cell.tape(), pending.pop()[2:]).inputs()
        pending |= {name for name in more - reads if name.startswith("s.")}
        reads |= more
    return Retention(
        memory,
        program,
        tuple(gate for gate in cell.gates if f"z.{gate}" in reads),
        tuple(name for name in cell.vectors if f"v.{name}" in reads),
    )


def _only(tape: Tape, output: str) -> Tape:
    """The part of the program that computes one output."""
    return Tape(tape.nodes, {output: tape.outputs[output]}, tape.names).pruned()
