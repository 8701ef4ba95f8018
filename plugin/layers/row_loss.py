"""-log softmax(logits)[target] of rows of logits, in one launch per direction on a GPU.

torch would convert bfloat16 logits to float32, write their log softmax, and read both again for the gradient:
six times as many bytes. Here the logits are read once per direction; all sums are in float32.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from ..common.torch_private import is_plain
from . import gpu
from .core import DTYPES, _core, address
from .gpu import current_stream


def row_losses(logits: Tensor, target: Tensor) -> Tensor:
    """The losses [N] in float32 of logits [N, V] and classes [N], as torch's cross_entropy (also for -100)."""
    ours = is_plain([logits, target]) and has_kernel(logits) and target.dtype == torch.int64
    if not ours:
        return cross_entropy(logits.float(), target, reduction="none")
    losses: Tensor = _RowLosses.apply(logits.contiguous(), target.contiguous())
    return losses


def has_kernel(logits: Tensor) -> bool:
    return logits.numel() > 0 and gpu.has_kernels(logits.dtype, logits.device)


class _RowLosses(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor) -> Tensor:
        losses, log_sums = logits.new_empty(2, len(logits), dtype=torch.float32)
        _run(logits, target, log_sums, None, losses)
        ctx.save_for_backward(logits, target, log_sums)
        return losses

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        logits, target, log_sums = ctx.saved_tensors
        found = torch.empty_like(logits)
        _run(logits, target, log_sums, grad, found)
        return found, None


def _run(
    logits: Tensor, target: Tensor, log_sums: Tensor, grad: Tensor | None, out: Tensor
) -> None:
    _core.cross_entropy_cuda(
        dtype=DTYPES[logits.dtype],
        device=logits.get_device(),
        rows=logits.shape[0],
        classes=logits.shape[1],
        logits=address(logits),
        target=address(target),
        log_sums=address(log_sums),
        grad=address(grad),
        grad_step=0 if grad is None else grad.stride(0),
        out=address(out),
        stream=current_stream(logits.device),
    )
