"""States in the format of torch's layers: one tensor [D*L, B, width] per state, in the cell's order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from .sequences import Batch

Hidden = Tensor | tuple[Tensor, ...]
"""A tensor instead of a tuple if the cell has only one state."""


def read_states(hx: Any, widths: Mapping[str, int], count: int, batch: Batch) -> dict[str, Tensor]:
    """Name -> [D*L, B, width] from the caller's states. widths: by name, in order. count: D*L."""
    values = (hx,) if len(widths) == 1 and isinstance(hx, Tensor) else hx
    if not isinstance(values, (tuple, list)) or len(values) != len(widths):
        many = isinstance(values, (tuple, list))
        got = f"a tuple of {len(values)}" if many else type(hx).__name__
        wanted = ", ".join(f"{name}_0" for name in widths)
        raise ValueError(f"hx is {got}; accepted: {f'({wanted})' if len(widths) > 1 else wanted}")
    found = {}
    for (name, width), value in zip(widths.items(), values, strict=True):
        shape = (count, width) if batch.single else (count, batch.x.shape[0], width)
        tensor = isinstance(value, Tensor)
        if not tensor or not value.is_floating_point() or value.shape != shape:
            got = f"{value.dtype} {tuple(value.shape)}" if tensor else type(value).__name__
            raise ValueError(f"{name}_0 is {got}; accepted: a float tensor {list(shape)}")
        found[name] = value[:, None] if batch.single else batch.rows(value, 1)
    return found


def give_states(
    last: Sequence[Mapping[str, Tensor]], names: Sequence[str], batch: Batch, dtype: torch.dtype
) -> Hidden:
    """The inverse of `read_states`. h has the dtype of the output; the others keep their precision."""
    values = []
    for name in names:
        value = batch.caller_rows(torch.stack([state[name] for state in last]), 1)
        value = value[:, 0] if batch.single else value
        values.append(value.to(dtype) if name == "h" else value)
    return tuple(values) if len(values) > 1 else values[0]
