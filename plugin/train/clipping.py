"""The gradient's norm, and its limit."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor


def clip_gradients(parameters: Iterable[Tensor], limit: float = math.inf) -> Tensor:
    """Scale the gradients so that their norm together is at most `limit`; the norm before, in float64.

    Gradients through hundreds of steps may be large for a moment. The squares of float32 numbers from 2^64 on
    are infinite in float32, and with torch's own clipping the update would be lost.
    """
    owners = [p for p in parameters if p.grad is not None]
    norms = [torch.linalg.vector_norm(p.grad, dtype=torch.float64) for p in owners]
    norm = torch.linalg.vector_norm(torch.stack(norms))
    torch.nn.utils.clip_grads_with_norm_(owners, limit, norm)
    return norm
