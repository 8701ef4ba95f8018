"""torch.autocast, also for tensors without data (device meta), where torch would raise.

torch.amp.is_autocast_available would know, but torch 2.11 cannot compile a call of it.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch


def autocast_enabled(device: torch.device) -> bool:
    """Whether products on that device are made in another dtype."""
    kind = device.type
    return kind != "meta" and torch.is_autocast_enabled(kind)


def without_autocast(device: torch.device) -> AbstractContextManager[Any]:
    """A block whose arithmetic is that of its tensors."""
    return nullcontext() if device.type == "meta" else torch.autocast(device.type, enabled=False)
