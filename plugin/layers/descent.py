"""The end of an update in few launches on a GPU: the norm of all gradients, and a step of gradient descent.

torch's operations (scale, decay and step, average) are a pass over the weights or gradients each, and read and
write half as many bytes again.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from . import gpu
from .core import _core, address
from .gpu import current_stream

BLOCKS = 2048
"""Thread blocks that compute a norm, at most. Each keeps one sum."""


def has_kernels(arrays: Sequence[Tensor]) -> bool:
    """Whether the kernels below accept these arrays: float32, contiguous, on one GPU."""
    return (
        bool(arrays)
        and gpu.has_kernels(torch.float32, arrays[0].device)
        and all(
            t.dtype == torch.float32 and t.is_contiguous() and t.device == arrays[0].device
            for t in arrays
        )
    )


def norm_and_factor(gradients: Sequence[Tensor], count: Tensor, limit: float) -> Tensor:
    """float64 [2]: the norm of all gradients divided by `count`, summed in float64, and the factor by which to
    multiply them, so that they are divided and their norm is at most `limit`."""
    device = gradients[0].device
    count = count.to(device, torch.float64)
    out = torch.zeros(2 + BLOCKS, dtype=torch.float64, device=device)
    _core.gradient_norm_cuda(
        device=gradients[0].get_device(),
        gradients=[address(g) for g in gradients],
        lengths=[g.numel() for g in gradients],
        count=address(count),
        limit=limit,
        blocks=BLOCKS,
        out=address(out),
        stream=current_stream(device),
    )
    return out[:2]


def descend(
    weights: Sequence[Tensor],
    gradients: Sequence[Tensor],
    averages: Sequence[Tensor],
    factor: Tensor | None,
    rate: float,
    decay: float,
    share: float,
) -> None:
    """w -= rate (factor g + decay w), then a += share (w - a) if there are averages. factor: a float64 number
    on the GPU; None: 1."""
    _core.descend_cuda(
        device=weights[0].get_device(),
        weights=[address(w) for w in weights],
        gradients=[address(g) for g in gradients],
        averages=[address(a) for a in averages],
        lengths=[w.numel() for w in weights],
        factor=address(factor),
        rate=rate,
        decay=decay,
        share=share,
        stream=current_stream(weights[0].device),
    )
    torch.autograd.graph.increment_version([*weights, *averages])
