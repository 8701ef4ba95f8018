"""One recurrent layer as an ONNX model, for benchmarks and for building your own model around it.

    model = layer_model(Recurrent("plstm", 64, 128), recurrence="scan")

The forms are those of recurrence.py. Inputs `x` [N,T,I], `dt` [N,T] if requested, and one per state,
`state_<name>_0_in` [N,H], sorted by name; outputs `y` [N,T,H] and `state_<name>_0_out`; no lengths.
`quantized` is the same model with 8-bit matrices, made by ONNX Runtime's quantizer.
"""

from __future__ import annotations

import json
import logging
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import onnx
from onnx import helper

from ... import __version__
from ...plugin.common.checks import check_integer
from .clock import Clock
from .file import inline
from .model import IR, OPSET
from .nodes import Graph
from .products import Products
from .recurrence import RECURRENCES, Layer, check_dtype, time_first, value
from .recurrence import recurrence as add_recurrence

if TYPE_CHECKING:
    from ...plugin.cells import Cell
    from ...plugin.layers import Recurrent


def layer_model(
    layer: Recurrent,
    recurrence: str = "scan",
    chunk_size: int | None = None,
    with_dt: bool = False,
    dtype: str = "float32",
) -> onnx.ModelProto:
    """Builds the ONNX model of a layer with its current weights. Without `with_dt` every step has length 1."""
    cell = layer.cell
    _check(cell, recurrence, chunk_size, with_dt, dtype)
    graph = Graph()
    clock = Clock(graph, "x", chunk_size, "dt" if with_dt else None)
    names = sorted(cell.states)
    states = {name: f"state_{name}_0_in" for name in cell.states}
    one = Layer(layer, 0, clock, Products(dtype), states)
    transposed = time_first(recurrence)
    x = graph.add("Transpose", ["x"], "x_time_first", perm=[1, 0, 2]) if transposed else "x"
    y, last = add_recurrence(recurrence, graph, one, x, tokens=False)
    assert y is not None
    if transposed:
        graph.add("Transpose", [y], "y", perm=[1, 0, 2])
    else:
        graph.add("Identity", [y], "y")
    for name in names:
        graph.add("Identity", [last[name]], f"state_{name}_0_out")

    steps: int | str = chunk_size or "T"
    inputs = [value("x", ["N", steps, layer.input_size])]
    inputs += [value("dt", ["N", steps])] if with_dt else []
    inputs += [value(f"state_{name}_0_in", ["N", layer.widths[name]]) for name in names]
    outputs = [value("y", ["N", steps, layer.hidden_size])]
    outputs += [value(f"state_{name}_0_out", ["N", layer.widths[name]]) for name in names]
    body = helper.make_graph(
        graph.nodes, f"{cell.name}_layer", inputs, outputs, inline(graph.arrays)
    )
    model = helper.make_model(
        body,
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR,
        producer_name="tsm",
        producer_version=__version__,
    )
    facts = {
        "tsm_version": __version__,
        "cell": cell.name,
        "recurrence": recurrence,
        "states": json.dumps({f"state_{name}_0": layer.widths[name] for name in names}),
    }
    helper.set_model_props(model, facts)
    return model


def quantized(
    model: onnx.ModelProto, per_channel: bool = False, reduce_range: bool = False
) -> onnx.ModelProto:
    """The model with int8 matrices and dynamic quantization: activations become uint8 at run time.

    One scale per matrix is faster in ONNX Runtime; one per column (per_channel) is closer to the model.
    reduce_range: 7-bit weights, for x86 without VNNI, where ONNX Runtime's uint8 x int8 products saturate.
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic

    logger = logging.getLogger()  # quantize_dynamic logs advice to the root logger
    before = logger.level
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        logger.setLevel(logging.ERROR)
        try:
            quantize_dynamic(
                model,
                path,
                per_channel=per_channel,
                reduce_range=reduce_range,
                weight_type=QuantType.QInt8,
                extra_options={"EnableSubgraph": True},
            )
        finally:
            logger.setLevel(before)
        return onnx.load(path)


def _check(
    cell: type[Cell], recurrence: str, chunk_size: int | None, with_dt: bool, dtype: str
) -> None:
    if recurrence not in RECURRENCES:
        raise ValueError(f"recurrence = {recurrence!r}; accepted: {', '.join(RECURRENCES)}")
    if recurrence == "lstm_op" and cell.name != "lstm":
        raise ValueError(
            f"recurrence 'lstm_op' with cell {cell.name!r}; accepted: cell 'lstm'; other cells: scan, "
            "loop, unrolled"
        )
    check_dtype(recurrence, dtype)
    if (recurrence == "unrolled") != (chunk_size is not None):
        raise ValueError(
            f"chunk_size = {chunk_size!r} with recurrence {recurrence!r}; accepted: a number of steps "
            "with 'unrolled', None with the others"
        )
    if chunk_size is not None:
        check_integer("chunk_size", chunk_size)
    if with_dt and not cell.takes_dt:
        raise ValueError(f"with_dt = True, but cell {cell.name!r} takes no dt")
