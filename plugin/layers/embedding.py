"""Rows of a table of embeddings. On a GPU, the gradient of the table takes one launch, without atomics.

torch would multiply the gradient of every token by its word's factor, fill the table's gradient with zeros, and
add the tokens in a few thread blocks.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..common.torch_private import is_plain
from . import gpu
from .core import _core, address
from .gpu import current_stream

MOST_TOKENS = 3072
MOST_ROWS = 100_000
"""More tokens are sorted by torch. In more rows, finding the tokens of each takes longer than torch does."""


def embedded(weight: Tensor, tokens: Tensor, factors: Tensor | None) -> Tensor:
    """weight[token], times factors[token]: weight [V,E], tokens int [B,T], factors [V] without a gradient."""
    if not is_plain([weight, tokens]) or not has_kernel(weight, tokens):
        return _rows(weight, tokens, factors)
    rows: Tensor = _Embedded.apply(weight, tokens, factors)
    return rows


def has_kernel(weight: Tensor, tokens: Tensor) -> bool:
    return (
        weight.dtype == torch.float32
        and weight.numel() > 0
        and len(weight) <= MOST_ROWS
        and tokens.numel() <= MOST_TOKENS
        and gpu.has_kernels(weight.dtype, weight.device)
    )


def scaled(x: Tensor, tokens: Tensor, factors: Tensor | None) -> Tensor:
    """x [B,T,E] times factors[token]; None: x."""
    return x if factors is None else x * factors[tokens.long()].unsqueeze(-1)


def _rows(weight: Tensor, tokens: Tensor, factors: Tensor | None) -> Tensor:
    return scaled(torch.nn.functional.embedding(tokens, weight), tokens, factors)


class _Embedded(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, tokens: Tensor, factors: Tensor | None) -> Tensor:
        ctx.save_for_backward(tokens, factors)
        ctx.shape = weight.shape
        return _rows(weight, tokens, factors)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        tokens, factors = ctx.saved_tensors
        if torch.is_grad_enabled():  # for a second derivative
            every = scaled(grad, tokens, factors).flatten(0, -2)
            return grad.new_zeros(ctx.shape).index_add(0, tokens.flatten(), every), None, None
        tokens, grad = tokens.contiguous(), grad.contiguous()
        found = grad.new_empty(ctx.shape)
        _core.embedding_gradient_cuda(
            device=grad.get_device(),
            wide=tokens.dtype == torch.int64,
            count=tokens.numel(),
            rows=found.shape[0],
            width=found.shape[1],
            tokens=address(tokens),
            grad=address(grad),
            factors=address(factors),
            out=address(found),
            stream=current_stream(grad.device),
        )
        return found, None, None
