"""Chooses the implementation that runs a layer, and gives the reason.

reference   autograd over the cell's program (reference.py): any cell, dtype and device
layer_cpu   the compiled core on the CPU (layer_cpu.py)
layer_cuda  the compiled core on a GPU, one call per chunk (layer_cuda.py)
nru_cuda    the same for the composite cell nru (nru_cuda.py)
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import torch

from ..cells import Cell, get_cell, list_cells
from ..cells.tape.program import program_hash
from ..common.torch_private import constant_for_compilers
from . import gpu
from .core import DTYPES, _core, missing


class Route(NamedTuple):
    name: str
    why: str = ""
    """Why no faster implementation was chosen; "" for the fastest."""

    @property
    def fused(self) -> bool:
        return self.name != "reference"


COMPOSITE = {"nru": "nru_cuda"}
"""Composite cells with kernels on a GPU, and the implementations."""

# Cells whose formula differs from the compiled one, after an edit without `make cells`. The old formula must
# not be trained.
_changed = frozenset(
    name
    for name in set(_core.cells if _core else ()).intersection(list_cells())
    if program_hash(get_cell(name)) != _core.cells[name]["hash"]
)


def choose(cell: type[Cell], dtype: torch.dtype, device: torch.device) -> Route:
    """The implementation for a layer whose matrix products use `dtype`."""
    if why := _why_reference(cell.name, dtype, device):
        return Route("reference", why)
    if device.type == "cpu":
        return Route("layer_cpu")
    return Route(COMPOSITE.get(cell.name, "layer_cuda"))


@constant_for_compilers
def _why_reference(cell: str, dtype: torch.dtype, device: torch.device) -> str:
    """Why the compiled core cannot run; "" if it can. torch.compile calls this instead of tracing it."""
    return _found_why(cell, dtype, device)


@cache
def _found_why(cell: str, dtype: torch.dtype, device: torch.device) -> str:
    if _core is None:
        return missing
    kind = device.type
    if not get_cell(cell).elementwise:
        if cell not in COMPOSITE or kind != "cuda":
            return f"cell {cell!r} is not element-wise"
    elif cell not in _core.cells:
        return f"cell {cell!r} is not compiled in"
    if cell in _changed:
        return f"cell {cell!r} was compiled with another formula (`make cells`, then rebuild)"
    if dtype not in DTYPES:
        return f"dtype {dtype} has no kernel (available: {', '.join(DTYPES.values())})"
    if kind == "cuda":
        return gpu.why_not(dtype, device)
    return "" if kind == "cpu" else f"device {kind!r} has no kernel (available: cpu, cuda)"
