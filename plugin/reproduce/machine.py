"""The hardware and versions of a run, for its summary."""

from __future__ import annotations

import platform
from typing import Any

import torch

from ... import __version__
from ..common.processor import processor


def hardware(device: torch.device) -> dict[str, Any]:
    """The name of the device, and for a CPU the number of threads."""
    if device.type == "cuda":
        return {"device": torch.cuda.get_device_name(device)}
    return {"device": processor(), "threads": torch.get_num_threads()}


def versions() -> dict[str, str]:
    found = {"tsm": __version__, "torch": torch.__version__, "python": platform.python_version()}
    return found | ({"cuda": torch.version.cuda} if torch.version.cuda else {})
