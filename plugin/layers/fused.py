"""The recurrence in the compiled core: where it can run, and its call.

`fused_recurrence` has the signature and the meaning of `reference_recurrence`. Forward-mode differentiation and
transforms of torch.func are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from ..cells import Cell, get_cell, list_cells
from ..cells.tape.program import program_hash
from . import fused_cuda
from .core import _core, missing
from .fused_checks import DTYPES, refuse
from .fused_operator import forward_operator

# Cells whose formula is not the one that was compiled: an edit without `make cells` must not train the old one.
_changed = frozenset(
    name
    for name in set(_core.cells if _core else ()).intersection(list_cells())
    if program_hash(get_cell(name)) != _core.cells[name]["hash"]
)


_PLAIN = frozenset({Tensor, torch.nn.Parameter})


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
    kind = device.type
    if kind == "cuda":
        return fused_cuda.why_not(dtype)
    return None if kind == "cpu" else f"device {kind!r} has no kernel (there are cpu, cuda)"


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
    y, last, *_ = forward_operator(cell.name, zx, u, stacked, packed, constants, dt, lengths, keep)
    return y, {name: last[i].clone() for i, name in enumerate(cell.states)}


def check_transforms(inputs: list[Tensor]) -> bool:
    """True where the core may be called at once: ordinary tensors, and nobody who watches operators.

    Forward mode would silently give 0, and torch.func's own errors do not say what to do instead: refused.
    """
    forward = forward_ad._current_level >= 0
    if forward and any(forward_ad.unpack_dual(t).tangent is not None for t in inputs):
        refuse("forward-mode differentiation")
    if any(map(torch._C._functorch.is_functorch_wrapped_tensor, inputs)):
        refuse("a transform of torch.func (grad, vjp, jvp, jacrev, vmap)")
    watched = torch._C._len_torch_dispatch_stack() > 0 or torch._C._get_tracing_state()
    return not watched and _PLAIN.issuperset(map(type, inputs))
