"""A layer on a GPU whose U does not fit on the chip: one product by torch and one kernel per step.

A cell without U has no product.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear, pad

from .checks import expect
from .contract import Gradients, LayerCall
from .core import _core, address, cell_info
from .layer_cuda import check_inputs, current_stream, widened

STACKED_STATES = True
READS_INPUTS = True


def forward(
    call: LayerCall,
    x: Tensor,
    weight_x: Tensor,
    bias: Tensor,
    weight_h: Tensor,
    state: Sequence[Tensor],
    vectors: Tensor | None,
    dt: Tensor | None,
    lengths: Tensor | None,
    keep: bool,
) -> tuple[Tensor, list[Tensor], tuple[Tensor, ...]]:
    """Returns y [B,T,H], [the last states [S,B,H]] and the arrays for backward (none unless `keep`)."""
    check_inputs(call, x, weight_x, bias, weight_h, state, vectors, dt, lengths)
    batch, steps, _, hidden = call.shape
    wide, info = widened(hidden), cell_info(call.cell)
    w, b, u, values = _padded(call, weight_x, bias, weight_h, vectors)
    now = x.new_zeros(info["states"], batch, wide, dtype=torch.float32)
    for i, one in enumerate(state):
        now[i, :, :hidden] = one
    shapes = [size for _, size in saved_shapes(call, True)]
    y = x.new_empty(shapes[0], dtype=call.dtype)
    before, z = (now.new_empty(size if keep else (0,)) for size in shapes[1:])
    one_z, after = now.new_empty(shapes[2][1:]), torch.empty_like(now)
    with torch.cuda.device(x.device), torch.autocast("cuda", enabled=False):
        zx = linear(x.to(call.dtype), w, b)
        for t in range(steps):
            z_t = z[t] if keep else one_z
            if keep:
                before[t].copy_(now)
            if not len(u):
                z_t.copy_(zx[:, t])
            elif call.dtype == torch.float32:
                torch.addmm(zx[:, t], now[0], u.t(), out=z_t)
            else:
                torch.add(zx[:, t], now[0].to(call.dtype) @ u.t(), out=z_t)
            dt_t = None if dt is None else dt[:, t].contiguous()
            _core.step_forward_cuda(
                **_step(call, z_t, now, values, dt_t),
                next=address(after),
                stream=current_stream(x.device),
            )
            if lengths is not None:
                live = (t < lengths)[:, None]
                torch.where(live, after, now, out=after)
                y[:, t] = torch.where(live, after[0], 0.0)
            else:
                y[:, t] = after[0]
            now, after = after, now
    saved = (y, before, z) if keep else ()
    return y[..., :hidden].contiguous(), [now[..., :hidden].contiguous()], saved


def backward(
    call: LayerCall,
    needs: Sequence[bool],
    x: Tensor,
    weight_x: Tensor,
    weight_h: Tensor,
    h: Tensor | None,
    vectors: Tensor | None,
    dt: Tensor | None,
    lengths: Tensor | None,
    y: Tensor,
    saved: Sequence[Tensor],
    grad_y: Tensor | None,
    grad_last: Sequence[Tensor | None],
    overwrite: bool,
) -> Gradients:
    """Gradients in the layer's dtype."""
    batch, steps, _, hidden = call.shape
    info, wide = cell_info(call.cell), widened(hidden)
    gates, blocks = info["gates"], (info["gates"], wide)
    rows, before, z = saved
    (of_last,) = grad_last
    expect(z, "grad_y", grad_y, call.dtype, batch, steps, hidden)
    expect(z, "the gradient of the states", of_last, torch.float32, info["states"], batch, hidden)
    w, _, u, values = _padded(call, weight_x, None, weight_h, vectors)
    d = before.new_zeros(info["states"], batch, wide)
    if of_last is not None:
        d[..., :hidden] = of_last
    grad_z = z.new_empty(batch, steps, gates * wide, dtype=call.dtype)
    dz, earlier = z.new_empty(batch, gates * wide), torch.empty_like(d)
    of_step = z.new_empty(info["vectors"], batch, wide)
    by_row = torch.zeros_like(of_step)
    with torch.cuda.device(z.device), torch.autocast("cuda", enabled=False):
        for t in reversed(range(steps)):
            live = None if lengths is None else (t < lengths)[:, None]
            held = d
            if grad_y is not None:
                d = d.clone() if live is not None else d
                d[0, :, :hidden] += grad_y[:, t]
            dt_t = None if dt is None else dt[:, t].contiguous()
            _core.step_backward_cuda(
                **_step(call, z[t], before[t], values, dt_t),
                grad_next=address(d),
                grad_z=address(dz),
                grad_state=address(earlier),
                grad_vectors=address(of_step),
                stream=current_stream(z.device),
            )
            if live is not None:
                dz.masked_fill_(~live, 0.0)
                torch.where(live, earlier, held, out=earlier)
                of_step.masked_fill_(~live, 0.0)
            by_row += of_step
            grad_z[:, t] = dz
            if len(u):
                earlier[0] += grad_z[:, t] @ u
            d, earlier = earlier, torch.empty_like(earlier) if live is not None else d
        flat = grad_z.flatten(0, 1)
        grad_x = grad_z @ w if needs[0] else None
        grad_w = flat.t() @ x.to(call.dtype).flatten(0, 1) if needs[1] else None
        grad_u = None
        if needs[3] and len(u):
            first = rows.new_zeros(batch, wide)
            if h is not None:
                first[:, :hidden] = h
            grad_u = _gradient_of_u(grad_z, rows, first).unflatten(0, blocks)
            grad_u = grad_u[:, :hidden, :hidden].flatten(0, 1)
    return Gradients(
        grad_x,
        None if grad_w is None else grad_w.unflatten(0, blocks)[:, :hidden].flatten(0, 1),
        flat.sum(0).unflatten(0, blocks)[:, :hidden].flatten(),
        grad_u,
        d[..., :hidden],
        None if vectors is None else by_row.sum(1)[:, :hidden].flatten(),
    )


def saved_shapes(call: LayerCall, keep: bool) -> list[tuple[torch.dtype, tuple[int, ...]]]:
    """The arrays that forward saves: y, then the states before each step and z, all padded."""
    if not keep:
        return []
    batch, steps, _, hidden = call.shape
    wide, info = widened(hidden), cell_info(call.cell)
    return [
        (call.dtype, (batch, steps, wide)),
        (torch.float32, (steps, info["states"], batch, wide)),
        (torch.float32, (steps, batch, info["gates"] * wide)),
    ]


def _padded(
    call: LayerCall,
    weight_x: Tensor,
    bias: Tensor | None,
    weight_h: Tensor,
    vectors: Tensor | None,
) -> tuple[Tensor, Tensor | None, Tensor, Tensor | None]:
    """Weights in the layer's dtype and values of the vectors, with units padded to 16 bytes.

    Padding units have zero weights to and from all other units, so they do not affect the result.
    """
    hidden = call.shape[3]
    more, blocks = widened(hidden) - hidden, (-1, hidden)
    w, u = (t.to(call.dtype).unflatten(0, blocks) for t in (weight_x, weight_h))
    w, u = pad(w, (0, 0, 0, more)), pad(u, (0, more, 0, more))
    b = None if bias is None else pad(bias.to(call.dtype).unflatten(0, blocks), (0, more)).flatten()
    values = None if vectors is None else pad(vectors.view(-1, hidden), (0, more), value=1.0)
    return w.flatten(0, 1), b, u.flatten(0, 1), values


def _step(
    call: LayerCall, z: Tensor, state: Tensor, vectors: Tensor | None, dt: Tensor | None
) -> dict[str, Any]:
    """The arguments of the element-wise kernel, forward and backward. They are addresses, so the caller must
    keep the tensors alive."""
    return {
        "cell": call.cell,
        "constants": call.constants,
        "batch": call.shape[0],
        "hidden": widened(call.shape[3]),
        "z": address(z),
        "state": address(state),
        "vectors": address(vectors),
        "dt": address(dt),
    }


def _gradient_of_u(grad_z: Tensor, y: Tensor, first: Tensor) -> Tensor:
    """dU = sum over rows and steps of dz_t h_{t-1}^T."""
    before = torch.cat([first[:, None], y[:, :-1]], dim=1)
    return grad_z.flatten(0, 1).t() @ before.flatten(0, 1)
