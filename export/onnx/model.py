"""A whole model as an ONNX file: embedding, layers, head; recurrence.py has the forms of the recurrence.

    inputs   x        int64 [N,T] tokens, or float32 [N,T,I] values
             lengths  int64 [N]: the number of valid steps of each row; T or more: all of them
             dt       float32 [N,T]. Only if the cell takes it
             state_<name>_<layer>_in [N, width], sorted by name, then layer; zeros start a stream
    outputs  logits   float32 [N,T,V], or [N,C] of a classifier
             state_<name>_<layer>_out

Every input of a graph must be given. `Options.inputs` can leave out lengths (every row has T steps) and dt
(every step is 1).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from ... import __version__
from ...plugin.common.checks import check_integer
from ..common.facts import graph_inputs, onnx_facts, state_layout
from ..common.formats import Options, Progress, Source, Stored, check_file
from ..common.runner import Array, Runner
from ..common.seal import seal as write_seal
from . import file as onnx_file
from .clock import make_clock
from .file import check, external, inline, save
from .nodes import Graph
from .products import DTYPES, Products
from .recurrence import RECURRENCES, Layer, check_dtype, recurrence, time_first, value
from .step import COMPOSITE, array
from .stored import stored as stored_weights

if TYPE_CHECKING:
    from ...plugin.models import SequenceModel

OPSET, IR = 21, 10
FORMS = RECURRENCES
check_place = check_file


def write(source: Source, path: Path, options: Options, progress: Progress) -> None:
    """Writes the file, and a data file beside it if the weights do not fit into one."""
    options = checked(source.model, options)
    progress("building the graph")
    graph = make_graph(source.model, options)
    progress("writing")
    if sum(array.nbytes for array in graph.arrays.values()) > onnx_file.LARGEST:
        tensors = external(graph.arrays, path)
    else:
        tensors = inline(graph.arrays)
    save(_proto(source, options, graph, tensors), path)
    progress("checking the graph")
    check(path)


def runners(path: Path, options: Options) -> list[Runner]:
    """ONNX Runtime, also on a GPU if there is one, and onnx.reference where it is correct."""
    from .runners import onnx_runners

    return onnx_runners(path)


def stored(
    source: Source, path: Path, options: Options, extra: Mapping[str, Array] | None = None
) -> Iterable[Stored]:
    """Implements `stored` of common/formats.py with every initialiser. extra: initialisers that were added to
    the graph."""
    options = checked(source.model, options)
    arrays = make_graph(source.model, options).arrays
    return stored_weights(source, path, options, {**arrays, **(extra or {})})


def seal(path: Path, record: Mapping[str, Any]) -> None:
    """Implements `seal` of common/formats.py: writes the proof and the checksum."""
    write_seal(path, "onnx", record)


def checked(model: SequenceModel, options: Options) -> Options:
    """The options with the default form filled in; a ValueError says what is accepted."""
    form = options.recurrence or FORMS[0]
    cells = sorted({layer.cell.name for layer in model.layers})
    if form not in FORMS:
        raise ValueError(f"recurrence = {form!r}; accepted: {', '.join(FORMS)}")
    for layer in model.layers:
        if not layer.cell.elementwise and layer.cell.name not in COMPOSITE:
            raise ValueError(
                f"cell {layer.cell.name!r} has no tape; accepted for ONNX: element-wise cells and "
                f"{', '.join(COMPOSITE)}"
            )
    if form == "lstm_op" and cells != ["lstm"]:
        raise ValueError(
            f"recurrence 'lstm_op' with cell {cells[0]!r}: the operator is the plain LSTM; accepted "
            "for this cell: scan, loop, unrolled"
        )
    check_dtype(form, options.dtype)
    chunk = options.chunk_size
    if form == "unrolled" and chunk is None:
        raise ValueError(
            "recurrence 'unrolled' with no chunk_size: T is fixed in it; accepted: a chunk_size of "
            "at least 1, or for any T: scan, loop"
        )
    if form != "unrolled" and chunk is not None:
        raise ValueError(
            f"chunk_size = {chunk!r} with recurrence {form!r}, which takes any T; accepted: with "
            "'unrolled'"
        )
    if chunk is not None:
        check_integer("chunk_size", chunk)
    if options.dtype not in DTYPES:
        raise ValueError(f"dtype = {options.dtype!r}; accepted for ONNX: {', '.join(DTYPES)}")
    return Options(form, chunk, options.dtype, graph_inputs(model, options.inputs))


def build(source: Source, options: Options) -> onnx.ModelProto:
    """The model in memory; ValueError if its weights need a separate file."""
    graph = make_graph(source.model, options)
    return _proto(source, options, graph, inline(graph.arrays))


def make_graph(model: SequenceModel, options: Options) -> Graph:
    """Nodes and weights."""
    form = options.recurrence or FORMS[0]
    graph, products = Graph(), Products(options.dtype)
    clock = make_clock(graph, graph_inputs(model, options.inputs), options.chunk_size)
    x = "x"
    if time_first(form):
        order = [1, 0] if model.embed is not None else [1, 0, 2]
        x = graph.add("Transpose", ["x"], "x_time_first", perm=order)
    name, tokens = _input(graph, model, products, x, one_hot_rows=form != "lstm_op")
    stepwise = model.name != "classifier"
    last: list[dict[str, str]] = []
    y: str | None = name
    for index, layer in enumerate(model.layers):
        states = {state: f"state_{state}_{index}_in" for state in layer.cell.states}
        wanted = stepwise or index + 1 < len(model.layers)
        one = Layer(layer, index, clock, products, states, wanted)
        assert y is not None
        y, new = recurrence(form, graph, one, y, tokens and index == 0)
        last.append(new)
    read = last[-1]["h"]
    if stepwise:
        assert y is not None
        if time_first(form):
            y = graph.add("Transpose", [y], "y_batch_first", perm=[1, 0, 2])
        read = y
        if clock.live is not None:
            mask = clock.column(clock.live)
            read = graph.add("Where", [mask, y, graph.number(0.0)], "y_masked")
    _head(graph, model, products, read)
    for state in state_layout(model):
        graph.add("Identity", [last[state["layer"]][state["name"]]], state["output"])
    return graph


def _input(
    graph: Graph, model: SequenceModel, products: Products, x: str, one_hot_rows: bool
) -> tuple[str, bool]:
    """Returns (what the first layer reads, whether that is tokens to look up in W). Negative tokens, which
    Gather would count from the end, are mapped past the vocabulary, which is an error in every consumer."""
    embed = model.embed
    if embed is None:
        return x, False
    zero = graph.tensor("zero_steps", np.array(0, np.int64))
    wrong = graph.tensor("no_token", np.array(embed.vocab_size, np.int64))
    negative = graph.add("Less", [x, zero], "x_negative")
    tokens = graph.add("Where", [negative, wrong, x], "tokens")
    if embed.one_hot and one_hot_rows:
        return tokens, True
    table = np.eye(embed.vocab_size, dtype=np.float32) if embed.one_hot else array(embed.weight)
    products.enter(graph, "embedding", table, scaled=0)
    return products.rows(graph, "embedding", tokens, "embedded", scaled=0), False


def _head(graph: Graph, model: SequenceModel, products: Products, read: str) -> None:
    """logits = W h + b; a tied W is the embedding."""
    tied = model.embed is not None and model.decoder.weight is getattr(model.embed, "weight", None)
    name = "embedding"
    if not tied:
        name = products.enter(graph, "output.weight", array(model.decoder.weight).T)
    product = products.multiply(graph, read, name, "output_product", transposed=tied)
    bias = graph.tensor("output.bias", array(model.decoder.bias))
    graph.add("Add", [product, bias], "logits")


def _proto(
    source: Source, options: Options, graph: Graph, tensors: list[TensorProto]
) -> onnx.ModelProto:
    model, layout = source.model, state_layout(source.model)
    steps: int | str = options.chunk_size or "T"
    if model.embed is None:
        x = value("x", ["N", steps, model.layers[0].input_size])
    else:
        x = value("x", ["N", steps], TensorProto.INT64)
    clock = {
        "lengths": value("lengths", ["N"], TensorProto.INT64),
        "dt": value("dt", ["N", steps]),
    }
    inputs = [x, *(clock[name] for name in graph_inputs(model, options.inputs))]
    inputs += [value(str(state["input"]), ["N", state["width"]]) for state in layout]
    width = model.decoder.out_features
    outputs = [value("logits", ["N", width] if model.name == "classifier" else ["N", steps, width])]
    outputs += [value(str(state["output"]), ["N", state["width"]]) for state in layout]
    made = helper.make_model(
        helper.make_graph(
            graph.nodes,
            str(model.config.get("arch", "model")),
            inputs,
            outputs,
            tensors,
            value_info=graph.declared,
        ),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR,
        producer_name="tsm",
        producer_version=__version__,
    )
    helper.set_model_props(made, onnx_facts(source, options))
    return made
