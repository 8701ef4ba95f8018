"""The gradient's norm, and its limit."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor


def clip_gradients(parameters: Iterable[Tensor], limit: float = math.inf) -> Tensor:
    """Scale the gradients so that their norm together is at most `limit`; the norm before it.

    Gradients through hundreds of steps may be large for a moment. The squares of float32 numbers from 2^64 on
    are infinite in float32, and with torch's own clipping the update would be lost: so the sum is in float64.
    Without a limit it is not: such a gradient must show as infinite, since the optimizer squares it, too.
    """
    owners = [p for p in parameters if p.grad is not None]
    if not owners:
        return torch.zeros((), dtype=torch.float64)
    dtype = torch.float64 if limit < math.inf else None
    norms = [torch.linalg.vector_norm(p.grad, dtype=dtype) for p in owners]
    norm = torch.linalg.vector_norm(torch.stack(norms)).double()
    torch.nn.utils.clip_grads_with_norm_(owners, limit, norm)
    return norm
