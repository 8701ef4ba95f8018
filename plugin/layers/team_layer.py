"""A whole layer on a GPU as one autograd function: `WholeLayer`, laid out for the teams of fused_cuda.py.

- x gets a column of ones, so that the bias is a column of W and its gradient one of W's.
- Widths are rounded up to 16 bytes: other products are several times slower. A unit that was added has weights
  of 0 to and from every other, so that it changes nothing of them.
- Every row of the batch has one step more than it needs. h is stored one step late, behind the h it starts
  from, so that step t's dz stands beside the h it was made of, and U's gradient is one product of whole arrays.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .fused import cell_info, expect, refuse
from .fused_cuda import dense, kept, team_backward, team_forward, widened


class TeamLayer(torch.autograd.Function):
    """(y [B,T,H or more], the states after it [S,B,H or more])."""

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
        batch, steps, inputs = x.shape
        hidden = weight_h.shape[1]
        gates, wide, deep = weight_h.shape[0] // hidden, widened(hidden), widened(inputs + 1)
        pitch, exact, info = steps + 1, torch.float32, cell_info(cell)
        for name, tensor, *size in (
            ("weight_x", weight_x, gates * hidden, inputs),
            ("bias", bias, gates * hidden),
            ("weight_h", weight_h, gates * hidden, hidden),
        ):
            expect(x, name, tensor, tensor.dtype, *size)
        expect(x, "state", state, exact, info["states"], batch, hidden)
        expect(x, "vectors", vectors, exact, info["vectors"], hidden)
        expect(x, "dt", dt, exact, batch, steps)
        expect(x, "lengths", lengths, torch.int64, batch)
        make: dict[str, Any] = {"dtype": dtype, "device": x.device}
        left = torch.zeros(batch, pitch, deep, **make)
        left[:, :steps, :inputs].copy_(x)
        left[..., inputs].fill_(1)
        w = torch.zeros(gates, wide, deep, **make)
        w[:, :hidden, :inputs].copy_(weight_x.unflatten(0, (gates, hidden)))
        w[:, :hidden, inputs].copy_(bias.unflatten(0, (gates, hidden)))
        u = weight_h.to(dtype)
        if wide != hidden:
            u = torch.zeros(gates, wide, wide, **make)
            u[:, :hidden, :hidden].copy_(weight_h.unflatten(0, (gates, hidden)))
        if state is None:
            first = torch.zeros(info["states"], batch, wide, device=x.device)
        else:
            first = _wide(state, wide, 0.0)
        packed = None if vectors is None else _wide(vectors, wide, 1.0)
        zx = left.flatten(0, 1) @ w.flatten(0, 1).t()
        hs = torch.empty(batch, pitch, wide, **make)
        hs[:, 0].copy_(first[0])
        last = torch.empty_like(first)
        room = kept(dtype, x.device, cell, batch, pitch, wide, keep)
        z, trail = (torch.empty(shape, dtype=d, device=x.device) for d, shape in room)
        arrays = (zx, dense(u), first, packed, dense(dt), dense(lengths), hs[:, 1:], last)
        team_forward(
            cell, constants, (batch, steps, wide), pitch, arrays, (z, trail) if keep else None
        )
        if keep:
            ctx.cell, ctx.constants, ctx.sizes = cell, constants, (steps, inputs, hidden)
            ctx.dtypes = [t.dtype for t in (x, weight_x, bias, weight_h)]
            ctx.set_materialize_grads(False)
            ctx.save_for_backward(left, w, u, packed, dt, lengths, hs, z, trail)
        return hs[:, 1:], last

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        if torch.is_grad_enabled():
            refuse("double backward")
        left, w, u, packed, dt, lengths, hs, z, trail = ctx.saved_tensors
        (steps, inputs, hidden), needs = ctx.sizes, ctx.needs_input_grad[4:10]
        batch, pitch, wide = hs.shape
        gates = w.shape[0]
        grad_z = hs.new_empty(batch, pitch, gates * wide)
        grad_z[:, steps].zero_()
        states, vectors = cell_info(ctx.cell)["states"], 0 if packed is None else packed.shape[0]
        grad_state = hs.new_empty(states, batch, wide, dtype=torch.float32)
        by_row = hs.new_empty(vectors, batch, wide, dtype=torch.float32)
        read = [dense(t) for t in (u, packed, dt, lengths, z, trail, *grads)]
        arrays = (*read, grad_z, grad_state, by_row)
        team_backward(ctx.cell, ctx.constants, (batch, steps, wide), pitch, arrays)
        flat = grad_z.flatten(0, 1)
        grad_x = grad_w = grad_b = grad_u = None
        if needs[0]:
            back = (flat @ w.flatten(0, 1)).unflatten(0, (batch, pitch))
            grad_x = back[:, :steps, :inputs].to(ctx.dtypes[0])
        if needs[1] or needs[2]:
            blocks = (flat.t() @ left.flatten(0, 1)).unflatten(0, (gates, wide))[:, :hidden]
            grad_w = blocks[..., :inputs].reshape(-1, inputs).to(ctx.dtypes[1])
            grad_b = blocks[..., inputs].reshape(-1).to(ctx.dtypes[2])
        if needs[3]:
            blocks = (flat.t() @ hs.flatten(0, 1)).unflatten(0, (gates, wide))
            grad_u = blocks[:, :hidden, :hidden].reshape(-1, hidden).to(ctx.dtypes[3])
        rest = [
            grad_state[..., :hidden] if needs[4] else None,
            by_row.sum(1)[:, :hidden] if needs[5] else None,
        ]
        return *(None,) * 4, grad_x, grad_w, grad_b, grad_u, *rest, None, None


def _wide(values: Tensor, width: int, fill: float) -> Tensor:
    """values [..., H] as float32 [..., width], dense."""
    if values.shape[-1] == width:
        return values.float().contiguous()
    out = values.new_full((*values.shape[:-1], width), fill, dtype=torch.float32)
    out[..., : values.shape[-1]].copy_(values)
    return out
