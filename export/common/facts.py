"""What a program needs to know to serve an exported model, as metadata of the file: text, or JSON if nested.

tsm_version  format (ONNX 2, torch 1)  family  arch  cell  recurrence  dtype  chunk_size ("" = any T)
input        {"kind": "tokens" | "one_hot", "vocab_size": V} or {"kind": "values", "width": I}
output_size  V or C;  read_at: where a classifier was trained to read ("last", "end")
states       [{"name", "layer", "width", "input", "output"}, ...] in the order of the graph's inputs
layers       [{"cell", "input_size", "hidden_size", "gates", "constants", "options"}, ...]
takes_dt     whether the cell takes dt, "true" or "false";  shortest_dt: the shortest accepted dt
inputs       ["lengths", "dt"] or fewer: those that an ONNX graph has and that callers must give
labels       a JSON list, the names of the classes; targets: those of outputs that are numbers; columns: those
             of the values of a step. If the checkpoint has them
tokenizer    {"kind": "word", "unit": "line", "end": "<eos>"}; vocabulary: a JSON list of symbols, that of id 0
             first; sentencepiece: the tokenizer's model, base64. If the checkpoint has them
proof, checksum   of ONNX files: see seal.py
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ... import __version__
from .formats import Options, Source

if TYPE_CHECKING:
    from ...plugin.models import SequenceModel

FORMAT = "1"
FACTS = "tsm.json"
"""The extra file of a torch archive that holds the facts."""
ONNX_FORMAT = "2"
"""In format 1, lengths and dt were inputs with default initialisers."""


def state_layout(model: SequenceModel) -> list[dict[str, Any]]:
    """Every state tensor of a graph, sorted by name, then layer."""
    found = [
        {
            "name": name,
            "layer": index,
            "width": layer.widths[name],
            "input": f"state_{name}_{index}_in",
            "output": f"state_{name}_{index}_out",
        }
        for index, layer in enumerate(model.layers)
        for name in layer.cell.states
    ]
    return sorted(found, key=lambda state: (state["name"], state["layer"]))


def takes_dt(model: SequenceModel) -> bool:
    return any(layer.cell.takes_dt for layer in model.layers)


def shortest_dt(model: SequenceModel) -> float:
    return max(float(layer.cell.shortest_dt(layer.options)) for layer in model.layers)


def graph_inputs(model: SequenceModel, asked: Sequence[str] | None) -> tuple[str, ...]:
    """Which of lengths and dt a graph has; None means all that the model takes."""
    has = ("lengths", "dt") if takes_dt(model) else ("lengths",)
    for name in asked or ():
        if name not in has:
            cells = "/".join(sorted({layer.cell.name for layer in model.layers}))
            why = f", which cell {cells!r} does not take" if name == "dt" else ""
            raise ValueError(
                f"inputs has {name!r}{why}; accepted: some of {', '.join(has)}, or none"
            )
    return tuple(name for name in has if asked is None or name in asked)


def input_fact(model: SequenceModel) -> dict[str, Any]:
    if model.embed is None:
        return {"kind": "values", "width": model.layers[0].input_size}
    kind = "one_hot" if model.embed.one_hot else "tokens"
    return {"kind": kind, "vocab_size": model.embed.vocab_size}


def facts(source: Source, options: Options) -> dict[str, str]:
    """What all files say."""
    model = source.model
    layers = [
        {
            "cell": layer.cell.name,
            "input_size": layer.input_size,
            "hidden_size": layer.hidden_size,
            "gates": list(layer.cell.gates),
            "constants": {name: float(layer.options[name]) for name in layer.cell.constants},
            "options": {} if layer.cell.elementwise else dict(layer.options),
        }
        for layer in model.layers
    ]
    found = {
        "format": FORMAT,
        "tsm_version": __version__,
        "family": model.name,
        "arch": str(model.config.get("arch", "")),
        "cell": model.layers[0].cell.name,
        "recurrence": options.recurrence or "",
        "dtype": options.dtype,
        "chunk_size": str(options.chunk_size or ""),
        "input": json.dumps(input_fact(model)),
        "output_size": str(model.decoder.out_features),
        "states": json.dumps(state_layout(model)),
        "layers": json.dumps(layers),
        "takes_dt": json.dumps(takes_dt(model)),
        "shortest_dt": json.dumps(shortest_dt(model)),
    }
    read_at = getattr(model.settings, "read_at", None)
    return (
        found | ({"read_at": read_at} if read_at else {}) | name_facts(source) | text_facts(source)
    )


def onnx_facts(source: Source, options: Options) -> dict[str, str]:
    """The facts for the metadata_props of an ONNX graph."""
    inputs = list(graph_inputs(source.model, options.inputs))
    return facts(source, options) | {"format": ONNX_FORMAT, "inputs": json.dumps(inputs)}


def name_facts(source: Source) -> dict[str, str]:
    """Names of the outputs and of the values of a step, if the checkpoint has them."""
    from ...plugin.data.labels import COLUMNS, LABELS, TARGETS, load_labels

    outputs, inputs = source.model.decoder.out_features, source.model.layers[0].input_size
    return {
        fact: json.dumps(load_labels(source.assets[file], file, count), ensure_ascii=False)
        for fact, file, count in (
            ("labels", LABELS, outputs),
            ("targets", TARGETS, outputs),
            ("columns", COLUMNS, inputs),
        )
        if file in source.assets
    }


def text_facts(source: Source) -> dict[str, str]:
    """Tokenizer and vocabulary, if the checkpoint has them."""
    from ...plugin.data import Vocab
    from ...plugin.data.subword import MODEL
    from ...plugin.data.tokenizers import TOKENIZERS
    from ...plugin.data.vocab import DICT, EOS

    if DICT not in source.assets:
        return {}
    symbols = Vocab.loads(source.assets[DICT], DICT).symbols
    found = {"vocabulary": json.dumps(list(symbols), ensure_ascii=False)}
    if MODEL in source.assets:
        found["sentencepiece"] = base64.b64encode(source.assets[MODEL]).decode()
        how: dict[str, Any] = {"kind": "sentencepiece", "unit": "line", "end": EOS}
    else:
        kind = str(source.config.get("text", {}).get("tokenizer"))
        made = TOKENIZERS.get(kind)
        how = {"kind": kind}
        if made is not None:
            how |= {"unit": made.unit, "end": made.end}
    return {**found, "tokenizer": json.dumps(how, ensure_ascii=False)}
