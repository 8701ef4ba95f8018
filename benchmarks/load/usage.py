"""The resources that a process and its children use, from /proc."""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path

TICKS, PAGE = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
SETTLED, WINDOW = 120.0, 15.0  # seconds: until memory should be stable; window of the median


def tree(pid: int) -> Iterator[int]:
    """A process and its children."""
    yield pid
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in task.read_text().split():
            yield from tree(int(child))


def memory(pid: int) -> int:
    """Resident bytes of the process and its children."""
    return sum(int(_read(one, "statm").split()[1]) for one in tree(pid)) * PAGE


def cpu_seconds(pid: int) -> float:
    """User and system time of the process and its children."""
    fields = [_read(one, "stat").rpartition(")")[2].split() for one in tree(pid)]
    return sum(int(f[11]) + int(f[12]) for f in fields) / TICKS


def growth(samples: Sequence[tuple[float, int]]) -> float | None:
    """Memory growth: memory at the end over memory at SETTLED, minus 1; None if the run is too short."""
    if not samples or samples[-1][0] < SETTLED + 2 * WINDOW:
        return None
    before = [size for at, size in samples if SETTLED <= at < SETTLED + WINDOW]
    after = [size for at, size in samples if at > samples[-1][0] - WINDOW]
    return statistics.median(after) / statistics.median(before) - 1


def _read(pid: int, name: str) -> str:
    return Path(f"/proc/{pid}/{name}").read_text()
