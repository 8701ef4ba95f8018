"""Asynchronous copies of numbers from a GPU.

`tolist()` would wait for all work queued on the GPU. A copy into pinned memory is queued like a kernel, and an
event signals when it is done.
"""

from __future__ import annotations

import torch
from torch import Tensor


class PendingCopy:
    """Numbers that a GPU may still be computing. values() waits for them, but not for later work."""

    def __init__(self, numbers: Tensor, ready: torch.cuda.Event | None) -> None:
        self.numbers, self.ready = numbers, ready

    def values(self) -> list[float]:
        if self.ready is not None:
            self.ready.synchronize()
        found: list[float] = self.numbers.tolist()
        return found


def to_host(numbers: Tensor) -> PendingCopy:
    """Starts copying the numbers to the host."""
    if numbers.device.type != "cuda":
        return PendingCopy(numbers, None)
    host = torch.empty(numbers.shape, dtype=numbers.dtype, pin_memory=True)
    host.copy_(numbers, non_blocking=True)
    ready = torch.cuda.Event()
    ready.record()
    return PendingCopy(host, ready)
