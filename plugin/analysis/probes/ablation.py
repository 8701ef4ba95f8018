"""Ablation of units: their h is replaced by 0 wherever it is read.

The h of a layer is read by its own recurrent weights and by the layer above. So the units' columns in the
recurrent weights are set to 0, and the input of the next layer (or of the decoder) is masked. Their own memory
is still updated, but nothing reads it. For a cell whose h is its memory (janet) this equals setting h to 0 at
each step, however the sequence is cut into chunks. With `recurrence=False` the layer itself still reads the
units; only the layer above does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ...layers import Recurrent
from ...models.sequence_model import SequenceModel


@contextmanager
def ablated(
    model: SequenceModel, layer: int, units: Sequence[int] | np.ndarray, recurrence: bool = True
) -> Iterator[None]:
    """Inside the block, `units` of `layer` (both numbered from 0) are silenced; with `recurrence`, the layer
    itself does not read them either."""
    here = model.layers[layer]
    chosen = torch.as_tensor(np.asarray(units, dtype=np.int64), device=here.weight_x.device)
    if chosen.numel() and not 0 <= int(chosen.min()) <= int(chosen.max()) < here.hidden_size:
        raise ValueError(f"units = {list(units)}; accepted: 0 to {here.hidden_size - 1}")
    reader: nn.Module = model.decoder
    if layer + 1 < len(model.layers):
        reader = model.layers[layer + 1]

    def mask(module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        return (args[0].index_fill(-1, chosen, 0.0), *args[1:])

    weights = list(reads_of_h(here)) if recurrence else []
    kept = [weight[:, chosen].clone() for weight in weights]
    hook = reader.register_forward_pre_hook(mask)
    try:
        with torch.no_grad():
            for weight in weights:
                weight[:, chosen] = 0.0
        yield
    finally:
        hook.remove()
        with torch.no_grad():
            for weight, columns in zip(weights, kept, strict=True):
                weight[:, chosen] = columns


def reads_of_h(layer: Recurrent) -> Iterator[Tensor]:
    """Those of the layer's weights whose first H columns multiply h.

    This is `weight_h`, if there is one, and in a composite cell also the weights that read all states
    concatenated, h first. They are recognised by their width.
    """
    both = sum(layer.widths.values())
    for name in layer.weights:
        weight = getattr(layer, name).data
        all_states = weight.dim() == 2 and weight.shape[1] == both
        if name == "weight_h" or (all_states and not layer.cell.elementwise):
            yield weight
