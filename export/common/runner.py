"""What `verify` needs to run an exported model, one chunk at a time.

A runner is any object with

    name        what the report calls it: "ONNX Runtime CPU", "TorchScript", ...
    chunk_size  the T that it takes, if T is fixed; None if any T from 1 is fine
    inputs      which of "lengths" and "dt" it takes; both by default. Without lengths every row has
                T steps, without dt every step is 1
    run(x, state, dt, lengths) -> (logits, state)

    x        int64 [N,T] tokens, or float32 [N,T,I] values
    state    one dict per layer, name -> float32 [N, width]; None: zeros
    dt       float32 [N,T], or None: all ones. Given only if the model takes it
    lengths  int64 [N], or None: all T. Past a row's length its state does not change (and y_t = 0)
    logits   float32 [N,T,V], or [N,C] of a classifier, read at each row's last valid step

All arrays are numpy's. A runner keeps nothing between calls: the memory of a stream is its state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

Array = np.ndarray[Any, Any]
State = list[dict[str, Array]]


class Runner(Protocol):
    """See the module."""

    @property
    def name(self) -> str: ...

    @property
    def chunk_size(self) -> int | None: ...

    def run(
        self,
        x: Array,
        state: State | None = None,
        dt: Array | None = None,
        lengths: Array | None = None,
    ) -> tuple[Array, State]: ...


def takes(runner: Runner, name: str) -> bool:
    """Whether the runner takes this input: "lengths" or "dt"."""
    return name in getattr(runner, "inputs", ("lengths", "dt"))


def unit(runner: Runner) -> int:
    """T must be a multiple of this: 1, or the fixed T if no lengths can mark a partly filled chunk."""
    return 1 if takes(runner, "lengths") else runner.chunk_size or 1


Run = Callable[[Array, State | None, Array | None, Array | None], tuple[Array, State]]


def feed(
    runner: Runner,
    x: Array,
    state: State | None = None,
    dt: Array | None = None,
    lengths: Array | None = None,
) -> tuple[Array, State]:
    """`runner.run` for any T: a runner with a fixed T gets pieces, the last one padded, with lengths."""
    fixed, steps = runner.chunk_size, x.shape[1]
    if fixed is None or (fixed == steps):
        return runner.run(x, state, dt, lengths)
    if steps % unit(runner):
        raise ValueError(
            f"{steps} steps for a graph of {fixed} without lengths; accepted: a multiple of {fixed}"
        )
    whole = np.full(len(x), steps, np.int64) if lengths is None else lengths
    parts: list[Array] = []
    for start in range(0, steps, fixed):
        here = min(fixed, steps - start)
        piece = fill(x[:, start : start + here], fixed)
        times = None if dt is None else fill(dt[:, start : start + here], fixed, 1.0)
        ends = np.clip(whole - start, 0, here) if takes(runner, "lengths") else lengths
        logits, state = runner.run(piece, state, times, ends)
        parts.append(logits[:, :here] if logits.ndim == 3 else logits)
    assert state is not None
    return (np.concatenate(parts, axis=1) if parts[-1].ndim == 3 else parts[-1]), state


def fill(x: Array, steps: int, value: float = 0.0) -> Array:
    """x [N,t,...] with t padded to `steps` on the right."""
    widths = [(0, 0), (0, steps - x.shape[1]), *[(0, 0)] * (x.ndim - 2)]
    return np.pad(x, widths, constant_values=x.dtype.type(value))


def in_chunks(
    runner: Runner,
    cuts: Sequence[int],
    x: Array,
    state: State | None = None,
    dt: Array | None = None,
) -> tuple[Array, State]:
    """Feeds the stream in chunks of the given sizes, which add up to T; a classifier gives its last logits."""
    parts: list[Array] = []
    start = 0
    for size in cuts:
        end = start + size
        times = None if dt is None else dt[:, start:end]
        logits, state = feed(runner, x[:, start:end], state, times)
        parts.append(logits)
        start = end
    assert start == x.shape[1] and state is not None
    return (np.concatenate(parts, axis=1) if parts[-1].ndim == 3 else parts[-1]), state
