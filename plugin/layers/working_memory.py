"""Memory for what one training step hands to its backward: large, and the same again in the next step.

The system clears every fresh page, which for tensors of megabytes takes as long as filling them; the core keeps
such memory and hands it round.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from .core import _core

CPU = torch.device("cpu")
LARGE = 1 << 17
"""Bytes from which on a tensor gets it: those that the C library, too, would ask the system for."""


def empty(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor:
    """An empty tensor; a large one on the CPU in memory that earlier ones have left."""
    size = math.prod(shape) * dtype.itemsize
    if size < LARGE or device != CPU:
        return torch.empty(shape, dtype=dtype, device=device)
    flat = torch.frombuffer(_core.Memory(size), dtype=dtype)
    return flat if len(shape) == 1 else flat.resize_(shape)  # no view, which autograd would watch
