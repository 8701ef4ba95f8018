"""Checks of what a caller hands to a layer. They read values on the CPU only, so that no GPU has to wait."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ..cells import Cell


def _readable(tensor: Tensor) -> bool:
    """Whether its values may be looked at: not while a graph is traced, not on a device."""
    return tensor.device.type == "cpu" and tensor.numel() > 0 and not torch.compiler.is_compiling()


def check_input(x: Tensor, input_size: int, dtype: torch.dtype) -> None:
    if not isinstance(x, Tensor) or x.dim() != 3 or x.shape[-1] != input_size:
        got = tuple(x.shape) if isinstance(x, Tensor) else type(x).__name__
        raise ValueError(f"x has shape {got}; accepted: [B, T, {input_size}]")
    if x.dtype != dtype and not torch.is_autocast_enabled(x.device.type):
        raise ValueError(f"x is {x.dtype}; accepted: the layer's {dtype}, or any under autocast")


def check_state(
    state: Mapping[str, Tensor], cell: type[Cell], widths: Mapping[str, int], batch: int
) -> Mapping[str, Tensor]:
    if set(state) != set(cell.states):
        raise ValueError(
            f"state has {sorted(state)}; accepted for cell {cell.name!r}: {sorted(cell.states)}"
        )
    for name, width in widths.items():
        value = state[name]
        if not value.is_floating_point() or tuple(value.shape) != (batch, width):
            raise ValueError(
                f"state[{name!r}] is {value.dtype} {tuple(value.shape)}; "
                f"accepted: a float tensor [{batch}, {width}]"
            )
    return state


def check_lengths(lengths: Tensor | Sequence[int], batch: int, steps: int) -> Tensor:
    lengths = torch.as_tensor(lengths)
    if lengths.is_floating_point() or tuple(lengths.shape) != (batch,):
        raise ValueError(
            f"lengths is {lengths.dtype} {tuple(lengths.shape)}; accepted: whole numbers [{batch}]"
        )
    if _readable(lengths):
        low, high = int(lengths.min()), int(lengths.max())
        if low < 0 or high > steps:
            raise ValueError(f"lengths has {low if low < 0 else high}; accepted: 0 to T = {steps}")
    return lengths


def check_dt(
    dt: Tensor, cell: type[Cell], options: Mapping[str, Any], batch: int, steps: int
) -> Tensor:
    if not cell.takes_dt:
        raise ValueError(f"dt was given, but cell {cell.name!r} takes none")
    dt = torch.as_tensor(dt)
    if not dt.is_floating_point() or tuple(dt.shape) != (batch, steps):
        raise ValueError(
            f"dt is {dt.dtype} {tuple(dt.shape)}; accepted: a float tensor [{batch}, {steps}]"
        )
    if _readable(dt):
        bad = ~(torch.isfinite(dt) & (dt > 0))
        if bool(bad.any()):
            raise ValueError(f"dt has {dt[bad][0].item():g}; accepted: finite numbers above 0")
        least, shortest = cell.shortest_dt(options), dt.min().item()
        if shortest < least:
            raise ValueError(
                f"dt has {shortest:g}; accepted: {least:g} (the cell's eps) or more, or a smaller eps"
            )
    return dt
