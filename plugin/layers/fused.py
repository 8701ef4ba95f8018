"""The recurrence in the compiled core, as a torch operator with its own backward.

`fused_recurrence` has the signature and the meaning of `reference_recurrence`. Raw addresses know neither
dtype nor shape, so every tensor is checked in the real and in the fake kernels. First-order gradients only:
forward-mode differentiation, double backward and vmap are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import torch
from torch import Tensor
from torch.autograd import forward_ad

from ..cells import Cell, get_cell, list_cells
from ..cells.program import program_hash
from . import fused_cuda
from .core import _core, missing
from .working_memory import empty

# Cells whose formula is not the one that was compiled: an edit without `make cells` must not train the old one.
_changed = frozenset(
    name
    for name in set(_core.cells if _core else ()).intersection(list_cells())
    if program_hash(get_cell(name)) != _core.cells[name]["hash"]
)

DTYPES = {torch.float32: "float32", torch.float64: "float64", torch.bfloat16: "bfloat16"}


def why_not_fused(cell: type[Cell], dtype: torch.dtype, device: torch.device) -> str | None:
    """None where the compiled recurrence can run, else the reason that it cannot."""
    if _core is None:
        return missing
    if not cell.elementwise:
        return f"cell {cell.name!r} is not element-wise"
    if cell.name not in _core.cells:
        return f"cell {cell.name!r} is not compiled in"
    if cell.name in _changed:
        return f"cell {cell.name!r} was compiled with another formula (`make cells`, then rebuild)"
    if dtype not in DTYPES:
        return f"dtype {dtype} has no kernel (there are {', '.join(DTYPES.values())})"
    if device.type == "cuda":
        return fused_cuda.why_not(dtype)
    if device.type != "cpu":
        return f"device {device.type!r} has no kernel (there are cpu, cuda)"
    return None


def cell_info(cell: str) -> _core.CellInfo:
    """What the core knows of a cell that is compiled in."""
    return _core.cells[cell]


def fused_recurrence(
    cell: type[Cell],
    zx: Tensor,
    weights: Mapping[str, Tensor],
    state: Mapping[str, Tensor],
    vectors: Mapping[str, Tensor],
    options: Mapping[str, Any],
    dt: Tensor | None = None,
    lengths: Tensor | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """(y [B,T,H], last states) from zx = W x + b [B,T,G*H]."""
    exact = state["h"].dtype
    stacked = torch.stack([state[name] for name in cell.states])
    rows = [vectors[name].to(exact) for name in cell.vectors]
    packed = torch.stack(rows) if rows else zx.new_empty(0, stacked.shape[-1], dtype=exact)
    u = weights["weight_h"].to(zx.dtype)
    if lengths is not None:
        lengths = lengths.to(torch.int64)
    if dt is not None:
        dt = dt.to(exact)
        if dt.requires_grad:
            refuse("the gradient with respect to dt")
    inputs = (zx, u, stacked, packed)
    if not torch.compiler.is_compiling():
        check_transforms([*inputs, *([] if dt is None else [dt])])
    keep = torch.is_grad_enabled() and any(t.requires_grad for t in inputs)
    constants = [float(options[name]) for name in cell.constants]
    y, last, *_ = _forward(cell.name, zx, u, stacked, packed, constants, dt, lengths, keep)
    return y, {name: last[i].clone() for i, name in enumerate(cell.states)}


def check_transforms(inputs: list[Tensor]) -> bool:
    """True where the core may be called at once: ordinary tensors, and nobody who watches operators.

    Forward mode would silently give 0, and torch.func's own errors do not say what to do instead: refused.
    """
    forward = forward_ad._current_level >= 0
    if forward and any(forward_ad.unpack_dual(t).tangent is not None for t in inputs):
        refuse("forward-mode differentiation")
    if any(torch._C._functorch.is_functorch_wrapped_tensor(t) for t in inputs):
        refuse("a transform of torch.func (grad, vjp, jvp, jacrev, vmap)")
    watched = torch._C._len_torch_dispatch_stack() > 0 or torch._C._get_tracing_state()
    return not watched and all(type(t) in (Tensor, torch.nn.Parameter) for t in inputs)


def refuse(what: str) -> NoReturn:
    raise NotImplementedError(
        f'{what} is not available in the fused recurrence; build the layer with backend="reference"'
    )


def _sizes(cell: str, zx_or_y: Tensor, weight_h: Tensor) -> tuple[Any, Any, Any, _core.CellInfo]:
    if _core is None or cell not in _core.cells:
        raise ValueError(f"cell {cell!r} is not compiled in")
    info = _core.cells[cell]
    if zx_or_y.dim() != 3 or weight_h.dim() != 2:
        raise ValueError(
            f"zx and weight_h have {zx_or_y.dim()} and {weight_h.dim()} dimensions; accepted: 3 and 2"
        )
    batch, steps, _ = zx_or_y.shape
    return batch, steps, weight_h.shape[1], info


def expect(like: Tensor, name: str, tensor: Tensor | None, dtype: torch.dtype, *shape: Any) -> None:
    """ValueError unless an array that the core reads is what the core believes it to be."""
    if tensor is None:
        return
    if tensor.device != like.device or tensor.dtype != dtype or tuple(tensor.shape) != shape:
        raise ValueError(
            f"{name} is {tensor.dtype} {tuple(tensor.shape)} on {tensor.device}; "
            f"accepted: {dtype} {shape} on {like.device}"
        )


def _exact(dtype: torch.dtype) -> torch.dtype:
    if dtype not in DTYPES:
        raise ValueError(f"zx is {dtype}; accepted: {', '.join(DTYPES.values())}")
    return torch.float64 if dtype == torch.float64 else torch.float32


def _check_forward(
    cell: str,
    zx: Tensor,
    weight_h: Tensor,
    state: Tensor,
    vectors: Tensor,
    dt: Tensor | None,
    lengths: Tensor | None,
) -> tuple[Any, Any, Any, _core.CellInfo, torch.dtype]:
    batch, steps, hidden, info = _sizes(cell, zx, weight_h)
    exact = _exact(zx.dtype)
    width = info["gates"] * hidden
    expect(zx, "zx", zx, zx.dtype, batch, steps, width)
    expect(zx, "weight_h", weight_h, zx.dtype, width, hidden)
    expect(zx, "state", state, exact, info["states"], batch, hidden)
    expect(zx, "vectors", vectors, exact, info["vectors"], hidden)
    expect(zx, "dt", dt, exact, batch, steps)
    expect(zx, "lengths", lengths, torch.int64, batch)
    return batch, steps, hidden, info, exact


def _kept(
    like: Tensor, cell: str, batch: Any, steps: Any, hidden: Any, keep: bool
) -> list[tuple[torch.dtype, tuple[Any, ...]]]:
    """What backward needs: dtype and shape of z and of trail, empty unless `keep`."""
    if like.device.type == "cuda":
        return fused_cuda.kept(like.dtype, like.device, cell, batch, steps, hidden, keep)
    info, exact, kept = _core.cells[cell], _exact(like.dtype), batch if keep else 0
    reads = int(info["reads"]).bit_count()
    return [
        (exact, (kept, steps, info["gates"] * hidden)),
        (exact, (reads, kept, steps, hidden)),
    ]


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
        for dtype, shape in _kept(zx, cell, batch, steps, hidden, keep)
    )
    last = zx.new_empty(info["states"], batch, hidden, dtype=exact)
    return zx.new_empty(batch, steps, hidden), last, z, trail


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
    sizes = _check_forward(cell, zx, weight_h, state, vectors, dt, lengths)
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


@torch.library.custom_op("tsm::recurrence", mutates_args=(), device_types=("cpu", "cuda"))
def _forward(
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
    return run_forward(cell, zx, weight_h, state, vectors, constants, dt, lengths, keep)


@_forward.register_fake
def _(
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
    sizes = _check_forward(cell, zx, weight_h, state, vectors, dt, lengths)
    return _forward_outputs(zx, cell, *sizes, keep)


def _check_backward(
    cell: str,
    weight_h: Tensor,
    vectors: Tensor,
    dt: Tensor | None,
    lengths: Tensor | None,
    z: Tensor,
    trail: Tensor,
    y: Tensor,
    grad_y: Tensor | None,
    grad_last: Tensor | None,
) -> tuple[Any, Any, Any, _core.CellInfo, torch.dtype]:
    batch, steps, hidden, info = _sizes(cell, y, weight_h)
    exact = _exact(weight_h.dtype)
    width = info["gates"] * hidden
    expect(weight_h, "weight_h", weight_h, weight_h.dtype, width, hidden)
    expect(weight_h, "vectors", vectors, exact, info["vectors"], hidden)
    expect(weight_h, "dt", dt, exact, batch, steps)
    expect(weight_h, "lengths", lengths, torch.int64, batch)
    of_z, of_trail = _kept(weight_h, cell, batch, steps, hidden, True)
    expect(weight_h, "z", z, of_z[0], *of_z[1])
    expect(weight_h, "trail", trail, of_trail[0], *of_trail[1])
    expect(weight_h, "grad_y", grad_y, weight_h.dtype, batch, steps, hidden)
    expect(weight_h, "grad_last", grad_last, exact, info["states"], batch, hidden)
    return batch, steps, hidden, info, exact


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
    sizes = _check_backward(cell, *inputs[:6], y, *inputs[6:])
    outputs = _backward_outputs(weight_h, *sizes, empty)
    dense = [None if t is None else t.contiguous() for t in inputs]
    if weight_h.device.type == "cuda":
        fused_cuda.run_backward(cell, constants, dense, sizes[:3], outputs)
        return outputs
    arrays = map(_address, [*dense, *outputs])
    dtype, threads = DTYPES[weight_h.dtype], torch.get_num_threads()
    _core.recurrence_backward(cell, dtype, constants, threads, *sizes[:3], *arrays)
    return outputs


@torch.library.custom_op("tsm::recurrence_backward", mutates_args=(), device_types=("cpu", "cuda"))
def backward_operator(
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
    return run_backward(
        cell, weight_h, vectors, constants, dt, lengths, z, trail, y, grad_y, grad_last
    )


@backward_operator.register_fake
def _(
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
    sizes = _check_backward(cell, weight_h, vectors, dt, lengths, z, trail, y, grad_y, grad_last)
    return _backward_outputs(weight_h, *sizes)


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
        with torch.autocast(y.device.type, enabled=False):  # of the layer's dtype, whoever calls
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


_forward.register_autograd(_gradients, setup_context=_save)
backward_operator.register_autograd(
    _no_second_derivative, setup_context=lambda ctx, inputs, output: None
)
_forward.register_vmap(_no_vmap)
backward_operator.register_vmap(_no_vmap)
