"""Limits the norm of the gradient."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor


def clip_gradients(parameters: Iterable[Tensor], limit: float = math.inf) -> Tensor:
    """Scale the gradients so that their total norm is at most `limit`; returns the norm before scaling.

    Gradients back-propagated through hundreds of steps can be very large in a single update. The square of a
    float32 above 2^64 overflows, and torch's own clipping would lose the update, so the sum is in float64.
    Without a limit the sum is in float32: such a gradient must show as infinite, since the optimizer also
    squares it.
    """
    owners = [p for p in parameters if p.grad is not None]
    if not owners:
        return torch.zeros((), dtype=torch.float64)
    dtype = torch.float64 if limit < math.inf else None
    norms = [torch.linalg.vector_norm(p.grad, dtype=dtype) for p in owners]
    norm = torch.linalg.vector_norm(torch.stack(norms)).double()
    torch.nn.utils.clip_grads_with_norm_(owners, limit, norm)
    return norm
