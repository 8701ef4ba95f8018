"""Which way a fused layer takes, and the call of it: a whole layer at once wherever that is possible."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from .fused import check_transforms
from .fused_checks import refuse
from .fused_cuda import takes_teams, widened
from .team_layer import TeamLayer
from .vectors import value_of
from .whole_layer import EXACT, Task, WholeLayer


def takes_whole_layer(
    cell: str, dtype: torch.dtype, hidden: int, arrays: list[Tensor], dt: Tensor | None
) -> bool:
    """Whether `run_layer` can run: on the CPU, or on a GPU as teams, and nobody watches operators.

    float64 is for checking, where torch's products serve.
    """
    x = arrays[0]
    read = arrays if dt is None else [*arrays, dt]
    if torch.compiler.is_compiling() or not x.numel() or not check_transforms(read):
        return False
    if x.is_cpu:
        return dtype != torch.float64
    return takes_teams(cell, dtype, x.device, x.shape[0], widened(hidden))


def run_layer(
    cell: str,
    constants: list[float],
    links: list[str],
    dtype: torch.dtype,
    arrays: list[Tensor],
    dt: Tensor | None,
    lengths: Tensor | None,
) -> tuple[Tensor, list[Tensor]]:
    """(y [B,T,H] of that dtype, the states after it).

    arrays: x, weight_x, bias, weight_h; each state before it [B,H], or none: 0; the vectors, raw.
    """
    if dt is not None and dt.requires_grad:
        refuse("the gradient with respect to dt")
    grad = torch.is_grad_enabled()
    if arrays[0].is_cpu:
        task = Task(cell, constants, links, dtype, dt, lengths, grad)
        y, *last = WholeLayer.apply(task, *arrays)
        return y, last
    split = len(arrays) - len(links)
    values = map(value_of, links, arrays[split:])
    leaves = (*arrays[:4], _stacked(arrays[4:split]), _stacked(values))
    keep = grad and any(t is not None and t.requires_grad for t in leaves)
    y, last = TeamLayer.apply(cell, constants, dtype, keep, *leaves, dt, lengths)
    return y, [last[i] for i in range(last.shape[0])]  # each may be changed in place


def _stacked(tensors: Iterable[Tensor]) -> Tensor | None:
    """As the teams read them: one array, exact. One tensor is only looked at in another way."""
    rows = [t.to(EXACT) for t in tensors]
    if len(rows) == 1:
        return rows[0].unsqueeze(0)
    return torch.stack(rows) if rows else None
