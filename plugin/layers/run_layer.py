"""Which way a fused layer takes, and the call of it: a whole layer at once wherever that is possible."""

from __future__ import annotations

import torch
from torch import Tensor

from .fused import check_transforms
from .fused_checks import refuse
from .fused_cuda import takes_teams, widened
from .team_layer import TeamLayer
from .whole_layer import WholeLayer


def takes_whole_layer(
    cell: str, dtype: torch.dtype, hidden: int, x: Tensor, others: list[Tensor]
) -> bool:
    """Whether `run_layer` can run: on the CPU, or on a GPU as teams, and nobody watches operators.

    float64 is for checking, where torch's products serve.

    others: all tensors besides x that the layer reads.
    """
    if torch.compiler.is_compiling() or not x.numel() or not check_transforms([x, *others]):
        return False
    if x.device.type == "cpu":
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
    state: Tensor | None,
    vectors: list[Tensor],
    dt: Tensor | None,
    lengths: Tensor | None,
) -> tuple[Tensor, list[Tensor]]:
    """(y [B,T,H] of that dtype, the states after it). state [S,B,H], or None: 0. dt, lengths: dense."""
    if dt is not None and dt.requires_grad:
        refuse("the gradient with respect to dt")
    packed = _stacked(vectors) if vectors else None
    leaves = (x, weight_x, bias, weight_h, state, packed)
    keep = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in leaves)
    way = TeamLayer if x.device.type == "cuda" else WholeLayer
    y, last = way.apply(cell, constants, dtype, keep, *leaves, dt, lengths)
    return y, [last[i] for i in range(last.shape[0])]  # each may be changed in place


def _stacked(vectors: list[Tensor]) -> Tensor:
    """As torch.stack; but one is only looked at in another way, which costs less both ways."""
    return vectors[0].unsqueeze(0) if len(vectors) == 1 else torch.stack(vectors)
