"""Pairs the tensors of an ONNX file with the model's, for the verification: the weights and the rest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from torch import Tensor

from ..common.formats import Options, Source, Stored
from ..common.runner import Array
from ..tsm.package import model_tensors
from ..verify.tensors import paired
from .recurrence import LSTM_OP_GATES

if TYPE_CHECKING:
    from ...plugin.layers import Recurrent
    from ...plugin.models import SequenceModel


def stored(
    source: Source, path: Path, options: Options, arrays: Mapping[str, Array]
) -> Iterator[Stored]:
    """Yields every initialiser. arrays: all that the graph should have; the expected weights come from the
    model."""
    graph = onnx.load(str(path)).graph
    found = {t.name: torch.from_numpy(numpy_helper.to_array(t).copy()) for t in graph.initializer}
    weights = layout(source.model, options)
    for name, expected in weights.items():
        if name not in found:
            raise ValueError(f"tensor {name} is missing")
        scale = found.pop(f"{name}.scale", None)
        yield Stored(name, found.pop(name), expected, scale)
    # The rest are small constants, and values that a step computes once from its vectors.
    names = {*weights, *(f"{name}.scale" for name in weights)}
    rest = {n: torch.from_numpy(np.array(a)) for n, a in arrays.items() if n not in names}
    yield from paired(found, rest)


def layout(model: SequenceModel, options: Options) -> dict[str, Tensor]:
    """The model's weights with the names and shapes that they have in a graph."""
    operator = options.recurrence == "lstm_op"
    found: dict[str, Tensor] = {}
    for name, value in model_tensors(model).items():
        layer = model.layers[int(name.split(".")[1])] if name.startswith("layers.") else None
        if ".vectors." in name:
            continue
        if layer is not None and operator:
            found[name] = _of_operator(layer, name, value.detach())
        else:
            transposed = value.dim() == 2 and name != "embedding"
            found[name] = value.detach().T if transposed else value.detach()
    embed = model.embed
    if operator and embed is not None and embed.one_hot:
        found["embedding"] = torch.eye(embed.vocab_size)
    return found


def _of_operator(layer: Recurrent, name: str, value: Tensor) -> Tensor:
    """Gates in the order of ONNX's LSTM, a leading axis, and a second bias of zeros."""
    order = [layer.cell.gates.index(gate) for gate in LSTM_OP_GATES]
    blocks: Tensor = value.unflatten(0, (len(order), -1))[order].flatten(0, 1)
    if name.endswith(".bias"):
        return torch.cat([blocks, torch.zeros_like(blocks)])[None]
    return blocks[None]
