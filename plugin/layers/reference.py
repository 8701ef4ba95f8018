"""The recurrence by autograd over the cell's program, on any device. All other implementations must agree with
it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ..cells import Cell
from ..cells.base import CompositeCell
from ..cells.tape.torch_ops import TorchOps
from ..common.torch_private import without_autocast


def reference_recurrence(
    cell: type[Cell],
    zx: Tensor,
    weights: Mapping[str, Tensor],
    state: Mapping[str, Tensor],
    vectors: Mapping[str, Tensor],
    options: Mapping[str, Any],
    dt: Tensor | None = None,
    lengths: Tensor | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """(y [B,T,H], last states) from zx = W x + b [B,T,G*H].

    Arithmetic and states use the dtype of the states. h is rounded to the dtype of zx for the product with U.
    """
    exact = state["h"].dtype
    rounded = zx.dtype
    weights = {name: w.to(rounded).to(exact) for name, w in weights.items()}
    state = {name: value.clone() for name, value in state.items()}
    outputs = []
    with without_autocast(zx.device):
        if issubclass(cell, CompositeCell):
            weights = dict(cell.combined(TorchOps, weights))
        for t in range(zx.shape[1]):
            fed = state["h"].to(rounded).to(exact)
            step_dt = 1.0 if dt is None else dt[:, t, None]
            new = cell.advance(
                TorchOps, zx[:, t].to(exact), fed, weights, state, vectors, options, step_dt
            )
            h = new["h"]
            if lengths is not None:
                live = (t < lengths)[:, None]
                h = torch.where(live, h, torch.zeros_like(h))
                new = {name: torch.where(live, value, state[name]) for name, value in new.items()}
            outputs.append(h.to(rounded))
            state = new
    if not outputs:
        return zx.new_empty(zx.shape[0], 0, state["h"].shape[-1]), state
    # The caller may modify the last states in place, but backward may need the original values.
    return torch.stack(outputs, dim=1), {name: value.clone() for name, value in state.items()}
