"""A whole layer on the CPU as one autograd function: input projection and recurrence with few calls of torch.

A small layer spends longer in torch's dispatcher and autograd than in the kernels, so that `Recurrent` takes
this way wherever nothing watches operators (torch.compile, an exporter, a transform); the result is the same.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .fused import backward_operator, cell_info, gradient_of_u, run_backward, run_forward
from .working_memory import empty


class WholeLayer(torch.autograd.Function):
    """(y [B,T,H] of `dtype`, the states after it [S,B,H])."""

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
        hidden = weight_h.shape[1]
        exact = torch.float64 if dtype == torch.float64 else torch.float32
        if state is None:
            state = x.new_zeros(cell_info(cell)["states"], x.shape[0], hidden, dtype=exact)
        if vectors is None:
            vectors = x.new_empty(0, hidden, dtype=exact)
        left, w, u = x.flatten(0, 1).to(dtype), weight_x.to(dtype), weight_h.to(dtype)
        zx = empty((*x.shape[:2], w.shape[0]), dtype, x.device)
        torch.addmm(bias.to(dtype), left, w.t(), out=zx.view(-1, w.shape[0]))
        y, last, z, trail = run_forward(cell, zx, u, state, vectors, constants, dt, lengths, keep)
        if keep:
            ctx.cell, ctx.constants = cell, constants
            ctx.dtypes = [t.dtype for t in (x, weight_x, bias, weight_h)]
            ctx.set_materialize_grads(False)
            ctx.save_for_backward(left, w, u, state, vectors, dt, lengths, y, z, trail)
        return y, last

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        left, w, u, state, vectors, dt, lengths, y, z, trail = ctx.saved_tensors
        # With gradients on, as the operator, which refuses to be differentiated again.
        run = backward_operator if torch.is_grad_enabled() else run_backward
        grad_z, grad_state, grad_vectors = run(
            ctx.cell, u, vectors, ctx.constants, dt, lengths, z, trail, y, *grads
        )
        flat, needs = grad_z.flatten(0, 1), ctx.needs_input_grad[4:10]
        made = [
            (flat @ w).unflatten(0, y.shape[:2]) if needs[0] else None,
            flat.t() @ left if needs[1] else None,
            flat.sum(0) if needs[2] else None,
            gradient_of_u(grad_z, y, state[0].to(y.dtype)) if needs[3] else None,
        ]
        made = [g if g is None else g.to(d) for g, d in zip(made, ctx.dtypes, strict=True)]
        rest = [grad_state if needs[4] else None, grad_vectors if needs[5] else None]
        return *(None,) * 4, *made, *rest, None, None
