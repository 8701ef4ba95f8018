"""Copies between host and GPU that nobody waits for.

A copy from or to ordinary memory makes the host wait for everything that the GPU still has to do; through
pinned memory it takes its turn among the kernels.
"""

from __future__ import annotations

import torch
from torch import Tensor


def to_device(value: Tensor, device: torch.device) -> Tensor:
    """The tensor on the device."""
    if device.type == "cuda" and value.device.type == "cpu":
        return value.pin_memory().to(device, non_blocking=True)
    return value.to(device)


class OnItsWay:
    """Numbers that a GPU may still be computing; values() waits for them, and for nothing after them."""

    def __init__(self, numbers: Tensor, ready: torch.cuda.Event | None) -> None:
        self.numbers, self.ready = numbers, ready

    def values(self) -> list[float]:
        if self.ready is not None:
            self.ready.synchronize()
        found: list[float] = self.numbers.tolist()
        return found


def to_host(numbers: Tensor) -> OnItsWay:
    """Begin to copy the numbers to the host."""
    if numbers.device.type != "cuda":
        return OnItsWay(numbers, None)
    host = torch.empty(numbers.shape, dtype=numbers.dtype, pin_memory=True)
    host.copy_(numbers, non_blocking=True)
    ready = torch.cuda.Event()
    ready.record()
    return OnItsWay(host, ready)
