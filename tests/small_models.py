"""Every architecture with a handful of units, for tests over the registry."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from tsm.plugin import build_model, list_architectures
from tsm.plugin.archs import get_architecture
from tsm.plugin.models import SequenceModel, Sizes
from tsm.plugin.models.build import resolve

V, C, H, E = 11, 3, 6, 5


def small(arch: str, input_size: int | None = None, **options: Any) -> SequenceModel:
    """The architecture with few units. Its weights are three times their initial size, so that gates open and
    close."""
    family = get_architecture(arch).model
    sizes = Sizes(V if input_size is None else None, None if family == "lm" else C, input_size)
    preset = resolve(arch, {}, sizes)
    options.setdefault("decoder_hidden_size", H)
    if preset.get("decoder_embed_dim"):
        options.setdefault("decoder_embed_dim", E)
    if preset["cell"] == "nru":
        options.setdefault("cell_options", "memory_size=4:heads=4")
    torch.manual_seed(3)
    model = build_model(arch, **vars(sizes), **options, backend="reference").eval()
    with torch.no_grad():
        for layer in model.layers:
            if layer.cell.bounded:
                for weight in (layer.weight_x, layer.weight_h):
                    if weight is not None:
                        weight.mul_(3)
    return model


@cache
def structures(family: str) -> list[str]:
    """One architecture per distinct small model; the other architectures differ from one of these only in
    numbers (initial values, dropout)."""
    found: dict[Any, str] = {}
    for arch in list_architectures(family):
        model = small(arch)
        parameters = {name: (p.shape, p.requires_grad) for name, p in model.named_parameters()}
        cells = [(layer.cell.name, layer.options) for layer in model.layers]
        found.setdefault(str((parameters, cells)), arch)
    return list(found.values())
