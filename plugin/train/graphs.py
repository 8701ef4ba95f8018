"""Updates as CUDA graphs: the host launches one graph instead of hundreds of kernels, so the GPU never waits
for the host.

A graph is a sequence of kernels captured with fixed addresses. There is one for each batch shape. It reads
copies of the batch and of the carried state and writes the gradients, the update's numbers and the new state to
fixed addresses. All graphs share their memory: what one has written is valid until the next one runs. The
results are bitwise the same as without graphs. Random numbers continue from the state of the generator. A model
that synchronises with the GPU while it runs cannot be captured and is trained without graphs. A custom model
whose host code changes from update to update (Python random numbers, counters) would replay the captured
values; use --no-cuda-graphs for it.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn

from ..common.torch_private import borrowed
from ..layers.copy_all import copy_all
from ..tasks.base import Batch
from .distributed import State

Compute = Callable[[Batch, State | None], tuple[Tensor, State | None]]
"""(batch, state) -> (numbers, new state). The gradients are left in the parameters."""

MOST = 128
"""The maximum number of shapes to record. The second half is for shapes that have come before."""


class UpdateGraphs:
    """Recordings of `compute` by shape."""

    def __init__(
        self, compute: Compute, parameters: Sequence[nn.Parameter], note: Callable[[str], None]
    ) -> None:
        self.compute, self.parameters, self.note = compute, parameters, note
        self.pool = torch.cuda.graph_pool_handle()
        self.ran: set[Hashable] = set()  # shapes that ran without a graph
        self.runs_first = False  # every shape, before it is recorded
        self.recordings: dict[Hashable, Recording] = {}
        self.most = MOST

    def __call__(self, batch: Batch, state: State | None) -> tuple[Tensor, State | None]:
        """The result of `compute`. The batch is on the GPU."""
        shapes = tuple((t.shape, t.dtype) for t in _tensors(batch, state))
        others = tuple(None if isinstance(v, Tensor) else (v,) for v in _fields(batch).values())
        key = (shapes, others, state is None)
        recording = self.recordings.get(key)
        if recording is None and self._is_due(key):
            recording = self._try_to_record(batch, state, key in self.ran)
            if recording is not None:
                self.recordings[key] = recording
        if recording is None:
            self.ran.add(key)
            return self.compute(batch, state)
        return recording.run(batch, state, self.parameters)

    def _is_due(self, key: Hashable) -> bool:
        """Whether to record the shape now. The first update runs without a graph: libraries need a warm-up."""
        runs_first = self.runs_first or len(self.recordings) >= self.most // 2
        warm = key in self.ran if runs_first else bool(self.ran)
        return warm and len(self.recordings) < self.most

    def _try_to_record(
        self, batch: Batch, state: State | None, ran_before: bool
    ) -> Recording | None:
        generator = torch.cuda.default_generators[torch.cuda.current_device()]
        before = generator.clone_state()
        try:
            return self._record(batch, state)
        except RuntimeError as why:
            if ran_before:
                self.most = 0
                reason = str(_first_cause(why)).partition("\n")[0]
                which = "further batch shapes" if self.recordings else "updates"
                self.note(f"{which} are not replayed as CUDA graphs: {reason}")
            self.runs_first = True  # a library may have had to load code for this shape
            if not self.recordings:  # torch has given the pool back with its only graph
                self.pool = torch.cuda.graph_pool_handle()
            generator.graphsafe_set_state(before)  # the stream is still in capture mode
            for p in self.parameters:
                p.grad = None
            return None

    def _record(self, batch: Batch, state: State | None) -> Recording:
        batch, state = _copy(batch, state)
        for p in self.parameters:
            p.grad = None
        graph = torch.cuda.CUDAGraph()
        with _capturing(graph, self.pool):
            numbers, after = self.compute(batch, state)
        # The list is complete, since `compute` gives every parameter a gradient.
        gradients = [borrowed(p.grad) for p in self.parameters if p.grad is not None]
        for p in self.parameters:
            p.grad = None
        return Recording(graph, _tensors(batch, state), numbers, after, gradients)


@lru_cache
def _capture_stream(device: int) -> torch.cuda.Stream:
    """One for all runs: libraries keep memory for each stream that they were used on."""
    return torch.cuda.Stream(device)


@contextmanager
def _capturing(graph: torch.cuda.CUDAGraph, pool: Any) -> Iterator[None]:
    """Like `torch.cuda.graph`, but torch's caches of memory are kept: updates would have to fill them again.

    Garbage is collected later. It could hold a graph of an earlier run, and freeing one ends the capture.
    """
    torch.cuda.synchronize()
    free, _ = torch.cuda.mem_get_info()
    if free < torch.cuda.memory_reserved():  # the graphs' memory may have to be as large
        torch.cuda.empty_cache()
    collects = gc.isenabled()
    gc.disable()
    try:
        with torch.cuda.stream(_capture_stream(torch.cuda.current_device())):
            # Other threads (a data loader, a monitor) may use the GPU during the capture.
            graph.capture_begin(pool=pool, capture_error_mode="thread_local")
            try:
                yield
            finally:
                graph.capture_end()
    finally:
        if collects:
            gc.enable()


@contextmanager
def old_objects_at_rest() -> Iterator[None]:
    """Keeps the garbage collector from going through all objects that exist now: torch's alone take 70 to 180
    ms, during which a GPU waits in the middle of an epoch."""
    if gc.get_freeze_count():  # the caller has seen to it
        yield
        return
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


class Recording:
    """A graph, the tensors that it reads, and those that it writes."""

    def __init__(
        self,
        graph: torch.cuda.CUDAGraph,
        reads: list[Tensor],
        numbers: Tensor,
        after: State | None,
        gradients: list[Tensor],
    ) -> None:
        self.graph, self.reads, self.numbers, self.after = graph, reads, numbers, after
        self.gradients = gradients

    def run(
        self, batch: Batch, state: State | None, parameters: Sequence[nn.Parameter]
    ) -> tuple[Tensor, State | None]:
        copy_all(_tensors(batch, state), self.reads)
        self.graph.replay()
        for p, gradient in zip(parameters, self.gradients, strict=True):
            p.grad = gradient
        return self.numbers, self.after


def _first_cause(error: BaseException) -> BaseException:
    """The first error during a capture; after such an error, ending the capture also fails."""
    while error.__context__ is not None:
        error = error.__context__
    return error


def _fields(batch: Batch) -> dict[str, Any]:
    return {field.name: getattr(batch, field.name) for field in fields(batch)}


def _tensors(batch: Batch, state: State | None) -> list[Tensor]:
    """All tensors in a fixed order."""
    found = [value for value in _fields(batch).values() if isinstance(value, Tensor)]
    return found + [value for layer in state or () for value in layer.values()]


def _copy(batch: Batch, state: State | None) -> tuple[Batch, State | None]:
    values = _fields(batch).items()
    copied: dict[str, Any] = {name: v.clone() for name, v in values if isinstance(v, Tensor)}
    if state is not None:
        state = [{name: value.clone() for name, value in layer.items()} for layer in state]
    return replace(batch, **copied), state
