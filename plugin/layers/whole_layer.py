"""A whole layer as one autograd function: input projection and recurrence with few calls of torch.

A small layer spends longer in torch's dispatcher and autograd than in the kernels, so that `Recurrent` takes
this way wherever nothing watches operators (torch.compile, an exporter, a transform); the result is the same.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .fused import (
    backward_operator,
    check_transforms,
    gradient_of_u,
    refuse,
    run_backward,
    run_forward,
)
from .fused_cuda import takes_teams
from .projection import Projection, on_gpu, plain, widened


def takes_whole_layer(
    cell: str, dtype: torch.dtype, hidden: int, x: Tensor, others: list[Tensor]
) -> bool:
    """Whether `run_layer` can run: on the CPU, or on a GPU as teams, and nobody watches operators.

    others: all tensors besides x that the layer reads.
    """
    if torch.compiler.is_compiling() or not x.numel() or not check_transforms([x, *others]):
        return False
    return x.device.type == "cpu" or takes_teams(cell, dtype, x.shape[0], widened(hidden))


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
    """(y [B,T,H] of that dtype, the states after it). state [S,B,H], or None: 0."""
    if dt is not None and dt.requires_grad:
        refuse("the gradient with respect to dt")
    packed = torch.stack(vectors) if vectors else None
    leaves = (x, weight_x, bias, weight_h, state, packed)
    keep = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in leaves)
    y, last = _Layer.apply(cell, constants, dtype, keep, *leaves, dt, lengths)
    hidden = weight_h.shape[1]
    if y.shape[2] != hidden:
        y, last = y[..., :hidden], last[..., :hidden]
    return y, [last[i] for i in range(last.shape[0])]


class _Layer(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        cell: str,
        constants: list[float],
        dtype: torch.dtype,
        keep: bool,
        x: Tensor,
        weight_x: Tensor,
        bias: Tensor,
        weight_h: Tensor,
        state: Tensor | None,
        vectors: Tensor | None,
        dt: Tensor | None,
        lengths: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        prepare = on_gpu if x.device.type == "cuda" else plain
        made = prepare(cell, dtype, x, weight_x, bias, weight_h, state, vectors)
        y, last, z, trail = run_forward(
            cell, made.zx, made.u, made.first, made.vectors, constants, dt, lengths, keep
        )
        if keep:
            ctx.cell, ctx.constants, ctx.made = cell, constants, made.without_arrays()
            ctx.set_materialize_grads(False)
            arrays = (made.left, made.w, made.u, made.first, made.vectors)
            ctx.save_for_backward(*arrays, dt, lengths, y, z, trail)
        return y, last

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        # With gradients on, as the operator, which refuses to be differentiated again.
        run = backward_operator if torch.is_grad_enabled() else run_backward
        left, w, u, first, vectors, dt, lengths, y, z, trail = ctx.saved_tensors
        made: Projection = ctx.made
        grad_z, grad_state, grad_vectors = run(
            ctx.cell, u, vectors, ctx.constants, dt, lengths, z, trail, y, *grads
        )
        of_x, of_w, of_b, of_u, of_state, of_vectors = ctx.needs_input_grad[4:10]
        flat = grad_z.flatten(0, 1)
        grad_x = made.gradient_of_x(flat, w, y.shape[:2]) if of_x else None
        grad_w, grad_b = made.gradient_of_w(flat, left) if of_w or of_b else (None, None)
        grad_u = None
        if of_u:
            grad_u = made.cut_u(gradient_of_u(grad_z, y, first[0].to(y.dtype)))
        hidden = made.hidden
        return (
            *(None, None, None, None),
            *(grad_x, grad_w, grad_b, grad_u),
            grad_state[..., :hidden] if of_state else None,
            grad_vectors[:, :hidden] if of_vectors else None,
            *(None, None),
        )
