"""The gradients of activation regularisers (Merity et al. 2017), on a GPU in one launch.

    AR    alpha mean(d^2)                 2 alpha d / size of d
    TAR   beta mean((y_t - y_{t-1})^2)    -2 beta (y_{t+1} - 2 y_t + y_{t-1}) / number of differences

with y_0 and y_{T+1} equal to their neighbours. Both are multiplied by a count. Autograd would need four times
as many launches as the formulas below.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import torch
from torch import Tensor

from . import gpu
from .core import DTYPES, _core, address
from .gpu import current_stream

Term: TypeAlias = tuple[Tensor, float] | None
"""Activations, and the factor of their gradient."""


def regulariser_gradients(
    d: Tensor, y: Tensor, count: Tensor, alpha: float, beta: float
) -> list[tuple[Tensor, Tensor]]:
    """Activations, each with the gradient of its regulariser, in the same dtype. d: [B,T,H] or [B,H]; y:
    [B,T,H]; count: one number. A regulariser with a factor of 0, and TAR of one step, are left out."""
    ar: Term = (d, 2 * alpha / d.numel()) if alpha else None
    tar: Term = (y, -2 * beta / y[:, 1:].numel()) if beta and y.shape[1] > 1 else None
    terms = [term for term in (ar, tar) if term is not None]
    if terms and has_kernel([values for values, _ in terms], count):
        return _launch(ar, tar, count)
    found = []
    if ar is not None:
        found.append((d, _scaled(d.detach(), count, ar[1], d)))
    if tar is not None:
        own = y.detach()
        bends = torch.cat([own[:, :1], own, own[:, -1:]], 1).float().diff(n=2, dim=1)
        found.append((y, _scaled(bends, count, tar[1], y)))
    return found


def has_kernel(arrays: list[Tensor], count: Tensor) -> bool:
    """Whether one launch takes these arrays: all float32 or all bfloat16."""
    dtype, device = arrays[0].dtype, arrays[0].device
    same = all(
        (t.dtype, t.device, t.stride(-1)) == (dtype, device, 1) and not t.is_neg() for t in arrays
    )
    few = all(0 < t.numel() < 1 << 31 for t in arrays)
    same = same and (count.dtype, count.device) == (torch.float32, device)
    return same and few and gpu.has_kernels(dtype, device)


def _scaled(values: Tensor, count: Tensor, factor: float, like: Tensor) -> Tensor:
    # An array of one number, since torch would round a scalar on a GPU to the bfloat16 of the values.
    return torch.mul(values, (count * factor).reshape(1), out=torch.empty_like(like))


def _launch(ar: Term, tar: Term, count: Tensor) -> list[tuple[Tensor, Tensor]]:
    found: list[tuple[Tensor, Tensor]] = []

    def described(term: Term) -> Any:
        if term is None:
            return None
        root, factor = term
        gradient = torch.empty(root.shape, dtype=root.dtype, device=root.device)
        found.append((root, gradient))
        own = root.detach() if root.dim() == 3 else root.detach()[:, None]
        return address(own), own.stride()[:2], own.shape, factor, address(gradient)

    given = {"ar": described(ar), "tar": described(tar)}
    _core.regulariser_gradients_cuda(
        dtype=DTYPES[found[0][0].dtype],
        device=count.get_device(),
        count=address(count),
        **given,
        stream=current_stream(count.device),
    )
    return found
