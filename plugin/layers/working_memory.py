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

LARGE = 1 << 17
"""Bytes from which on a tensor gets it: those that the C library, too, would ask the system for."""


def empty(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor:
    """An empty tensor; a large one on the CPU in memory that earlier ones have left."""
    count = math.prod(shape)
    if device.type != "cpu" or count == 0 or count * dtype.itemsize < LARGE:
        return torch.empty(shape, dtype=dtype, device=device)
    return torch.frombuffer(_core.Memory(count * dtype.itemsize), dtype=dtype).view(list(shape))
