"""One step of a cell as a module of plain torch operations, which torch.jit.script and torch.export can read.

An element-wise cell's tape is printed as Python, one line per node, and run:

    print(step_source(get_cell("plstm"), {"eps": 1e-3}))

A composite cell needs its module in COMPOSITE. All steps have one form:

    weights() -> matrices [in, out] and bias rows in the states' type, called once per chunk
    forward(zx [N,G*H], fed [N,H], states, weights, dt [N,1]) -> states

States are in the order of `cell.states`; `fed` is the first of them, h, rounded to the weights' type.
"""

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from ...plugin.cells.tape.derive import hoist
from ...plugin.cells.tape.ops import NumpyOps
from ...plugin.cells.tape.rows import expanded
from ...plugin.cells.tape.tape import Literal, Ref, Tape
from .nru import NruStep
from .source import compiled, node_lines

if TYPE_CHECKING:
    from ...plugin.cells import Cell
    from ...plugin.layers import Recurrent

COMPOSITE: dict[str, type[nn.Module]] = {"nru": NruStep}
"""Cells without a tape -> their step, made from (layer, dtype of the weights, dtype of the states)."""


def step_module(layer: "Recurrent", rounded: torch.dtype, exact: torch.dtype) -> nn.Module:
    """The step of a layer with its current weights."""
    cell = layer.cell
    if cell.elementwise:
        return _elementwise(layer, rounded, exact)
    if cell.name not in COMPOSITE:
        raise ValueError(
            f"cell {cell.name!r} is composite and has no form in torch operations; accepted: "
            f"element-wise cells, {', '.join(COMPOSITE)}"
        )
    return COMPOSITE[cell.name](layer, rounded, exact)


def step_source(cell: "type[Cell]", constants: Mapping[str, float]) -> str:
    """The `forward` of an element-wise cell's step. Per-unit values are attributes q_<name>."""
    return _source(cell, hoist(cell.tape())[1], constants)


def _elementwise(layer: "Recurrent", rounded: torch.dtype, exact: torch.dtype) -> nn.Module:
    cell = layer.cell
    prepare, program = hoist(cell.tape())
    constants = {name: float(layer.options[name]) for name in cell.constants}
    known: dict[str, Any] = {f"k.{name}": value for name, value in constants.items()}
    for name, vector in layer.vectors().items():
        known[f"v.{name}"] = vector.detach().double().cpu().numpy()
    source = _source(cell, program, constants)
    step = _compiled(cell.name, source, RecurrentStep if layer.weights else InputStep)()
    if layer.weights:
        step.register_buffer("weight_h", layer.matrix("weight_h").detach().to(rounded))
    step.exact = exact
    for name, value in prepare.run(NumpyOps, known).items():
        row = torch.tensor(np.broadcast_to(value, layer.hidden_size), dtype=exact)
        step.register_buffer(f"q_{name}", row)
    return step


class InputStep(nn.Module):
    """The printed step of a cell without U."""

    exact: torch.dtype

    def weights(self) -> list[Tensor]:
        return []


class RecurrentStep(InputStep):
    """The printed step of a cell with U."""

    weight_h: Tensor

    def weights(self) -> list[Tensor]:
        return [self.weight_h.to(self.exact).t()]


def _source(cell: "type[Cell]", program: Tape, constants: Mapping[str, float]) -> str:
    program = expanded(program)
    gates = [f"z_{gate}" for gate in cell.gates]
    states = [f"s_{state}" for state in cell.states]
    names = {f"z.{g}": f"z_{g}" for g in cell.gates} | {f"s.{s}": f"s_{s}" for s in cell.states}
    names |= {f"k.{name}": repr(value) for name, value in constants.items()} | {"dt": "dt"}

    def written(ref: Ref) -> str:
        if isinstance(ref, Literal):
            return repr(ref.value)
        if isinstance(ref, int):
            return f"v{ref}_{program.names.get(ref, program.nodes[ref].op)}"
        return f"self.q_{ref[2:]}" if ref.startswith("q.") else names[ref]

    lines = ["z = zx + torch.matmul(fed, weights[0])" if cell.gates_of("h") else "z = zx"]
    lines.append(
        f"{gates[0]} = z" if len(gates) == 1 else f"{', '.join(gates)} = z.chunk({len(gates)}, 1)"
    )
    lines += [f"{name} = states[{i}]" for i, name in enumerate(states)]
    lines += node_lines(program, written, f"cell {cell.name!r}")
    new = [
        f"torch.full_like({states[0]}, {ref.value!r})" if isinstance(ref, Literal) else written(ref)
        for ref in (program.outputs[state] for state in cell.states)
    ]
    lines.append(f"return [{', '.join(new)}]")
    head = (
        "def forward(self, zx: Tensor, fed: Tensor, states: list[Tensor], "
        "weights: list[Tensor], dt: Tensor) -> list[Tensor]:"
    )
    return "\n".join([head, *(f"    {line}" for line in lines)]) + "\n"


@functools.cache
def _compiled(name: str, source: str, base: type[InputStep]) -> type[InputStep]:
    """A class with that forward."""
    made = compiled(f"step of {name}", source)
    return type(f"{name.title().replace('_', '')}Step", (base,), made)
