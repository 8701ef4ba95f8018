"""A whole layer on the CPU as one autograd function: one call of the core each way, the products included.

A small layer spends longer in torch's dispatcher and autograd than in the kernels. So `Recurrent` takes this
way wherever nothing watches operators (torch.compile, an exporter, a transform); the result is the same but for
the last bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn

import torch
from torch import Tensor

from .core import _core
from .fused_checks import DTYPES, cell_info, expect, refuse
from .vectors import raw_gradient, value_of
from .working_memory import empty

EXACT = torch.float32
"""Of states and sums."""


class Task(NamedTuple):
    """What a call is told besides what may have a gradient."""

    cell: str
    constants: list[float]
    links: list[str]  # of the vectors
    dtype: torch.dtype  # of y: float32 or bfloat16
    dt: Tensor | None
    lengths: Tensor | None
    keep: bool  # what a gradient needs


class _Call(NamedTuple):
    """What the core is told first, both ways."""

    cell: str
    dtype: str
    constants: list[float]
    sizes: tuple[int, int, int, int]  # B, T, I, H
    wide: tuple[bool, bool]  # are x and the weights exact


class WholeLayer(torch.autograd.Function):
    """(y [B,T,H], then each state after it [B,H]). B, T >= 1.

    leaves: each state before it, or none: 0; then the vectors, raw. An operator around this function, as a link
    would be, costs as much as all that is done here in Python: so nothing is stacked, cast or linked outside.
    """

    @staticmethod
    def forward(
        ctx: Any,
        task: Task,
        x: Tensor,
        weight_x: Tensor,
        bias: Tensor,
        weight_h: Tensor,
        *leaves: Tensor,
    ) -> tuple[Tensor, ...]:
        cell, constants, links, dtype, dt, lengths, keep = task
        batch, steps, inputs = x.shape
        hidden, info = weight_h.shape[1], cell_info(cell)
        width = info["gates"] * hidden
        x, *weights = [_readable(t, dtype) for t in (x, weight_x, bias, weight_h)]
        kind = weights[0].dtype
        if weights[1].dtype != kind or weights[2].dtype != kind:
            kind, weights = dtype, [w.to(dtype) for w in weights]
        given = len(leaves) - len(links)
        first = [_readable(t, EXACT) for t in leaves[:given]]
        vectors = _values(links, leaves[given:])
        expect(x, "weight_x", weights[0], kind, width, inputs)
        expect(x, "bias", weights[1], kind, width)
        expect(x, "weight_h", weights[2], kind, width, hidden)
        for state in first:
            expect(x, "a state", state, EXACT, batch, hidden)
        expect(x, "vectors", vectors, EXACT, info["vectors"] * hidden)
        expect(x, "dt", dt, EXACT, batch, steps)
        expect(x, "lengths", lengths, torch.int64, batch)
        y = empty((batch, steps, hidden), dtype, x.device)
        last = [y.new_empty(batch, hidden, dtype=EXACT) for _ in range(info["states"])]
        kept = None
        if keep and any(ctx.needs_input_grad):
            parts = info["gates"] + int(info["reads"]).bit_count()  # z, and the trail
            kept = empty((parts * y.numel(),), EXACT, x.device)
        call = _Call(
            cell,
            DTYPES[dtype],
            constants,
            (batch, steps, inputs, hidden),
            (x.dtype == EXACT, kind == EXACT),
        )
        dt, lengths = [None if t is None else _dense(t) for t in (dt, lengths)]
        _core.layer_forward(
            *call,
            torch.get_num_threads(),
            _addresses(x, *weights, vectors, dt, lengths, y, kept),
            _addresses(*first),
            _addresses(*last),
        )
        if kept is not None:
            ctx.call, ctx.links = call, links
            ctx.kept_at = kept.data_ptr()
            ctx.set_materialize_grads(False)
            h = first[0].clone() if first else None  # who gave it may change it
            ctx.save_for_backward(x, weights[0], weights[2], h, vectors, dt, lengths, y, kept)
        return y, *last

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        saved = ctx.saved_tensors  # torch's own error where they are gone
        needs = ctx.needs_input_grad[1:]
        if ctx.kept_at is None:  # spent, but something raised before torch let them go
            raise RuntimeError("a second backward, the first was without retain_graph=True")
        run = _Once.apply if torch.is_grad_enabled() else _gradients
        # What was kept serves as memory where nobody reads it again: the graph is not retained, and no hook for
        # saved tensors has put something of its own in its place.
        again = torch._C._autograd._get_current_graph_task_keep_graph()
        spend = not again and saved[-1].data_ptr() == ctx.kept_at
        if spend:
            ctx.kept_at = None
        return None, *run(ctx.call, ctx.links, needs, spend, *saved, *grads)


def _gradients(
    call: _Call,
    links: list[str],
    needs: tuple[bool, ...],
    spend: bool,
    x: Tensor,
    weight_x: Tensor,
    weight_h: Tensor,
    h: Tensor | None,
    vectors: Tensor | None,
    dt: Tensor | None,
    lengths: Tensor | None,
    y: Tensor,
    kept: Tensor,
    grad_y: Tensor | None,
    *grad_states: Tensor | None,
) -> tuple[Tensor | None, ...]:
    """Of x, weight_x, bias, weight_h and all leaves; autograd leaves out what nobody needs.

    As exact as the core has them: autograd rounds each to the dtype of what it is the gradient of. spend:
    nobody needs `kept` after this, and the core may write over it.
    """
    grad_y = None if grad_y is None else _dense(grad_y)
    grad_last = [None if g is None else _dense(g) for g in grad_states]
    expect(y, "grad_y", grad_y, y.dtype, *y.shape)
    batch, _, hidden = y.shape
    for grad in grad_last:
        expect(y, "the gradient of a state", grad, EXACT, batch, hidden)
    grad_x = empty(x.shape, x.dtype, x.device) if needs[0] else None
    grad_weight_x = torch.empty_like(weight_x) if needs[1] else None
    grad_bias = weight_x.new_empty(weight_x.shape[0])
    grad_weight_h = torch.empty_like(weight_h) if needs[3] else None
    grad_first = kept.new_empty(len(grad_last), batch, hidden)
    grad_vectors = None if vectors is None else torch.empty_like(vectors)
    products = (grad_x, grad_weight_x, grad_bias, grad_weight_h)
    read = (x, weight_x, weight_h, h, vectors, dt, lengths, y, kept, grad_y)
    of_last = _addresses(*grad_last)
    _core.layer_backward(
        *call,
        torch.get_num_threads(),
        _addresses(*read, *products, grad_first, grad_vectors),
        of_last if any(of_last) else [],
        spend,
    )
    of_states = needs[4 : len(needs) - len(links)]
    states = grad_first if any(of_states) else [None] * len(of_states)
    return *products, *states, *_raw_gradients(links, grad_vectors, vectors)


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


def _values(links: list[str], raw: Sequence[Tensor]) -> Tensor | None:
    """The vectors, one after the other."""
    values = [_dense(value_of(link, r).float()) for link, r in zip(links, raw, strict=True)]
    if len(values) > 1:
        return torch.cat(values)
    return values[0] if values else None


def _raw_gradients(links: list[str], grads: Tensor | None, values: Tensor | None) -> list[Tensor]:
    """From the gradients of the vectors, one after the other."""
    if grads is None or values is None:
        return []
    if len(links) == 1:
        return [raw_gradient(links[0], grads, values)]
    parts = zip(links, grads.chunk(len(links)), values.chunk(len(links)), strict=True)
    return [raw_gradient(*part) for part in parts]
