"""Layers with a projected output, h = P h~. The kernels have no projection, so it is folded into U.

    z_t = W x_t + U h_{t-1} + b = W x_t + (U P) h~_{t-1} + b          for t > 1
    z_1 = W x_1 + U h_0 + b = [W U] [x_1; h_0] + b,  h~_0 = 0

The layer runs over h~ with weights U P, and its output is projected afterwards. If h_0 is given, it is appended
to the first input. This is exact for cells whose formula reads h only through U.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from ..cells import Cell
from ..common.checks import check_integer
from ..layers.over_time import CellOverTime, Numbers


def check_projection(cell: type[Cell], hidden_size: int, proj_size: int) -> None:
    """Raises ValueError unless proj_size is in range and the cell's formula allows a projection."""
    check_integer("proj_size", proj_size, least=0)
    if proj_size >= hidden_size:
        raise ValueError(
            f"proj_size = {proj_size}; accepted: 0 (none) to {hidden_size - 1}, below hidden_size"
        )
    if proj_size and (not cell.elementwise or "s.h" in cell.tape().inputs()):
        raise ValueError(
            f"proj_size = {proj_size} with cell {cell.name!r}, whose formula reads h itself; accepted: 0"
        )


def run_projected(
    over_time: CellOverTime,
    projection: Tensor,
    x: Tensor,
    numbers: Numbers,
    state: Mapping[str, Tensor] | None,
    dt: Tensor | None,
    lengths: Tensor | None,
    finite_padding: bool,
) -> tuple[Tensor, dict[str, Tensor]]:
    """(y [B,T,P], states) with h [B,P]. numbers.weight_h: U [G*H,P]."""
    weight_x, _, weight_h = numbers[:3]
    numbers = numbers._replace(weight_h=weight_h @ projection)
    inner = None
    if state is not None:
        if len(weight_h):
            first = state["h"].to(x.dtype)[:, None]
            x = torch.cat([x, nn.functional.pad(first, (0, 0, 0, x.shape[1] - 1))], 2)
            numbers = numbers._replace(weight_x=torch.cat([weight_x, weight_h], 1))
        inner = {**state, "h": over_time.zeros(x.shape[0], weight_x)["h"]}
    y, last = over_time.run(x, numbers, inner, dt, lengths, finite_padding)
    h = nn.functional.linear(last["h"].to(y.dtype), projection.to(y.dtype))
    if state is not None and (lengths is not None or not x.shape[1]):
        moved = x.shape[1] > 0 if lengths is None else (lengths > 0)[:, None]
        h = torch.where(torch.as_tensor(moved, device=h.device), h, state["h"].to(h.dtype))
    return nn.functional.linear(y, projection.to(y.dtype)), {**last, "h": h}
