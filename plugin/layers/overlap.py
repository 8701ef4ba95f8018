"""Gradients of weights beside the recurrence of the next layer, on a GPU.

The gradients of a layer's weights are one large product and a few copies. Backward needs them for no other
layer, and while the next recurrence waits for its exchange, much of the GPU is idle. So inside

    with gradients_beside(device):
        loss = model(x)...
        loss.backward()

a layer's backward pass returns no gradients of weights. They are launched on a second stream once the next
layer's recurrence is, and are in `.grad` when the block ends, as without it. Gradients that something else
takes as well (torch.autograd.grad, hooks of parameters) are computed in the ordinary way.
DistributedDataParallel is not supported, since its hooks cannot be seen; tsm's own processes add their
gradients up after the block.
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

from ..common.torch_private import adds_to_grad, has_hooks
from .sketch import COPIED

VARIABLE = "TSM_CUDA_OVERLAP"
_own = threading.local()  # a thread's open block and its second streams


@lru_cache
def turned_on() -> bool:
    """Off by default: it has not run on a GPU yet."""
    given = os.environ.get(VARIABLE, "0")
    if given not in ("0", "1"):
        raise ValueError(f"{VARIABLE} = {given!r}; accepted: 0, 1")
    return given == "1"


class Job(NamedTuple):
    """Launches that wait for their turn."""

    run: Callable[[tuple[int, ...], int], None]
    addresses: tuple[int, ...]
    held: Sequence[Any]
    """The arrays that they read and write: freed memory would be used again by the first stream."""
    found: list[tuple[Tensor, Tensor]]
    """Parameters and what to add to their gradients."""


class Overlap:
    """The jobs of one block. Methods are called with the first stream as the current one."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.side = device, _second_stream(device)
        self.open = True
        self.waiting: Job | None = None
        self.running: Job | None = None
        self.at_the_end: list[Callable[[], None]] = []

    def run(self, own: Callable[[], None], job: Job) -> None:
        """Launches what a backward pass needs, `own`, and beside it the job of the layer before; keeps `job`
        for the next one."""
        self.end_running()
        ready = torch.cuda.Event()
        ready.record(torch.cuda.current_stream(self.device))
        own()  # first, so that it finds multiprocessors that are free
        if self.waiting is not None:
            self.running, self.waiting = self.waiting, None
            self.side.wait_event(ready)
            self.running.run(self.running.addresses, self.side.cuda_stream)
        self.waiting = job

    def end_running(self) -> None:
        """From here on, the first stream has the gradients of the job that runs, and may use its memory."""
        if self.running is not None:
            torch.cuda.current_stream(self.device).wait_stream(self.side)
            job, self.running = self.running, None
            _add(job.found)

    def close(self) -> None:
        """Launches what still waits; then all gradients are there."""
        self.end_running()
        if self.waiting is not None:
            job, self.waiting = self.waiting, None
            job.run(job.addresses, torch.cuda.current_stream(self.device).cuda_stream)
            _add(job.found)
        while self.at_the_end:
            self.at_the_end.pop(0)()

    def give_up(self) -> None:
        """After an error: no gradients, but memory is not freed before the second stream has used it."""
        self.waiting = None
        self.at_the_end.clear()
        if self.running is not None:
            torch.cuda.current_stream(self.device).wait_stream(self.side)
            self.running = None

    def takes(self, weight: Tensor) -> bool:
        """Whether the gradient of a weight may be computed later, as far as that is known in forward."""
        return not weight.requires_grad or (
            weight.is_leaf
            and weight.device == self.device
            and weight.is_contiguous()
            and weight.dtype in COPIED
        )


class Parameters(NamedTuple):
    """Weights whose gradients may be computed later."""

    overlap: Overlap
    weights: tuple[Tensor, ...]

    def in_backward(self, nodes: Sequence[tuple[Any, int]]) -> Parameters | None:
        """Itself, if the block is still open and the backward pass that runs adds the gradients to `.grad` and
        passes them to nothing else. nodes: the weights' `next_functions`."""
        free = self.overlap.open and not any(map(has_hooks, self.weights))
        return self if free and adds_to_grad(node for node, _ in nodes) else None


@contextmanager
def gradients_beside(device: torch.device) -> Iterator[None]:
    """A block that contains forward and backward passes, in one thread. It does nothing on a CPU."""
    if device.type != "cuda" or not turned_on():
        yield
        return
    index = torch.cuda.current_device() if device.index is None else device.index
    before = getattr(_own, "overlap", None)
    overlap = _own.overlap = Overlap(torch.device("cuda", index))
    try:
        yield
        overlap.open = False
        overlap.close()
    except BaseException:
        overlap.open = False
        overlap.give_up()
        raise
    finally:
        _own.overlap = before


def in_block(weights: Sequence[Tensor]) -> Parameters | None:
    """The weights, if a block is open that takes all of them."""
    overlap: Overlap | None = getattr(_own, "overlap", None)
    if overlap is None or not all(map(overlap.takes, weights)):
        return None
    return Parameters(overlap, tuple(weights))


@torch.no_grad()
def _add(found: Sequence[tuple[Tensor, Tensor]]) -> None:
    for parameter, gradient in found:
        if parameter.grad is None:
            parameter.grad = gradient
        else:
            parameter.grad += gradient


def _second_stream(device: torch.device) -> torch.cuda.Stream:
    """This thread's: another thread may be recording a graph."""
    streams = _own.__dict__.setdefault("streams", {})
    if device not in streams:
        streams[device] = torch.cuda.Stream(device)
    found: torch.cuda.Stream = streams[device]
    return found
