"""Streaming side of tsm: the compiled core, with numpy and nothing else.

>>> from tsm.runtime import compiled_cells
>>> compiled_cells()
['janet', 'lstm', ...]
"""

from __future__ import annotations

from . import _core
from ._core import TsmError

__all__ = ["TsmError", "compiled_cells", "cuda_devices"]


def compiled_cells() -> list[str]:
    """Names of the cells that the core runs natively."""
    return sorted(_core.cells)


def cuda_devices() -> int:
    """GPUs that the core can use: 0 without one, without a driver, or when built without CUDA."""
    return _core.cuda_device_count()
