"""The eager cell as a rival on a GPU: plain, in a CUDA graph, and compiled by torch.compile.

Every step takes the same time, so a few steps represent the whole sequence. The cell runs in float32 with
matrix products in tf32: the reference always computes in float32, and other types would add casts.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from ..plugin.layers import Recurrent
from .train_cpu import Shape

STEPS = 16  # steps of an eager sequence that are timed
COMPILED_STEPS = 4  # torch.compile unrolls the steps, so more steps take longer to compile


class TooLong(BaseException):
    """torch.compile took too long. This is a BaseException, because the compiler wraps any Exception in one of
    its own."""


def eager(cell: str, shape: Shape) -> nn.Module:
    _, _, width, hidden = shape
    return Recurrent(cell, width, hidden, backend="reference").to("cuda")


class Compiler:
    """Compiles layers; the time limit applies to all of them together."""

    def __init__(self, seconds: float) -> None:
        self.left = seconds

    def compiled(self, layer: nn.Module, x: torch.Tensor) -> Any:
        """The layer, compiled forward and backward for x; raises TooLong when the time is up."""
        if self.left < 1:
            raise TooLong
        start = time.perf_counter()
        torch._dynamo.reset()
        try:
            with _at_most(self.left):
                made = torch.compile(layer, dynamic=False)
                made(x)[0].sum().backward()
                torch.cuda.synchronize()
        finally:
            self.left -= time.perf_counter() - start
        return made


@contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    """Raises TooLong inside the block after that many seconds. Main thread only."""

    def stop(*_: Any) -> None:
        raise TooLong

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
