"""Gradients of weights beside the recurrence of the next layer, on a GPU.

The gradients of a layer's weights are one large product and a few copies. Backward needs them for no other
layer, and while the next recurrence waits for its exchange, most of the GPU is idle. So inside

    with gradients_beside(device):
        loss = model(x)...
        loss.backward()

a layer's backward pass returns no gradients of weights. They are launched on a second stream once the next
layer's recurrence is, and are in `.grad` when the block ends, as without it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..common.torch_private import has_hooks
from .sketch import COPIED

ON = os.environ.get("TSM_CUDA_OVERLAP") == "1"
"""Off by default: not all tests have run with it yet."""
_block = threading.local()


class Job(NamedTuple):
    """Launches that wait for their turn."""

    run: Callable[[tuple[int, ...], int], None]
    addresses: tuple[int, ...]
    held: Sequence[Any]
    """The arrays that they read and write: freed memory would be used again by the first stream."""
    found: list[tuple[Tensor, Tensor]]
    """Parameters and what to add to their gradients."""


class Later:
    """The jobs of one block. Methods are called with the first stream as the current one."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.side = device, _second_stream(device)
        self.open = True
        self.waiting: Job | None = None
        self.running: tuple[Job, torch.cuda.Event] | None = None
        self.at_the_end: list[Callable[[], None]] = []

    def run(self, own: Callable[[], None], job: Job) -> None:
        """Launches what a backward pass needs, `own`, and beside it the job of the layer before; keeps `job`
        for the next one."""
        self._end_running()
        ready = torch.cuda.Event()
        ready.record(torch.cuda.current_stream(self.device))
        own()  # first, so that it finds multiprocessors that are free
        if self.waiting is not None:
            self.side.wait_event(ready)
            self.waiting.run(self.waiting.addresses, self.side.cuda_stream)
            done = torch.cuda.Event()
            done.record(self.side)
            self.running = self.waiting, done
        self.waiting = job

    def close(self) -> None:
        """Launches what still waits; then all gradients are there."""
        self._end_running()
        if self.waiting is not None:
            job, self.waiting = self.waiting, None
            job.run(job.addresses, torch.cuda.current_stream(self.device).cuda_stream)
            _add(job.found)
        for launch in self.at_the_end:
            launch()

    def give_up(self) -> None:
        """After an error: no gradients, but memory is not freed before the second stream has used it."""
        self.waiting = None
        self.at_the_end.clear()
        if self.running is not None:
            torch.cuda.current_stream(self.device).wait_event(self.running[1])
            self.running = None

    def _end_running(self) -> None:
        if self.running is not None:
            (job, done), self.running = self.running, None
            torch.cuda.current_stream(self.device).wait_event(done)
            _add(job.found)


class Parameters(NamedTuple):
    """A layer's weight_x, bias and weight_h, whose gradients may be computed later."""

    later: Later
    weights: tuple[Tensor, ...]


@contextmanager
def gradients_beside(device: torch.device) -> Iterator[None]:
    """A block that contains forward and backward passes, in one thread. It does nothing on a CPU."""
    if not ON or device.type != "cuda":
        yield
        return
    before = getattr(_block, "later", None)
    later = _block.later = Later(device)
    try:
        yield
        later.open = False
        later.close()
    except BaseException:
        later.open = False
        later.give_up()
        raise
    finally:
        _block.later = before


def in_block(weights: Sequence[Tensor]) -> Parameters | None:
    """The weights, if a block is open and nothing but `.grad` takes their gradients."""
    later: Later | None = getattr(_block, "later", None)
    if later is None or not all(map(_only_for_grad, weights)):
        return None
    return Parameters(later, tuple(weights))


def _only_for_grad(weight: Tensor) -> bool:
    return not weight.requires_grad or (
        weight.is_leaf
        and weight.is_contiguous()
        and weight.dtype in COPIED
        and not has_hooks(weight)
    )


@torch.no_grad()
def _add(found: Sequence[tuple[Tensor, Tensor]]) -> None:
    for parameter, gradient in found:
        if parameter.grad is None:
            parameter.grad = gradient
        else:
            parameter.grad += gradient


@lru_cache
def _second_stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)
