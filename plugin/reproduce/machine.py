"""The hardware and versions of a run, for its summary."""

from __future__ import annotations

import os
import platform
from typing import Any

import torch

from ... import __version__
from ..common.processor import processor

PERCENTAGE = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
"""Environment variable: the part of the GPU that a process gets under MPS."""


def hardware(device: torch.device) -> dict[str, Any]:
    """The name of the device, for a CPU the number of threads, and for a part of a GPU its percentage."""
    if device.type == "cuda":
        found = {"device": torch.cuda.get_device_name(device)}
        part = os.environ.get(PERCENTAGE)
        return found if part is None else {**found, "percentage": part}
    return {"device": processor(), "threads": torch.get_num_threads()}


def versions() -> dict[str, str]:
    found = {"tsm": __version__, "torch": torch.__version__, "python": platform.python_version()}
    return found | ({"cuda": torch.version.cuda} if torch.version.cuda else {})
