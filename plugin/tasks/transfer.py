"""Transfer of batches to a GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch import Tensor


def to_device(value: Tensor, device: torch.device) -> Tensor:
    """The tensor on the device.

    A copy from pageable memory makes the host wait for all queued work of the GPU; a copy from pinned memory is
    queued like a kernel.
    """
    if device.type == "cuda" and value.device.type == "cpu":
        return value.pin_memory().to(device, non_blocking=True)
    return value.to(device)
