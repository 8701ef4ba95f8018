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
    cell: str, dtype: torch.dtype, hidden: int, x: Tensor, others: list[Tensor]
) -> bool:
    """Whether `run_layer` can run: on the CPU, or on a GPU as teams, and nobody watches operators.

    float64 is for checking, where torch's products serve.

    others: all tensors besides x that the layer reads.
    """
    if torch.compiler.is_compiling() or not x.numel() or not check_transforms([x, *others]):
        return False
    if x.is_cpu:
        return dtype != torch.float64
    return takes_teams(cell, dtype, x.device, x.shape[0], widened(hidden))


def run_layer(
    cell: str,
    constants: list[float],
    dtype: torch.dtype,
    x: Tensor,
    weight_x: Tensor,
    bias: Tensor,
    weight_h: Tensor,
    states: list[Tensor],
    vectors: list[tuple[str, Tensor]],
    dt: Tensor | None,
    lengths: Tensor | None,
) -> tuple[Tensor, list[Tensor]]:
    """(y [B,T,H] of that dtype, the states after it). dt, lengths: dense.

    states: each before it [B,H], or none: 0. vectors: link and raw parameter of each.
    """
    if dt is not None and dt.requires_grad:
        refuse("the gradient with respect to dt")
    grad, links, raw = torch.is_grad_enabled(), [v[0] for v in vectors], [v[1] for v in vectors]
    if x.is_cpu:
        task = Task(cell, constants, links, dtype, grad)
        y, *last = WholeLayer.apply(task, dt, lengths, x, weight_x, bias, weight_h, *states, *raw)
        return y, last
    leaves = (x, weight_x, bias, weight_h, _stacked(states), _stacked(map(value_of, links, raw)))
    keep = grad and any(t is not None and t.requires_grad for t in leaves)
    y, last = TeamLayer.apply(cell, constants, dtype, keep, *leaves, dt, lengths)
    return y, [last[i] for i in range(last.shape[0])]  # each may be changed in place


def _stacked(tensors: Iterable[Tensor]) -> Tensor | None:
    """As the teams read them: one array, exact. One tensor is only looked at in another way."""
    rows = [t.to(EXACT) for t in tensors]
    if len(rows) == 1:
        return rows[0].unsqueeze(0)
    return torch.stack(rows) if rows else None
