"""Where it was measured."""

from __future__ import annotations

import os
import platform
import re
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from ..plugin.common.processor import cpuinfo, processor


def machine() -> dict[str, Any]:
    """Processor, the instruction set in use, versions, and the load before the run."""
    from .. import __version__
    from ..runtime import _core

    return {
        "processor": processor(),
        "cores": os.cpu_count(),
        "level": _core.active_level(),
        "load before": round(os.getloadavg()[0], 2),  # if high, ratios are unreliable
        "python": platform.python_version(),
        "tsm": __version__,
        **{name: installed(name) for name in ("torch", "onnxruntime", "numpy")},
    }


def multiplies_bfloat16() -> bool:
    """Whether the processor has bfloat16 instructions; without them torch's matrix products are very slow."""
    flags = f"{cpuinfo('flags')} {cpuinfo('Features')}".split()
    return not {"amx_bf16", "avx512_bf16", "bf16"}.isdisjoint(flags)


def has_amx() -> bool:
    return "amx_bf16" in cpuinfo("flags").split()


def gpu_driver() -> str | None:
    """The version of NVIDIA's kernel module; None if it is not loaded."""
    try:
        said = Path("/proc/driver/nvidia/version").read_text()
    except OSError:
        return None
    found = re.search(r"\d+\.\d+(\.\d+)?", said)
    return found[0] if found else None


def installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
