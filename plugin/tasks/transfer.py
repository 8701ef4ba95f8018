"""Batches on their way to a GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch import Tensor


def to_device(value: Tensor, device: torch.device) -> Tensor:
    """The tensor on the device.

    A copy from ordinary memory makes the host wait for everything that the GPU still has to do; from
    pinned memory it takes its turn among the kernels.
    """
    if device.type == "cuda" and value.device.type == "cpu":
        return value.pin_memory().to(device, non_blocking=True)
    return value.to(device)
