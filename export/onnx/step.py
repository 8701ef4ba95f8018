"""One step of a layer as ONNX nodes: from the tape of an element-wise cell, by hand for a composite one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ...plugin.cells.tape.derive import hoist
from ...plugin.cells.tape.ops import NumpyOps
from ..common.runner import Array
from .nodes import Graph, tape_nodes
from .nru import NruStep
from .products import Products, spread

if TYPE_CHECKING:
    from ...plugin.layers import Recurrent


class Step(Protocol):
    """Adds its weights to the graph when created; `nodes` adds a step: zx = W x + b [N,G*H] -> new states."""

    def nodes(
        self, graph: Graph, zx: str, states: Mapping[str, str], dt: str | None, prefix: str
    ) -> dict[str, str]: ...


def make_step(graph: Graph, layer: Recurrent, products: Products, prefix: str) -> Step:
    """The step of a layer; ValueError for a composite cell without one."""
    if layer.cell.elementwise:
        return TapeStep(graph, layer, products, prefix)
    if layer.cell.name not in COMPOSITE:
        raise ValueError(
            f"cell {layer.cell.name!r} has no tape and no ONNX form of its own; accepted: an "
            f"element-wise cell, or {', '.join(COMPOSITE)}"
        )
    return COMPOSITE[layer.cell.name](graph, layer, products, prefix)


COMPOSITE: dict[str, Callable[[Graph, Any, Products, str], Step]] = {"nru": NruStep}
"""Composite cells and the classes of their steps."""


class TapeStep:
    """z = zx + U h, split into gates, then the cell's program; functions of vectors alone are constants."""

    def __init__(self, graph: Graph, layer: Recurrent, products: Products, prefix: str) -> None:
        cell = layer.cell
        self.gates, self.width, self.products = cell.gates, layer.hidden_size, products
        self.weight: str | None = None  # a cell without U
        if cell.gates_of("h"):
            columns = array(layer.matrix("weight_h")).T
            self.weight = products.enter(graph, f"{prefix}weight_h", columns)
        prepare, self.program = hoist(cell.tape())
        constants = {name: float(layer.options[name]) for name in cell.constants}
        known: dict[str, Any] = {f"k.{name}": value for name, value in constants.items()}
        for name, value in layer.vectors().items():
            known[f"v.{name}"] = array(value).astype(np.float64)
        self.fixed = {f"k.{name}": graph.number(value) for name, value in constants.items()}
        for name, value in prepare.run(NumpyOps, known).items():
            row = np.broadcast_to(value, layer.hidden_size).astype(np.float32)
            self.fixed[f"q.{name}"] = graph.tensor(f"{prefix}vector_{name}", row)

    def nodes(
        self, graph: Graph, zx: str, states: Mapping[str, str], dt: str | None, prefix: str
    ) -> dict[str, str]:
        z = zx
        if self.weight is not None:
            uh = self.products.multiply(graph, states["h"], self.weight, f"{prefix}uh")
            z = graph.add("Add", [zx, uh], f"{prefix}z")
        parts = spread(graph, z, f"{prefix}gate", [self.width] * len(self.gates))
        inputs = {f"z.{gate}": part for gate, part in zip(self.gates, parts, strict=True)}
        inputs |= {f"s.{name}": value for name, value in states.items()} | self.fixed
        if "dt" in self.program.inputs():
            inputs["dt"] = dt or graph.number(1.0)
        return tape_nodes(graph, self.program, inputs, prefix)


def array(value: Any) -> Array:
    """A parameter as float32."""
    found: Array = value.detach().float().cpu().numpy()
    return found
