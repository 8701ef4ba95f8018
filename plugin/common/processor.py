"""The processor of this machine: its name, and other fields of /proc/cpuinfo."""

from __future__ import annotations

import platform
from pathlib import Path

ARM = "0x41"
ARM_CORES = {
    "0xd0c": "Neoverse-N1",
    "0xd40": "Neoverse-V1",
    "0xd49": "Neoverse-N2",
    "0xd4f": "Neoverse-V2",
}
"""The names that lscpu gives to the "CPU part" of Arm's own server cores; Linux prints only numbers."""


def processor() -> str:
    """The processor's name; the architecture if it is unknown."""
    arm = cpuinfo("CPU implementer") == ARM
    core = ARM_CORES.get(cpuinfo("CPU part")) if arm else None
    return cpuinfo("model name") or core or platform.processor() or platform.machine()


def cpuinfo(field: str) -> str:
    """A field of the first processor in /proc/cpuinfo; "" if it is missing."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    pairs = (line.partition(":") for line in lines)
    return next((value.strip() for name, _, value in pairs if name.strip() == field), "")
