"""A cell's tape as ONNX nodes: one rule per primitive, none per cell.

    graph = Graph()
    outputs = tape_nodes(graph, tape, {"z.f": "z_f", "s.c": "state_c", ...}, prefix="step_")

Numbers written in a program become scalar initialisers, one for each value. Primitives that are defined by
simpler ones are expanded (`expanded` in plugin/cells/tape/rows.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

from ...plugin.cells.tape.rows import expanded
from ...plugin.cells.tape.tape import Literal, Ref, Tape
from ..common.runner import Array


class Graph:
    """Nodes in order and their initialisers; the body of a Scan uses its parent's."""

    def __init__(self, parent: Graph | None = None) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.arrays: dict[str, Array] = parent.arrays if parent else {}
        self.declared: list[onnx.ValueInfoProto] = []
        self._made: set[str] = set()

    def add(self, op: str, inputs: Sequence[str], output: str, **attributes: Any) -> str:
        """Add a node with one output; returns the output's name."""
        self.add_many(op, inputs, [output], **attributes)
        return output

    def once(self, op: str, inputs: Sequence[str], output: str, **attributes: Any) -> str:
        """`add`, unless that output exists: for values that several layers share."""
        return output if output in self._made else self.add(op, inputs, output, **attributes)

    def add_many(
        self,
        op: str,
        inputs: Sequence[str],
        outputs: Sequence[str],
        name: str | None = None,
        **attributes: Any,
    ) -> None:
        self._made.update(outputs)
        node = helper.make_node(op, inputs, outputs, name=name or outputs[0], **attributes)
        self.nodes.append(node)

    def declare(self, name: str, kind: int, shape: Sequence[int | str]) -> str:
        """Declare the shape of a value if shape inference cannot find it. ONNX Runtime plans its memory with
        these shapes; if they are unknown, planning takes time quadratic in the number of nodes."""
        self.declared.append(helper.make_tensor_value_info(name, kind, shape))
        return name

    def tensor(self, name: str, value: np.ndarray | np.float32) -> str:
        """Add an initialiser; returns its name."""
        self.arrays[name] = np.asarray(value, order="C")
        return name

    def number(self, value: float) -> str:
        """A float32 scalar, made once."""
        name = f"number_{value:.9g}"
        return name if name in self.arrays else self.tensor(name, np.float32(value))


def tape_nodes(
    graph: Graph, tape: Tape, inputs: Mapping[str, str], prefix: str = ""
) -> dict[str, str]:
    """Add the program to `graph`; returns output name of the tape -> name of the value in the graph."""
    tape = expanded(tape)
    values: list[str] = []

    def value(ref: Ref) -> str:
        if isinstance(ref, Literal):
            return graph.number(ref.value)
        return values[ref] if isinstance(ref, int) else inputs[ref]

    for number, node in enumerate(tape.nodes):
        rule = OPERATORS.get(node.op) or SIMPLE.get(node.op)
        if rule is None:
            known = ", ".join((*OPERATORS, *SIMPLE))
            raise ValueError(f"primitive {node.op!r} has no ONNX form; accepted: {known}")
        name = f"{prefix}{number}_{tape.names.get(number, node.op)}"
        rule(graph, [value(ref) for ref in node.args], name)
        values.append(name)
    return {name: value(ref) for name, ref in tape.outputs.items()}


Rule = Callable[[Graph, list[str], str], object]


def _operator(op: str) -> Rule:
    return lambda graph, inputs, name: graph.add(op, inputs, name)


def _over_last_axis(op: str) -> Rule:
    def add(graph: Graph, inputs: list[str], name: str) -> None:
        last = graph.tensor("axis_last", np.array([-1], np.int64))
        graph.add(op, [*inputs, last], name, keepdims=1)

    return add


def _is_at_most(graph: Graph, inputs: list[str], name: str) -> None:
    found = graph.add("LessOrEqual", inputs, f"{name}_found")
    graph.add("Cast", [found], name, to=onnx.TensorProto.FLOAT)


OPERATORS: dict[str, Rule] = {
    "add": _operator("Add"),
    "sub": _operator("Sub"),
    "mul": _operator("Mul"),
    "div": _operator("Div"),
    "neg": _operator("Neg"),
    "exp": _operator("Exp"),
    "log": _operator("Log"),
    "sigmoid": _operator("Sigmoid"),
    "tanh": _operator("Tanh"),
}
"""Each primitive in ONNX."""
SIMPLE: dict[str, Rule] = {
    "abs": _operator("Abs"),
    "clip": _operator("Clip"),
    "sinh": _operator("Sinh"),
    "cosh": _operator("Cosh"),
    "power": _operator("Pow"),
    "at_least": _operator("Max"),
    "maximum": _operator("Max"),
    "is_at_most": _is_at_most,
    "row_max": _over_last_axis("ReduceMax"),
    "row_sum": _over_last_axis("ReduceSum"),
}
"""Each simple operation of plugin/cells/tape/rows.py."""
