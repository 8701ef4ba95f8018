"""Where it was measured."""

from __future__ import annotations

import os
import platform
import re
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any


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


def processor() -> str:
    return _cpuinfo("model name") or platform.processor() or platform.machine()


def multiplies_bfloat16() -> bool:
    """Whether the processor has bfloat16 instructions; without them torch's matrix products are very slow."""
    flags = f"{_cpuinfo('flags')} {_cpuinfo('Features')}".split()
    return not {"amx_bf16", "avx512_bf16", "bf16"}.isdisjoint(flags)


def has_amx() -> bool:
    return "amx_bf16" in _cpuinfo("flags").split()


def gpu_driver() -> str | None:
    """The version of NVIDIA's kernel module; None if it is not loaded."""
    try:
        said = Path("/proc/driver/nvidia/version").read_text()
    except OSError:
        return None
    found = re.search(r"\d+\.\d+(\.\d+)?", said)
    return found[0] if found else None


def _cpuinfo(field: str) -> str:
    """A field of the first processor in /proc/cpuinfo; "" if it is missing."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.partition(":")[0].strip() == field:
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return ""


def installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
