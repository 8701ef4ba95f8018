"""A layer over time in ONNX: Scan, Loop, unrolled, or ONNX's own LSTM operator.

    form       what it is                                          T        cells
    scan       a Scan over time, its body one step                 any      all
    loop       a Loop, which indexes zx by its step                any      all
    unrolled   chunk_size steps one after the other, U shared      fixed    all
    lstm_op    the LSTM operator                                   any      lstm

Time comes first in all forms but the unrolled one: x and y are [T,N,..], in the unrolled form [N,T,..]. Each
function returns (y, or None if not wanted; last states). Past a row's length, y is the h of the last valid
step; callers mask it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from .clock import Clock
from .nodes import Graph
from .products import Products, spread
from .step import Step, array, make_step

if TYPE_CHECKING:
    from ...plugin.layers import Recurrent

LSTM_OP_GATES = ("i", "o", "f", "g")  # the operator's order


@dataclass
class Layer:
    """One layer and the names of its inputs."""

    layer: Recurrent
    index: int
    clock: Clock
    products: Products
    states: dict[str, str]
    wants_y: bool = True

    @property
    def prefix(self) -> str:
        return f"layers.{self.index}."


Made = tuple[str | None, dict[str, str]]


def recurrence(form: str, graph: Graph, one: Layer, x: str, tokens: bool) -> Made:
    """Adds the layer's nodes. x: values or, for a one-hot input, tokens; its time axis as the form requires."""
    if form == "lstm_op":
        return _lstm_op(graph, one, x)
    zx = _project(graph, one, x, tokens)
    step = make_step(graph, one.layer, one.products, one.prefix)
    return FORMS[form](graph, one, step, zx)


def _project(graph: Graph, one: Layer, x: str, tokens: bool) -> str:
    """zx = W x + b for the whole chunk; for a one-hot x, W x is a column of W."""
    name = one.products.enter(graph, f"{one.prefix}weight_x", array(one.layer.matrix("weight_x")).T)
    bias = graph.tensor(f"{one.prefix}bias", array(one.layer.effective_bias()))
    output = f"{one.prefix}wx"
    if tokens:
        wx = one.products.rows(graph, name, x, output, scaled=1)
    else:
        wx = one.products.multiply(graph, x, name, output)
    return graph.add("Add", [wx, bias], f"{one.prefix}zx")


def _advance(
    graph: Graph,
    one: Layer,
    step: Step,
    zx: str,
    states: Mapping[str, str],
    times: tuple[str | None, str | None],
    prefix: str,
) -> dict[str, str]:
    """One step; rows past their length keep their states."""
    dt, live = times
    new = step.nodes(graph, zx, states, dt, prefix)
    if live is None:
        return new
    return {
        name: graph.add("Where", [live, value, states[name]], f"{prefix}{name}_out")
        for name, value in new.items()
    }


def _scan(graph: Graph, one: Layer, step: Step, zx: str) -> Made:
    clock, prefix = one.clock, f"{one.prefix}step."
    scanned = {f"{prefix}zx": zx}
    shapes = {f"{prefix}zx": ["N", _rows(one)]}
    kinds = {f"{prefix}zx": TensorProto.FLOAT}
    for name, kind in (("dt", TensorProto.FLOAT), ("live", TensorProto.BOOL)):
        whole = getattr(clock, name)
        if whole is not None:
            scanned[f"{prefix}{name}"] = clock.column_time_first(whole)
            shapes[f"{prefix}{name}"] = ["N", 1]
            kinds[f"{prefix}{name}"] = kind
    times = tuple(
        f"{prefix}{name}" if getattr(clock, name) is not None else None for name in ("dt", "live")
    )
    body = Graph(graph)
    carried = {name: f"{prefix}{name}" for name in one.states}
    new = _advance(body, one, step, f"{prefix}zx", carried, times, prefix)  # type: ignore[arg-type]
    made, outputs = _body_outputs(body, one, new, prefix)
    inputs = [value(carried[n], ["N", one.layer.widths[n]]) for n in one.states]
    inputs += [value(name, shapes[name], kinds[name]) for name in scanned]
    last = {name: f"{one.prefix}last_{name}" for name in one.states}
    y = f"{one.prefix}y" if one.wants_y else None
    graph.add_many(
        "Scan",
        [*one.states.values(), *scanned.values()],
        [*last.values(), *([y] if y else [])],
        body=helper.make_graph(made.nodes, f"{one.prefix}step", inputs, outputs),
        num_scan_inputs=len(scanned),
    )
    return y, last


def _loop(graph: Graph, one: Layer, step: Step, zx: str) -> Made:
    clock, prefix = one.clock, f"{one.prefix}step."
    body = Graph(graph)
    at, go = f"{prefix}t", f"{prefix}go"
    times = []
    for name in ("dt", "live"):
        whole = getattr(clock, name)
        taken = None
        if whole is not None:
            column = clock.column_time_first(whole)
            taken = body.add("Gather", [column, at], f"{prefix}{name}", axis=0)
        times.append(taken)
    now = body.add("Gather", [zx, at], f"{prefix}zx", axis=0)
    carried = {name: f"{prefix}{name}" for name in one.states}
    new = _advance(body, one, step, now, carried, (times[0], times[1]), prefix)
    made, outputs = _body_outputs(body, one, new, prefix)
    made.add("Identity", [go], f"{prefix}go_on")
    inputs = [value(at, [], TensorProto.INT64), value(go, [], TensorProto.BOOL)]
    inputs += [value(carried[n], ["N", one.layer.widths[n]]) for n in one.states]
    outputs = [value(f"{prefix}go_on", [], TensorProto.BOOL), *outputs]
    last = {name: f"{one.prefix}last_{name}" for name in one.states}
    y = f"{one.prefix}y" if one.wants_y else None
    graph.add_many(
        "Loop",
        [clock.steps, graph.tensor("true", np.array(True)), *one.states.values()],
        [*last.values(), *([y] if y else [])],
        body=helper.make_graph(made.nodes, f"{one.prefix}step", inputs, outputs),
    )
    return y, last


def _unrolled(graph: Graph, one: Layer, step: Step, zx: str) -> Made:
    steps = one.clock.chunk_size
    assert steps is not None
    flat = graph.tensor("shape_0_m1", np.array([0, -1], np.int64))
    row = graph.add("Reshape", [zx, flat], f"{one.prefix}zx_flat")
    parts = spread(graph, row, f"{one.prefix}zx_at", [_rows(one)] * steps)
    last, outputs = dict(one.states), []
    for t in range(steps):
        prefix = f"{one.prefix}t{t}."
        last = _advance(graph, one, step, parts[t], last, one.clock.pieces[t], prefix)
        outputs.append(last["h"])
    if not one.wants_y:
        return None, last
    joined = outputs[0]
    if steps > 1:
        joined = graph.add("Concat", outputs, f"{one.prefix}y_flat", axis=1)
    width = one.layer.hidden_size
    shape = graph.tensor(f"shape_0_{steps}_{width}", np.array([0, steps, width], np.int64))
    return graph.add("Reshape", [joined, shape], f"{one.prefix}y"), last


def _lstm_op(graph: Graph, one: Layer, x: str) -> Made:
    """The operator expects a leading axis of directions and its own order of gates.

    For a row of length 0 it returns zeros as the last state; here such a row keeps its initial state.
    """
    layer, p = one.layer, one.prefix
    order = [layer.cell.gates.index(gate) for gate in LSTM_OP_GATES]

    def blocks(name: str, parameter: Any) -> str:
        parts = array(parameter).reshape(len(order), layer.hidden_size, -1)[order]
        return graph.tensor(p + name, parts.reshape(1, -1, parts.shape[-1]))

    bias = array(layer.effective_bias()).reshape(len(order), -1)[order].reshape(1, -1)
    axis = graph.tensor("axis_0", np.array([0], np.int64))
    one_axis = graph.tensor("axis_1", np.array([1], np.int64))
    inputs = [
        x,
        blocks("weight_x", layer.weight_x),
        blocks("weight_h", layer.weight_h),
        graph.tensor(f"{p}bias", np.concatenate([bias, np.zeros_like(bias)], axis=1)),
        _row_lengths(graph, one),
        graph.add("Unsqueeze", [one.states["h"], axis], f"{p}h_in"),
        graph.add("Unsqueeze", [one.states["c"], axis], f"{p}c_in"),
    ]
    outputs = [f"{p}y_two_ways" if one.wants_y else "", f"{p}op_h", f"{p}op_c"]
    graph.add_many("LSTM", inputs, outputs, name=f"{p}lstm", hidden_size=layer.hidden_size)
    last = {}
    for name in ("h", "c"):
        found = graph.add("Squeeze", [f"{p}op_{name}", axis], f"{p}ended_{name}")
        if one.clock.live is not None:
            some = _has_steps(graph, one.clock, one_axis)
            found = graph.add("Where", [some, found, one.states[name]], f"{p}last_{name}")
        last[name] = found
    if not one.wants_y:
        return None, last
    return graph.add("Squeeze", [f"{p}y_two_ways", one_axis], f"{p}y"), last


def _row_lengths(graph: Graph, one: Layer) -> str:
    """The lengths in the form that the operator takes: int32 [N], 0 to T; "" without lengths."""
    lengths = one.clock.lengths
    if lengths is None:
        return ""
    zero = graph.tensor("zero_steps", np.array(0, np.int64))
    most = graph.once("Min", [lengths, one.clock.steps], "lengths_most")
    least = graph.once("Max", [most, zero], "lengths_least")
    return graph.once("Cast", [least], "lengths_int32", to=TensorProto.INT32)


def _has_steps(graph: Graph, clock: Clock, axis: str) -> str:
    """bool [N,1]: whether a row has any step."""
    zero = graph.tensor("zero_steps", np.array(0, np.int64))
    some = graph.once("Greater", [str(clock.lengths), zero], "lengths_some")
    return graph.once("Unsqueeze", [some, axis], "lengths_some_column")


def _body_outputs(
    body: Graph, one: Layer, new: Mapping[str, str], prefix: str
) -> tuple[Graph, list[onnx.ValueInfoProto]]:
    """Outputs of a body: its states, then y. Each is a separate node, even an unchanged state."""
    outputs = []
    for name, found in new.items():
        if found != f"{prefix}{name}_out":
            body.add("Identity", [found], f"{prefix}{name}_out")
        outputs.append(value(f"{prefix}{name}_out", ["N", one.layer.widths[name]]))
    if one.wants_y:
        body.add("Identity", [new["h"]], f"{prefix}y")
        outputs.append(value(f"{prefix}y", ["N", one.layer.hidden_size]))
    return body, outputs


def _rows(one: Layer) -> int:
    return len(one.layer.cell.gates) * one.layer.hidden_size


def value(name: str, shape: list[Any], kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    """A typed name."""
    return helper.make_tensor_value_info(name, kind, shape)


FORMS: dict[str, Callable[[Graph, Layer, Step, str], Made]] = {
    "scan": _scan,
    "loop": _loop,
    "unrolled": _unrolled,
}
RECURRENCES = (*FORMS, "lstm_op")


def check_dtype(recurrence: str, dtype: str) -> None:
    if recurrence == "lstm_op" and dtype != "float32":
        raise ValueError(
            f"dtype = {dtype!r} with recurrence 'lstm_op'; accepted: float32, or another recurrence: "
            "scan, loop, unrolled"
        )


def time_first(form: str) -> bool:
    return form != "unrolled"
