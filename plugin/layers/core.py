"""The compiled core, if it was built. Only this module imports it.

The module also has what callers of the core need: dtypes, cells, addresses, and reused buffers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from ..cells import get_cell

missing = ""
on_torchs_threads = False
"""Whether CPU training runs on torch's OpenMP threads instead of starting its own."""
try:
    from tsm.runtime import _core
except ImportError as error:  # the source tree was not built, so the reference is used
    _core = None  # type: ignore[assignment]
    missing = f"the compiled core is missing ({error}); build it with `pip install .`"
else:
    # Share torch's threads. Between products they spin, so a second thread pool would compete with them for the
    # cores.
    library = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    on_torchs_threads = _core.share_threads(str(library))

DTYPES = {torch.float32: "float32", torch.float64: "float64", torch.bfloat16: "bfloat16"}
LARGE = 1 << 17
"""Tensors of at least this many bytes reuse buffers. For such sizes malloc would call mmap."""
_CPU = torch.device("cpu")


def cell_info(cell: str) -> _core.CellInfo:
    """The core's description of a compiled cell."""
    return _core.cells[cell]


def saved_state_count(cell: str) -> int:
    """How many of the states before each step are read by backward."""
    return int(cell_info(cell)["reads"]).bit_count()


def rows_of_u(cell: str, hidden: int) -> int:
    """The number of rows of U in the core and the operator: H for every gate, or 0 for a cell without U."""
    found = get_cell(cell)
    return len(found.gates) * hidden if found.gates_of("h") else 0


def address(tensor: Tensor | None) -> int:
    """The data pointer; 0 for None and for empty tensors."""
    return 0 if tensor is None else tensor.data_ptr()


def empty(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor:
    """An uninitialised tensor. A large one on the CPU reuses the buffer of an earlier one.

    The OS zeroes newly mapped pages, which for large tensors costs as much as writing them.
    """
    size = math.prod(shape) * dtype.itemsize
    if size < LARGE or device != _CPU:
        return torch.empty(shape, dtype=dtype, device=device)
    flat = torch.frombuffer(_core.Memory(size), dtype=dtype)
    # Autograd would track a view; resize_ is not tracked.
    return flat if len(shape) == 1 else flat.resize_(shape)
