"""The compiled core, where it was built: the one place where the plugin reaches for it.

And what every caller of it needs: its dtypes, its cells, addresses, and buffers that are reused.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

missing = ""
on_torchs_threads = False
"""Whether CPU training runs on torch's OpenMP threads; on its own otherwise."""
try:
    from tsm.runtime import _core
except ImportError as error:  # a source tree that was not built: the reference serves
    _core = None  # type: ignore[assignment]
    missing = f"the compiled core is not there ({error}); build it with `pip install .`"
else:
    # One set of threads: torch's spin between products, on the cores that others would need.
    library = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    on_torchs_threads = _core.share_threads(str(library))

DTYPES = {torch.float32: "float32", torch.float64: "float64", torch.bfloat16: "bfloat16"}
LARGE = 1 << 17
"""Bytes from which on a tensor gets a reused buffer: those that malloc, too, would map."""
_CPU = torch.device("cpu")


def cell_info(cell: str) -> _core.CellInfo:
    """What the core knows of a cell that is compiled in."""
    return _core.cells[cell]


def saved_state_count(cell: str) -> int:
    """States whose value before each step backward reads."""
    return int(cell_info(cell)["reads"]).bit_count()


def address(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()


def empty(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor:
    """An empty tensor; a large one on the CPU in a buffer that an earlier one has left.

    The OS zeroes newly mapped pages, which for large tensors costs as much as writing them.
    """
    size = math.prod(shape) * dtype.itemsize
    if size < LARGE or device != _CPU:
        return torch.empty(shape, dtype=dtype, device=device)
    flat = torch.frombuffer(_core.Memory(size), dtype=dtype)
    return (
        flat if len(shape) == 1 else flat.resize_(shape)
    )  # not a view, which autograd would track
