"""Divides the gradient by a count, and limits its norm."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor

from ..layers import descent


def divide_gradients(
    parameters: Iterable[Tensor], count: Tensor, limit: float = math.inf
) -> Tensor:
    """Divide the gradients by `count` (float64; if 0, by a tiny number), and multiply them so that their norm
    is at most `limit`; returns the norm before that limit. With a limit, one pass over the gradients does both.

    Gradients back-propagated through hundreds of steps can be very large in a single update. The square of a
    float32 above 2^64 overflows, and torch's own clipping would lose the update, so the sum is in float64.
    Without a limit the sum is in float32: such a gradient must show as infinite, since the optimizer also
    squares it.
    """
    gradients = [p.grad for p in parameters if p.grad is not None]
    if not gradients:
        return torch.zeros((), dtype=torch.float64)
    if limit == math.inf:
        torch._foreach_mul_(gradients, _inverse(count).to(gradients[0].dtype))
        return _norm(gradients)
    norm, factor = norm_and_factor(gradients, count, limit)
    torch._foreach_mul_(gradients, factor.to(gradients[0].dtype))
    return norm


def norm_and_factor(gradients: list[Tensor], count: Tensor, limit: float) -> Tensor:
    """float64 [2]: the norm that `divide_gradients` returns, and the factor by which it multiplies."""
    if descent.has_kernels(gradients):
        return descent.norm_and_factor(gradients, count, limit)
    scale = _inverse(count)
    norm = _norm(gradients, torch.float64) * scale
    return torch.stack([norm, scale * (limit / (norm + 1e-6)).clamp(max=1.0)])


def _inverse(count: Tensor) -> Tensor:
    return 1 / count.clamp(min=torch.finfo(torch.float32).tiny)


def _norm(gradients: list[Tensor], dtype: torch.dtype | None = None) -> Tensor:
    norms = torch._foreach_norm(gradients, 2, dtype=dtype)
    return torch.linalg.vector_norm(torch.stack(norms)).double()
