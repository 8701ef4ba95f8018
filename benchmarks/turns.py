"""Interleaved timing: all rivals run in short alternating slices, so that a slow moment affects all of them."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

TURN = 0.02  # seconds per turn: long enough for the clock's resolution and for the caches to settle
LEAST_TURNS = 5
PATIENCE = 4  # after this multiple of the requested time, two turns are enough

Loop = Callable[[int], object]
"""loop(n): do it n times."""
K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True)
class Timed:
    """Microseconds of one call: the median over the turns, and the best turn."""

    median: float
    best: float
    turns: int


def loop_of(call: Callable[[], Any]) -> Loop:
    """The loop around a Python function."""

    def run(times: int) -> None:
        for _ in range(times):
            call()

    return run


CLOCKS: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "cpu": time.thread_time}
"""cpu: time of the calling thread only, for a shared machine; valid only if that thread does all the work."""


def take_turns(loops: Mapping[K, Loop], seconds: float, clock: str = "wall") -> dict[K, Timed]:
    """Time all loops for about `seconds` in total, with LEAST_TURNS turns each (two for slow ones)."""
    now = CLOCKS[clock]
    counts = {name: _count(loop, now) for name, loop in loops.items()}
    taken: dict[K, list[float]] = {name: [] for name in loops}
    begin, turns = time.perf_counter(), 0
    while not _enough(turns, time.perf_counter() - begin, seconds):
        for name, loop in loops.items():
            if counts[name] > 1:
                loop(max(1, counts[name] // 8))  # evicts the other rivals' weights from the caches
            taken[name].append(_clocked(loop, counts[name], now) / counts[name] * 1e6)
        turns += 1
    return {name: Timed(statistics.median(t), min(t), len(t)) for name, t in taken.items()}


def _enough(turns: int, spent: float, seconds: float) -> bool:
    if turns >= LEAST_TURNS:
        return spent >= seconds
    return turns >= 2 and spent >= PATIENCE * max(seconds, 1.0)


def _clocked(loop: Loop, times: int, now: Callable[[], float]) -> float:
    start = now()
    loop(times)
    return now() - start


def _count(loop: Loop, now: Callable[[], float]) -> int:
    """Calls that fill a turn."""
    count = 1
    while (taken := _clocked(loop, count, now)) < TURN / 4 and count < 1 << 20:
        count *= 4
    return max(1, math.ceil(count * TURN / max(taken, 1e-9))) if taken < TURN else count
