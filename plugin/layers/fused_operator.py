"""The recurrence as a torch operator with its own backward: real and fake kernels, and what autograd is told.

First-order gradients only: double backward and vmap are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NoReturn

import torch
from torch import Tensor

from . import fused_cuda
from .autocast import without_autocast
from .core import _core
from .fused_checks import DTYPES, check_backward, check_forward, kept_shapes, refuse
from .working_memory import empty

Make = Callable[[Sequence[Any], torch.dtype, torch.device], Tensor]


def _fresh(shape: Sequence[Any], dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.empty(shape, dtype=dtype, device=device)


def _forward_outputs(
    zx: Tensor,
    cell: str,
    batch: Any,
    steps: Any,
    hidden: Any,
    info: _core.CellInfo,
    exact: torch.dtype,
    keep: bool,
    make: Make = _fresh,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    z, trail = (
        make(shape, dtype, zx.device)
        for dtype, shape in kept_shapes(zx, cell, batch, steps, hidden, keep)
    )
    last = zx.new_empty(info["states"], batch, hidden, dtype=exact)
    return zx.new_empty(batch, steps, hidden), last, z, trail


def _backward_outputs(
    weight_h: Tensor,
    batch: Any,
    steps: Any,
    hidden: Any,
    info: _core.CellInfo,
    exact: torch.dtype,
    make: Make = _fresh,
) -> tuple[Tensor, Tensor, Tensor]:
    return (
        make((batch, steps, info["gates"] * hidden), weight_h.dtype, weight_h.device),
        weight_h.new_empty(info["states"], batch, hidden, dtype=exact),
        weight_h.new_empty(info["vectors"], hidden, dtype=exact),
    )


def _address(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()


def run_forward(
    cell: str,
    zx: Tensor,
    weight_h: Tensor,
    state: Tensor,
    vectors: Tensor,
    constants: list[float],
    dt: Tensor | None,
    lengths: Tensor | None,
    keep: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(y, last, z, trail); z and trail are what backward needs, empty unless `keep`."""
    sizes = check_forward(cell, zx, weight_h, state, vectors, dt, lengths)
    inputs = [
        None if t is None else t.contiguous() for t in (zx, weight_h, state, vectors, dt, lengths)
    ]
    outputs = _forward_outputs(zx, cell, *sizes, keep, empty)
    if zx.device.type == "cuda":
        fused_cuda.run_forward(cell, constants, inputs, outputs, keep)
        return outputs
    y, last, z, trail = outputs
    kept = [z, trail] if keep else [None, None]
    arrays = map(_address, [*inputs, y, last, *kept])
    threads = torch.get_num_threads()
    _core.recurrence_forward(cell, DTYPES[zx.dtype], constants, threads, *sizes[:3], *arrays)
    return outputs


def run_backward(
    cell: str,
    weight_h: Tensor,
    vectors: Tensor,
    constants: list[float],
    dt: Tensor | None,
    lengths: Tensor | None,
    z: Tensor,
    trail: Tensor,
    y: Tensor,
    grad_y: Tensor | None,
    grad_last: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """(gradient of zx, of the initial state, of the vectors).

    Of y the shape is read. It requires a gradient whenever the result depends on something that does, which
    lets a second derivative be noticed, and refused.
    """
    inputs = (weight_h, vectors, dt, lengths, z, trail, grad_y, grad_last)
    sizes = check_backward(cell, *inputs[:6], y, *inputs[6:])
    outputs = _backward_outputs(weight_h, *sizes, empty)
    dense = [None if t is None else t.contiguous() for t in inputs]
    if weight_h.device.type == "cuda":
        fused_cuda.run_backward(cell, constants, dense, sizes[:3], outputs)
        return outputs
    arrays = map(_address, [*dense, *outputs])
    dtype, threads = DTYPES[weight_h.dtype], torch.get_num_threads()
    _core.recurrence_backward(cell, dtype, constants, threads, *sizes[:3], *arrays)
    return outputs


operator = partial(torch.library.custom_op, mutates_args=(), device_types=("cpu", "cuda"))
forward_operator = operator("tsm::recurrence")(run_forward)
backward_operator = operator("tsm::recurrence_backward")(run_backward)
forward_operator.register_fake(
    lambda cell, zx, weight_h, state, vectors, constants, dt, lengths, keep: _forward_outputs(
        zx, cell, *check_forward(cell, zx, weight_h, state, vectors, dt, lengths), keep
    )
)
backward_operator.register_fake(
    lambda cell, weight_h, vectors, constants, *others: _backward_outputs(
        weight_h, *check_backward(cell, weight_h, vectors, *others)
    )
)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    cell, _, weight_h, state, vectors, constants, dt, lengths, keep = inputs
    y, _, z, trail = output
    ctx.cell, ctx.constants, ctx.keep = cell, constants, keep
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(z, trail)
    ctx.save_for_backward(weight_h, state, vectors, dt, lengths, y, z, trail)


def _gradients(
    ctx: Any, grad_y: Tensor | None, grad_last: Tensor | None, *_: Any
) -> tuple[Any, ...]:
    if not ctx.keep:
        raise RuntimeError("tsm::recurrence was called with keep=False, so it has no gradient")
    weight_h, state, vectors, dt, lengths, y, z, trail = ctx.saved_tensors
    grad_z, grad_state, grad_vectors = backward_operator(
        ctx.cell, weight_h, vectors, ctx.constants, dt, lengths, z, trail, y, grad_y, grad_last
    )
    grad_u = None
    if ctx.needs_input_grad[2]:
        with without_autocast(y.device):  # of the layer's dtype, whoever calls
            grad_u = gradient_of_u(grad_z, y, state[0].to(y.dtype))
    return None, grad_z, grad_u, grad_state, grad_vectors, None, None, None, None


def gradient_of_u(grad_z: Tensor, y: Tensor, first: Tensor) -> Tensor:
    """dU = sum over rows and steps of dz_t h_{t-1}^T, one large product that is best left to torch.

    h_{t-1} is y one step earlier, so y is read in place, shifted; that pairs the first step of each row with
    the end of the row before it, which a small product replaces by the row's first h.
    """
    if y.shape[1] == 0:
        return grad_z.new_zeros(grad_z.shape[2], y.shape[2])
    if y.dtype == torch.bfloat16:  # taking a sum apart would round it twice
        before = torch.cat([first[:, None], y[:, :-1]], dim=1)
        return grad_z.flatten(0, 1).t() @ before.flatten(0, 1)
    shifted = grad_z.flatten(0, 1)[1:].t() @ y.flatten(0, 1)[:-1]
    first = torch.cat([first[:1], first[1:] - y[:-1, -1]])
    return shifted.addmm_(grad_z[:, 0].t(), first)


def _no_second_derivative(ctx: Any, *gradients: Any) -> NoReturn:
    refuse("double backward")


def _no_vmap(*args: Any) -> NoReturn:
    refuse("vmap")


forward_operator.register_autograd(_gradients, setup_context=_save)
backward_operator.register_autograd(
    _no_second_derivative, setup_context=lambda ctx, inputs, output: None
)
forward_operator.register_vmap(_no_vmap)
backward_operator.register_vmap(_no_vmap)
