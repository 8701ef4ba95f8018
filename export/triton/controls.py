"""The ONNX graph as Triton's sequence batcher calls it: with inputs START, END, READY and CORRID, [N,1] each.

START sets the states of its row to zero, whatever Triton passes, so that no sequence can begin with the state
of another; a row that is not READY keeps its states. END and CORRID are accepted but not used.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from .config import FLAGS

CONTROL_ZERO = "control_zero"
"""The initialiser that is added."""


def with_controls(model: onnx.ModelProto, layout: Iterable[dict[str, Any]]) -> onnx.ModelProto:
    """The model, changed in place."""
    graph = model.graph
    zero = numpy_helper.from_array(np.zeros((), np.float32), CONTROL_ZERO)
    graph.initializer.append(zero)
    before = [
        helper.make_node("Cast", [flag], [f"is_{flag}"], to=TensorProto.BOOL) for flag in FLAGS
    ]
    after = []
    renamed: dict[str, str] = {}
    for state in layout:
        given, out = state["input"], state["output"]
        fresh, new = f"{given}_begun", f"{out}_new"
        before.append(helper.make_node("Where", ["is_START", zero.name, given], [fresh]))
        after.append(helper.make_node("Where", ["is_READY", new, given], [out]))
        renamed |= {given: fresh, out: new}
    for node in graph.node:
        _rename(node, renamed)
    nodes = [*before, *graph.node, *after]
    del graph.node[:]
    graph.node.extend(nodes)
    for flag in FLAGS:
        graph.input.append(helper.make_tensor_value_info(flag, TensorProto.INT32, ["N", 1]))
    graph.input.append(helper.make_tensor_value_info("CORRID", TensorProto.UINT64, ["N", 1]))
    return model


def _rename(node: onnx.NodeProto, names: dict[str, str]) -> None:
    """Renames values in a node and in its subgraphs, which may use names of the outer graph."""
    for field in (node.input, node.output):
        for i, name in enumerate(field):
            field[i] = names.get(name, name)
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            for inner in attribute.g.node:
                _rename(inner, names)
