"""The eager cell as a rival on a GPU: as it is, in a CUDA graph, and compiled by torch.compile.

Its time is the same for every step, so that a few steps represent the whole sequence. float32, products in
tf32: the reference computes in float32 whatever it is given, and anything else would add casts.
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

STEPS = 16  # timed of an eager sequence
COMPILED_STEPS = 4  # unrolled by torch.compile, whose time grows with them


class TooLong(BaseException):
    """torch.compile was not done in time. Not an Exception: the compiler would wrap it in its own."""


def eager(cell: str, shape: Shape) -> nn.Module:
    _, _, width, hidden = shape
    return Recurrent(cell, width, hidden, backend="reference").to("cuda")


class Compiler:
    """Compiles layers until the seconds that it has for all of them are spent."""

    def __init__(self, seconds: float) -> None:
        self.left = seconds

    def compiled(self, layer: nn.Module, x: torch.Tensor) -> Any:
        """The layer, compiled for x forward and backward, or TooLong."""
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
    """TooLong inside the block once they have passed. The main thread only."""

    def stop(*_: Any) -> None:
        raise TooLong

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
