"""Translates `tsm::layer`, the torch operator that a traced layer becomes, to ONNX: a Scan of the cell's
formula.

torch.onnx.export asks a `Translation` about each call of the operator. It returns a node in tsm's own domain
and keeps the node's body as a function of the model, which onnx's inliner then inserts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np
import onnx
import onnx.inliner
from onnx import helper, numpy_helper

from ...plugin.cells import Cell, get_cell
from ...plugin.cells.tape.derive import hoist
from ...plugin.layers.over_time import CellOverTime
from .clock import make_clock
from .model import OPSET
from .nodes import Graph, tape_nodes
from .products import Products
from .recurrence import FORMS, Layer
from .step import TapeStep

DOMAIN, VERSION = "tsm", 1
INPUTS = {name: "tensor(float)" for name in ("x", "weight_x", "bias", "weight_h", "state")}
INPUTS |= {"vectors": "tensor(float)", "dt": "tensor(float)", "lengths": "tensor(int64)"}
FOUND = ("y", "last")
OUTPUTS = (*FOUND, *(f"saved_{i}" for i in range(5)))
"""Of the operator. The outputs saved for backward are never used."""


class Translation:
    """Translates all calls of `tsm::layer` in one export. form: that of the recurrence, scan or loop."""

    def __init__(self, form: str) -> None:
        self.form = form
        self.functions: list[onnx.FunctionProto] = []

    def table(self) -> dict[Callable[..., Any], Callable[..., Any]]:
        """The table for torch.onnx.export(custom_translation_table=...)."""
        import torch

        def tsm_layer(*arguments: Any) -> Any:
            cell, constants, _, *values, _ = arguments
            given = dict(zip(INPUTS, values, strict=True))
            return self.node(cell, constants, {k: v for k, v in given.items() if v is not None})

        return {torch.ops.tsm.layer.default: tsm_layer}

    def node(self, cell: str, constants: Sequence[float], values: Mapping[str, Any]) -> Any:
        """Adds a node and its body for these onnxscript values; returns its outputs."""
        from onnxscript.values import Op, Opset

        hidden = int(values["weight_h"].shape[1])
        if not get_cell(cell).gates_of("h"):  # its shape [0, H] only gives H
            values = {name: value for name, value in values.items() if name != "weight_h"}
        kind = onnx.defs.OpSchema
        name = f"Layer{len(self.functions)}"
        schema = kind(
            name,
            DOMAIN,
            VERSION,
            inputs=[kind.FormalParameter(n, INPUTS[n]) for n in values],
            outputs=[kind.FormalParameter(n, "tensor(float)") for n in OUTPUTS],
        )
        self.functions.append(
            layer_function(name, get_cell(cell), constants, hidden, list(values), self.form)
        )
        return Op(Opset(DOMAIN, VERSION), name, schema)(*values.values())

    def inlined(self, model: onnx.ModelProto) -> onnx.ModelProto:
        """The model with every tsm node replaced by its body."""
        for node in model.graph.node:
            if node.domain == DOMAIN:
                del node.output[len(FOUND) :]
        model.functions.extend(self.functions)
        whole: onnx.ModelProto = onnx.inliner.inline_local_functions(model)
        kept = [one for one in whole.opset_import if one.domain != DOMAIN]
        del whole.opset_import[:]
        whole.opset_import.extend(kept)
        return whole


def layer_function(
    name: str,
    cell: type[Cell],
    constants: Sequence[float],
    hidden: int,
    inputs: Sequence[str],
    form: str,
) -> onnx.FunctionProto:
    """A layer as an ONNX function: `inputs` (some of INPUTS) -> FOUND (y [N,T,H], last [S,N,H])."""
    body = _body(cell, constants, hidden, inputs, form)
    constant = [  # a function has no initialisers
        helper.make_node("Constant", [], [key], value=numpy_helper.from_array(array, key))
        for key, array in body.arrays.items()
    ]
    opset = [helper.make_opsetid("", OPSET)]
    return helper.make_function(DOMAIN, name, inputs, FOUND, [*constant, *body.nodes], opset)


def _body(
    cell: type[Cell], constants: Sequence[float], hidden: int, inputs: Sequence[str], form: str
) -> Graph:
    graph = Graph()
    over_time = CellOverTime(
        cell.name, hidden, "auto", dict(zip(cell.constants, constants, strict=True))
    )
    clock = make_clock(graph, inputs, None)
    states = {name: _row(graph, "state", i, f"first_{name}") for i, name in enumerate(cell.states)}
    one = Layer(cast(Any, over_time), 0, clock, Products(), states)
    x = graph.add("Transpose", ["x"], "x_time_first", perm=[1, 0, 2])
    weight = graph.add("Transpose", ["weight_x"], "weight_x_columns", perm=[1, 0])
    wx = graph.add("MatMul", [x, weight], "wx")
    zx = graph.add("Add", [wx, "bias"], "zx")
    vectors = {name: _row(graph, "vectors", i, f"v_{name}") for i, name in enumerate(cell.vectors)}
    step = GivenStep(graph, cell, hidden, over_time.options, vectors)
    y, last = FORMS[form](graph, one, step, zx)
    assert y is not None
    y = graph.add("Transpose", [y], "y_batch_first", perm=[1, 0, 2])
    if clock.live is None:
        graph.add("Identity", [y], "y")
    else:  # past its length a row's y is 0
        graph.add("Where", [clock.column(clock.live), y, graph.number(0.0)], "y")
    axis = graph.tensor("axis_0", np.array([0], np.int64))
    rows = [graph.add("Unsqueeze", [last[n], axis], f"last_{n}_row") for n in cell.states]
    graph.add("Concat", rows, "last", axis=0)
    return graph


class GivenStep(TapeStep):
    """A step whose weights and vectors are values of the graph, not stored in it."""

    def __init__(
        self,
        graph: Graph,
        cell: type[Cell],
        hidden: int,
        options: Mapping[str, Any],
        vectors: Mapping[str, str],
    ) -> None:
        self.gates, self.width, self.products = cell.gates, hidden, Products()
        self.weight = None
        if cell.gates_of("h"):
            self.weight = graph.add("Transpose", ["weight_h"], "weight_h_columns", perm=[1, 0])
        prepare, self.program = hoist(cell.tape())
        self.fixed = {f"k.{name}": graph.number(float(options[name])) for name in cell.constants}
        known = {**self.fixed, **{f"v.{name}": value for name, value in vectors.items()}}
        prepared = tape_nodes(graph, prepare, known, "vector_")
        self.fixed |= {f"q.{name}": value for name, value in prepared.items()}


def _row(graph: Graph, name: str, number: int, output: str) -> str:
    """name[number]"""
    at = graph.tensor(f"number_{number}_of", np.array(number, np.int64))
    return graph.add("Gather", [name, at], output, axis=0)
