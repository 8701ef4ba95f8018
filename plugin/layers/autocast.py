"""torch.autocast, also where the tensors' kind of device (meta) has none and torch would raise."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch


def autocast_enabled(device: torch.device) -> bool:
    """Whether products on that device are made in another dtype."""
    kind = device.type
    return torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)


def without_autocast(device: torch.device) -> AbstractContextManager[Any]:
    """A block whose arithmetic is that of its tensors."""
    if torch.amp.is_autocast_available(device.type):
        return torch.autocast(device.type, enabled=False)
    return nullcontext()
