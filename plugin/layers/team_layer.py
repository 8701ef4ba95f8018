"""A whole layer on a GPU as one autograd function: `WholeLayer`, laid out for the teams of fused_cuda.py.

- A step of a row is [x, 1, h before it], with more ones where x is widened. So W's product reads [x, 1], with
  the bias as a column of W and zeros beside it, and the gradients of W, bias and U are one product of dz with
  the whole.
- Every row of the batch has one step more than it needs, for the h of the last: h is stored one step late,
  behind the h that the row starts from.
- Widths are rounded up to 16 bytes: other products are several times slower. A unit that was added has weights
  of 0 to and from every other, so that it changes nothing of them.
- z is written over W x, and dz over z: no array is as large as these. Backward a second time makes z again.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .fused_checks import cell_info, expect, refuse
from .fused_cuda import dense, is_dense, team_backward, team_forward, widened
from .pieces import COPIED, Pieces


class TeamLayer(torch.autograd.Function):
    """(y [B,T,H], the states after it [S,B,H])."""

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
        gates, info, exact = weight_h.shape[0] // hidden, cell_info(cell), torch.float32
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

        wide, deep = widened(hidden), widened(inputs + 1)
        make: dict[str, Any] = {"dtype": dtype, "device": x.device}
        rows = torch.empty(batch, steps + 1, deep + wide, **make)
        w = torch.empty(gates, wide, deep, **make)
        first = torch.empty(info["states"], batch, wide, device=x.device)
        packed = None if vectors is None else torch.empty(len(vectors), wide, device=x.device)
        blocks, pieces = (gates, hidden), Pieces()
        pieces.add(rows[:, :, :deep], x, fill=1.0)
        pieces.add(rows[:, 0, deep:], None if state is None else state[0])
        pieces.add(w[:, :, :inputs], weight_x.unflatten(0, blocks))
        pieces.add(w[:, :, inputs:], bias.unflatten(0, blocks)[..., None])
        pieces.add(first, state)
        if packed is not None:
            pieces.add(packed, vectors, fill=1.0)
        u = weight_h
        if wide != hidden or weight_h.dtype != dtype or not is_dense(weight_h):
            u = torch.empty(gates, wide, wide, **make)
            pieces.add(u, weight_h.unflatten(0, blocks))
        pieces.run(x.device)

        arrays = (rows, w, u, first, packed, dense(dt), dense(lengths))
        z, trail, last = _recurrence(cell, constants, keep, *arrays)
        if keep:
            ctx.cell, ctx.constants, ctx.z_is_spent = cell, constants, False
            ctx.sizes = inputs, hidden
            ctx.dtypes = [t.dtype for t in (x, weight_x, bias, weight_h)]
            ctx.set_materialize_grads(False)
            ctx.save_for_backward(*arrays, z, trail)
        return rows[:, 1:, deep : deep + hidden], last[..., :hidden]

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        if torch.is_grad_enabled():
            refuse("double backward")
        with torch.autocast("cuda", enabled=False):  # its products are of the layer's own dtype
            return _gradients(ctx, *grads)


def _gradients(ctx: Any, grad_y: Tensor | None, grad_last: Tensor | None) -> tuple[Any, ...]:
    """Of all arguments of forward."""
    *arrays, z, trail = ctx.saved_tensors
    rows, w, u, first, packed, dt, lengths = arrays
    if ctx.z_is_spent:
        z, trail, _ = _recurrence(ctx.cell, ctx.constants, True, *arrays)
    ctx.z_is_spent = True
    (inputs, hidden), needs = ctx.sizes, ctx.needs_input_grad[4:10]
    batch, pitch, _ = rows.shape
    gates, wide, deep = w.shape
    grad_state = torch.empty_like(first)
    by_row = first.new_empty(0 if packed is None else len(packed), batch, wide)
    pieces = Pieces()
    if grad_y is not None and (hidden % 2 or not is_dense(grad_y)):
        grad_y = _widened(pieces, grad_y, wide)
    if grad_last is not None and (hidden != wide or not is_dense(grad_last)):
        grad_last = _widened(pieces, grad_last, wide)
    pieces.run(rows.device)
    y_step = wide if grad_y is None else grad_y.shape[2]
    read = (u, packed, dt, lengths, z, trail, grad_y, grad_last)
    outputs = (z, grad_state, by_row)
    team_backward(
        ctx.cell, ctx.constants, (batch, pitch - 1, wide), pitch, y_step, (*read, *outputs)
    )
    flat = z.flatten(0, 1)
    pieces = Pieces()
    grad_x = grad_w = grad_b = grad_u = None
    if needs[0]:
        back = (flat @ w.flatten(0, 1)).unflatten(0, (batch, pitch))
        grad_x = _filled(pieces, back[:, :-1, :inputs], ctx.dtypes[0])
    if any(needs[1:4]):
        blocks = (flat.t() @ rows.flatten(0, 1)).unflatten(0, (gates, wide))[:, :hidden]
        grad_w = _filled(pieces, blocks[..., :inputs], ctx.dtypes[1]).flatten(0, 1)
        grad_b = _filled(pieces, blocks[..., inputs], ctx.dtypes[2]).flatten()
        grad_u = _filled(pieces, blocks[..., deep : deep + hidden], ctx.dtypes[3]).flatten(0, 1)
    pieces.run(rows.device)
    rest = [
        grad_state[..., :hidden] if needs[4] else None,
        by_row.sum(1)[:, :hidden] if needs[5] else None,
    ]
    return *(None,) * 4, grad_x, grad_w, grad_b, grad_u, *rest, None, None


def _recurrence(
    cell: str,
    constants: list[float],
    keep: bool,
    rows: Tensor,
    w: Tensor,
    u: Tensor,
    first: Tensor,
    packed: Tensor | None,
    dt: Tensor | None,
    lengths: Tensor | None,
) -> tuple[Tensor, Tensor | None, Tensor]:
    """Fills in the h of `rows`; (z, trail, the states after it). Without `keep`: (W x, None, the states)."""
    batch, pitch, row = rows.shape
    _, wide, deep = w.shape
    z = (rows[..., :deep].flatten(0, 1) @ w.flatten(0, 1).t()).unflatten(0, (batch, pitch))
    last, trail = torch.empty_like(first), None
    if keep:
        reads = int(cell_info(cell)["reads"]).bit_count()
        trail = first.new_empty(reads, batch, pitch, wide)
    arrays = (z, u, first, packed, dt, lengths, rows[:, 1:, deep:], last)
    kept = None if trail is None else (z, trail)
    team_forward(cell, constants, (batch, pitch - 1, wide), pitch, row, arrays, kept)
    return z, trail, last


def _widened(pieces: Pieces, source: Tensor, wide: int) -> Tensor:
    """A dense copy with zeros up to that width, made by `pieces`."""
    to = source.new_empty(*source.shape[:-1], wide)
    pieces.add(to, source)
    return to


def _filled(pieces: Pieces, source: Tensor, dtype: torch.dtype) -> Tensor:
    """A dense copy of that dtype, made by `pieces` where they can."""
    if dtype not in COPIED:
        return source.to(dtype, memory_format=torch.contiguous_format)
    to = torch.empty(source.shape, dtype=dtype, device=source.device)
    pieces.add(to, source)
    return to
