"""Pairs the tensors of a TorchScript or `.pt2` file with the model's, for the verification."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...plugin.cells.tape.derive import hoist
from ...plugin.cells.tape.ops import NumpyOps
from ..common.formats import Source, Stored
from ..tsm.package import model_tensors
from ..verify.tensors import paired


def stored(source: Source, found: Mapping[str, Tensor]) -> Iterable[Stored]:
    """Yields every buffer of the modules in modules.py."""
    expected: dict[str, Tensor] = {}
    for name, value in model_tensors(source.model).items():
        first, _, own = name.partition(".")
        if ".vectors." in name:
            continue
        if first == "layers":
            number, _, own = own.partition(".")
            inner = "" if own in ("weight_x", "bias") else "step."
            name = f"layers.{number}.{inner}{own}"
        elif first == "embedding":
            name = "embedding.weight"
        expected[name] = value
    for index, layer in enumerate(source.model.layers):
        cell = layer.cell
        if not cell.elementwise:
            continue
        known: dict[str, Any] = {f"k.{name}": float(layer.options[name]) for name in cell.constants}
        known |= {f"v.{n}": v.detach().double().numpy() for n, v in layer.vectors().items()}
        for name, value in hoist(cell.tape())[0].run(NumpyOps, known).items():
            row = np.broadcast_to(value, layer.hidden_size).copy()
            expected[f"layers.{index}.step.q_{name}"] = torch.from_numpy(row)
    if "output.weight" not in expected:  # tied
        expected["output.weight"] = source.model.decoder.weight
    # A scripted branch has its buffers even if it is not taken; they are then empty.
    return paired({name: value for name, value in found.items() if value.numel()}, expected)
