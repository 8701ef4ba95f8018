"""A whole layer on the CPU as one autograd function: one call of the core each way, the products included.

A small layer spends longer in torch's dispatcher and autograd than in the kernels, and every product of torch's
wakes other threads than the core's. So `Recurrent` takes this way wherever nothing watches operators
(torch.compile, an exporter, a transform); the result is the same but for the last bits.
"""

from __future__ import annotations

from typing import Any, NoReturn

import torch
from torch import Tensor

from .core import _core
from .fused_checks import DTYPES, cell_info, expect, refuse
from .working_memory import empty

EXACT = torch.float32
"""Of states and sums."""
Call = tuple[str, str, list[float], tuple[int, int, int, int], tuple[bool, bool]]
"""What both directions begin with: cell, dtype, constants, (B, T, I, H), are x and the weights exact."""


class WholeLayer(torch.autograd.Function):
    """(y [B,T,H] of `dtype`, float32 or bfloat16; the states after it [S,B,H]). B, T >= 1."""

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
        hidden, info = weight_h.shape[1], cell_info(cell)
        width, states = info["gates"] * hidden, info["states"]
        ctx.dtypes = [t.dtype for t in (x, weight_x, bias, weight_h)]
        x, *weights = (_readable(t, dtype) for t in (x, weight_x, bias, weight_h))
        if any(w.dtype != weights[0].dtype for w in weights):
            weights = [w.to(dtype) for w in weights]
        shapes = ((width, inputs), (width,), (width, hidden))
        for name, weight, shape in zip(
            ("weight_x", "bias", "weight_h"), weights, shapes, strict=True
        ):
            expect(x, name, weight, weights[0].dtype, *shape)
        expect(x, "state", state, EXACT, states, batch, hidden)
        expect(x, "vectors", vectors, EXACT, info["vectors"], hidden)
        expect(x, "dt", dt, EXACT, batch, steps)
        expect(x, "lengths", lengths, torch.int64, batch)
        others = [None if t is None else _dense(t) for t in (state, vectors, dt, lengths)]
        y = empty((batch, steps, hidden), dtype, x.device)
        last = torch.empty(states, batch, hidden, dtype=EXACT, device=x.device)
        kept: list[Tensor | None] = [None, None]
        if keep:
            reads = int(info["reads"]).bit_count()
            kept = [
                empty(shape, EXACT, x.device)
                for shape in ((batch, steps, width), (reads, batch, steps, hidden))
            ]
        sizes, wide = (batch, steps, inputs, hidden), (x.dtype == EXACT, weights[0].dtype == EXACT)
        call: Call = (cell, DTYPES[dtype], constants, sizes, wide)
        arrays = _addresses(x, *weights, *others, y, last, *kept)
        _core.layer_forward(*call, torch.get_num_threads(), arrays)
        if keep:
            ctx.call = call
            ctx.set_materialize_grads(False)
            ctx.save_for_backward(x, weights[0], weights[2], *others, y, *kept)
        return y, last

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        run = _Once.apply if torch.is_grad_enabled() else _gradients
        made = run(ctx.call, ctx.needs_input_grad[4:10], *ctx.saved_tensors, *grads)
        products = [
            g if g is None or g.dtype == d else g.to(d)
            for g, d in zip(made[:4], ctx.dtypes, strict=True)
        ]
        return *(None,) * 4, *products, *made[4:], None, None


def _gradients(
    call: Call,
    needs: tuple[bool, ...],
    x: Tensor,
    weight_x: Tensor,
    weight_h: Tensor,
    state: Tensor | None,
    vectors: Tensor | None,
    dt: Tensor | None,
    lengths: Tensor | None,
    y: Tensor,
    z: Tensor,
    trail: Tensor,
    grad_y: Tensor | None,
    grad_last: Tensor | None,
) -> tuple[Tensor | None, ...]:
    """Of x, weight_x, bias, weight_h, state and vectors; None where it is not needed."""
    states = cell_info(call[0])["states"]
    expect(y, "grad_y", grad_y, y.dtype, *y.shape)
    expect(y, "grad_last", grad_last, EXACT, states, y.shape[0], y.shape[2])
    grads = [None if g is None else _dense(g) for g in (grad_y, grad_last)]
    made = [
        empty(x.shape, x.dtype, x.device) if needs[0] else None,
        torch.empty_like(weight_x) if needs[1] else None,
        weight_x.new_empty(weight_x.shape[0]),
        torch.empty_like(weight_h) if needs[3] else None,
        y.new_empty(states, y.shape[0], y.shape[2], dtype=EXACT),
        None if vectors is None else torch.empty_like(vectors),
    ]
    read = (x, weight_x, weight_h, state, vectors, dt, lengths, y, z, trail, *grads)
    _core.layer_backward(*call, torch.get_num_threads(), _addresses(*read, *made))
    return tuple(g if need else None for g, need in zip(made, needs, strict=True))


class _Once(torch.autograd.Function):
    """`_gradients` where somebody may want to differentiate once more."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> tuple[Tensor | None, ...]:
        return _gradients(*arguments)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> NoReturn:
        refuse("double backward")


def _readable(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """Dense, of `dtype` or exact."""
    return _dense(tensor if tensor.dtype in (dtype, EXACT) else tensor.to(dtype))


def _dense(tensor: Tensor) -> Tensor:
    """As the core reads it: contiguous, and not as a view whose sign torch would turn on the way."""
    if tensor.is_contiguous() and not tensor.is_neg():  # asked first: a step has many that are
        return tensor
    return tensor.resolve_neg().contiguous()


def _addresses(*tensors: Tensor | None) -> list[int]:
    return [0 if t is None else t.data_ptr() for t in tensors]
