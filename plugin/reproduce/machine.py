"""The hardware and versions of a run, for its summary."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

import torch

from ... import __version__


def hardware(device: torch.device) -> dict[str, Any]:
    """The name of the device, and for a CPU the number of threads."""
    if device.type == "cuda":
        return {"device": torch.cuda.get_device_name(device)}
    return {"device": cpu_name(), "threads": torch.get_num_threads()}


def cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else f"{platform.machine()} CPU, {os.cpu_count()} cores"


def versions() -> dict[str, str]:
    found = {"tsm": __version__, "torch": torch.__version__, "python": platform.python_version()}
    return found | ({"cuda": torch.version.cuda} if torch.version.cuda else {})
