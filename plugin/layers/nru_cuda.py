"""The cell nru on a GPU: its recurrence in one call of the compiled core per chunk and direction.

The signature is that of the reference. What a step multiplies with is packed by torch operations, so autograd
takes the gradients of the packed arrays apart. cpp/src/kernels/cuda/nru/nru.h has the layouts: `rows` has a
line [h, m, 1, 0...] for every step, h and m before it, so the next line begins with the step's own h. The
gradients of all weights are two products over all lines, after the loop over time.

In bfloat16, h and z are rounded for the products, m to two bfloat16 numbers; states, alpha, beta, write and
erase are float32.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad

from ..cells import Cell
from ..cells.nru import OUTPUTS
from ..common.torch_private import without_autocast
from .core import DTYPES, _core, address
from .gpu import UNIT_MULTIPLE, allows_tf32, current_stream, widened
from .sketch import KINDS_OF_CALLS


class _Sizes(NamedTuple):
    batch: int
    steps: int
    hidden: int
    memory: int
    heads: int
    parts: int  # of m in a line


def recurrence(
    cell: type[Cell],
    zx: Tensor,
    weights: Mapping[str, Tensor],
    state: Mapping[str, Tensor],
    vectors: Mapping[str, Tensor],
    options: Mapping[str, Any],
    dt: Tensor | None = None,
    lengths: Tensor | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """`reference_recurrence` for this cell; B, T >= 1."""
    batch, steps, hidden = zx.shape
    memory = options["memory_size"]
    parts = 2 if zx.dtype == torch.bfloat16 else 1
    sizes = _Sizes(batch, steps, hidden, memory, options["heads"], parts)
    to_h, to_m = widened(hidden) - hidden, widened(memory) - memory
    with without_autocast(zx.device):
        w = {name: value.to(zx.dtype) for name, value in weights.items()}
        uv = torch.cat([_padded(w["weight_h"], to_h), *[_padded(w["weight_m"], to_m)] * parts], 1)
        of_h, of_m = torch.cat([w[f"weight_{name}"] for name in OUTPUTS]).tensor_split([hidden], 1)
        bias = torch.cat([w[f"bias_{name}"] for name in OUTPUTS])[:, None]
        one = _padded(bias, UNIT_MULTIPLE - 1)
        maps = torch.cat([*[_padded(of_m, to_m)] * parts, one, _padded(of_h, to_h)], 1)
        norm = None
        if options["layer_norm"]:
            norm = torch.stack([w["norm_scale"], w["norm_shift"]]).float()
        y, h, m = _Recurrence.apply(
            sizes,
            None if lengths is None else lengths.contiguous(),
            _padded(zx, to_h),
            _padded(uv, 0, to_h),
            _padded(maps, 0, widened(len(maps)) - len(maps)),
            norm,
            state["h"],
            _padded(state["m"], to_m),
        )
    return y, {"h": h, "m": m[:, :memory]}


class _Recurrence(torch.autograd.Function):
    """Returns y [B,T,H] as a strided view, h [B,H] and m [B,M']."""

    @staticmethod
    def forward(
        ctx: Any,
        sizes: _Sizes,
        lengths: Tensor | None,
        zx: Tensor,
        uv: Tensor,
        maps: Tensor,
        norm: Tensor | None,
        h: Tensor,
        m: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        batch, steps, hidden = sizes[:3]
        wide, both, line = zx.shape[2], uv.shape[1], maps.shape[1]
        rows = zx.new_empty(batch * (steps + 1) + 1, line)
        rows[:, both:] = 0
        rows[:, both] = 1
        rows[-1] = 0  # finite: the last line's gradient is 0
        lines = rows[:-1].unflatten(0, (batch, steps + 1))
        lines[:, 0, :wide] = _padded(h, wide - hidden)
        lines[:, 0, wide : wide + m.shape[1]] = m
        lines[:, 0, wide + m.shape[1] : both] = (m - m.to(zx.dtype))[:, : both - wide - m.shape[1]]
        zx, uv, maps = zx.contiguous(), uv.contiguous(), maps.contiguous()
        z, h, m = torch.empty_like(zx), _copied(h), _copied(m)
        out = zx.new_empty(batch, steps, len(maps), dtype=torch.float32)
        _run(sizes, False, zx, uv, maps, norm, lengths, z, rows, out, h, m)
        ctx.sizes = sizes
        ctx.save_for_backward(uv, maps, norm, lengths, None if norm is None else z, rows, out)
        ctx.set_materialize_grads(False)
        return lines[:, 1:, :hidden], h, m

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, dy: Tensor | None, dh: Tensor | None, dm: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        batch, steps, hidden, memory = ctx.sizes[:4]
        saved: list[Any] = [None if t is None else t.contiguous() for t in ctx.saved_tensors]
        uv, maps, norm, lengths, z, rows, out = saved
        (wide, both), wide_m = uv.shape, widened(memory)
        with without_autocast(rows.device):
            dy = None if dy is None else dy.to(rows.dtype).contiguous()
            dh = None if dh is None else dh.contiguous()
            dm = out.new_zeros(batch, wide_m) if dm is None else _copied(dm)
            from_z = out.new_zeros(batch, wide + wide_m)
            from_out = out.new_zeros(batch, maps.shape[1])
            dz = rows.new_empty(batch, steps + 1, wide)
            dout = rows.new_empty(batch, steps + 1, len(maps))
            dnorm = None if norm is None else out.new_zeros(2, batch, hidden)
            arrays = (uv, maps, norm, lengths, z, rows, out, dy, dh, dm, from_z, from_out)
            _run(ctx.sizes, True, *arrays, dz, dout, dnorm)
            needs = ctx.needs_input_grad
            duv = dz.flatten(0, 1).t() @ rows[:-1, :both] if needs[3] else None
            shifted = rows.flatten()[wide:].narrow(0, 0, rows[:-1].numel()).view_as(rows[:-1])
            dmaps = dout.flatten(0, 1).t() @ shifted if needs[4] else None
            of_h = from_z[:, :hidden]
            if lengths is not None and dh is not None:
                of_h = torch.where((lengths <= 0)[:, None], dh, of_h)
            of_m = dm + from_z[:, wide:] + from_out[:, :wide_m]
        of_norm = None if dnorm is None else dnorm.sum(1)
        return None, None, dz[:, :steps], duv, dmaps, of_norm, of_h, of_m


def _padded(tensor: Tensor, columns: int, rows: int = 0) -> Tensor:
    """The tensor with columns on the right, and rows at the end, of zeros."""
    return pad(tensor, (0, columns, 0, rows)) if columns or rows else tensor


def _copied(tensor: Tensor) -> Tensor:
    return tensor.clone(memory_format=torch.contiguous_format)


def _run(sizes: _Sizes, backward: bool, *arrays: Tensor | None) -> None:
    """Runs the core on the arrays of its NruForward or NruBackward."""
    like = next(array for array in arrays if array is not None)
    device = like.device
    made = _prepared(
        like.get_device(), DTYPES[like.dtype], sizes, allows_tf32(like.dtype), backward
    )
    workspace = torch.empty(made.workspace, dtype=torch.uint8, device=device)
    made.run([address(array) for array in (*arrays, workspace)], current_stream(device))


@lru_cache(KINDS_OF_CALLS)
def _prepared(device: int, dtype: str, sizes: _Sizes, tf32: bool, backward: bool) -> Any:
    return _core.Nru(device=device, dtype=dtype, shape=sizes, tf32=tf32, backward=backward)
