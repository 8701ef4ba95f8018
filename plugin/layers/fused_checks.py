"""What the compiled core is told of a tensor is what it gets: dtypes, shapes and devices, checked.

Raw addresses know neither. Shapes may be symbolic (Any), since fake kernels check as well.
"""

from __future__ import annotations

from typing import Any, NoReturn

import torch
from torch import Tensor

from . import fused_cuda
from .core import _core

DTYPES = {torch.float32: "float32", torch.float64: "float64", torch.bfloat16: "bfloat16"}


def cell_info(cell: str) -> _core.CellInfo:
    """What the core knows of a cell that is compiled in."""
    return _core.cells[cell]


def refuse(what: str) -> NoReturn:
    raise NotImplementedError(
        f'{what} is not available in the fused recurrence; build the layer with backend="reference"'
    )


def expect(like: Tensor, name: str, tensor: Tensor | None, dtype: torch.dtype, *shape: Any) -> None:
    """ValueError unless an array that the core reads is what the core believes it to be."""
    if tensor is None:
        return
    if tensor.device != like.device or tensor.dtype != dtype or tensor.shape != shape:
        raise ValueError(
            f"{name} is {tensor.dtype} {tuple(tensor.shape)} on {tensor.device}; "
            f"accepted: {dtype} {shape} on {like.device}"
        )


def exact_of(dtype: torch.dtype) -> torch.dtype:
    if dtype not in DTYPES:
        raise ValueError(f"zx is {dtype}; accepted: {', '.join(DTYPES.values())}")
    return torch.float64 if dtype == torch.float64 else torch.float32


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


def kept_shapes(
    like: Tensor, cell: str, batch: Any, steps: Any, hidden: Any, keep: bool
) -> list[tuple[torch.dtype, tuple[Any, ...]]]:
    """What backward needs: dtype and shape of z and of trail, empty unless `keep`."""
    if like.device.type == "cuda":
        return fused_cuda.kept(like.dtype, like.device, cell, batch, steps, hidden, keep)
    info, exact, kept = _core.cells[cell], exact_of(like.dtype), batch if keep else 0
    reads = int(info["reads"]).bit_count()
    return [
        (exact, (kept, steps, info["gates"] * hidden)),
        (exact, (reads, kept, steps, hidden)),
    ]


def check_forward(
    cell: str,
    zx: Tensor,
    weight_h: Tensor,
    state: Tensor,
    vectors: Tensor,
    dt: Tensor | None,
    lengths: Tensor | None,
) -> tuple[Any, Any, Any, _core.CellInfo, torch.dtype]:
    batch, steps, hidden, info = _sizes(cell, zx, weight_h)
    exact = exact_of(zx.dtype)
    width = info["gates"] * hidden
    expect(zx, "zx", zx, zx.dtype, batch, steps, width)
    expect(zx, "weight_h", weight_h, zx.dtype, width, hidden)
    expect(zx, "state", state, exact, info["states"], batch, hidden)
    expect(zx, "vectors", vectors, exact, info["vectors"], hidden)
    expect(zx, "dt", dt, exact, batch, steps)
    expect(zx, "lengths", lengths, torch.int64, batch)
    return batch, steps, hidden, info, exact


def check_backward(
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
    exact = exact_of(weight_h.dtype)
    width = info["gates"] * hidden
    expect(weight_h, "weight_h", weight_h, weight_h.dtype, width, hidden)
    expect(weight_h, "vectors", vectors, exact, info["vectors"], hidden)
    expect(weight_h, "dt", dt, exact, batch, steps)
    expect(weight_h, "lengths", lengths, torch.int64, batch)
    of_z, of_trail = kept_shapes(weight_h, cell, batch, steps, hidden, True)
    expect(weight_h, "z", z, of_z[0], *of_z[1])
    expect(weight_h, "trail", trail, of_trail[0], *of_trail[1])
    expect(weight_h, "grad_y", grad_y, weight_h.dtype, batch, steps, hidden)
    expect(weight_h, "grad_last", grad_last, exact, info["states"], batch, hidden)
    return batch, steps, hidden, info, exact
