"""The streaming side of tsm: runs models from .tsm files as endless streams. Needs numpy only.

>>> from tsm.runtime import Model
>>> model = Model.load("model.tsm")
>>> model
<tsm.runtime.Model: lm, ...>
>>> stream = model.create_stream()                  # one per user, kept as long as the user stays
>>> logits = stream.feed([3, 1, 4], last_only=True)
>>> logits.shape == (model.output_size,)
True
>>> log_probs = stream.score([1, 5])                # any chunking gives the same bits
>>> stream.position
5
>>> blob = stream.save_state()                      # store it, move it, continue elsewhere
>>> other = model.create_stream()
>>> other.load_state(blob)
>>> other.generate(4, seed=1).tolist() == stream.generate(4, seed=1).tolist()
True

A Model is immutable and may be used by any number of threads; a Stream belongs to one thread at a time. A
refused call raises TsmError, a ValueError whose `kind` is "invalid argument", "bad file", "bad state", "busy"
or "cancelled", and leaves the stream unchanged. Ctrl-C ends a long call, as does a Cancel that another thread
sets. A StreamPool computes the requests of many users together; its errors may also be "full", "deadline" or
"closed".

>>> stream.feed([-1])
Traceback (most recent call last):
    ...
tsm.runtime.TsmError: ...

Models whose file contains a dictionary also read and write text: model.encode(text), model.decode(tokens). The
names of a model's classes are in model.labels, those of its inputs in model.columns. If its outputs are numbers
instead of logits, their names are in model.targets, which is None for any other model.
Streams and models can be closed, with a `with` block or by close(). Both can be pickled, and a copy of a stream
is a fork.

>>> with model.create_stream() as short:
...     short.feed([1, 2], last_only=True).shape == logits.shape
True
>>> short.closed
True
>>> from tsm.runtime import compiled_cells
>>> compiled_cells()
['gru', 'janet', 'lstm', ...]
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from . import _core, _names
from ._core import Cancel, Layer, Model, PoolEvent, Stream, StreamPool, TsmError

if TYPE_CHECKING:
    from .async_pool import AsyncPool

__all__ = [
    "AsyncPool",
    "Cancel",
    "Layer",
    "Model",
    "PoolEvent",
    "Stream",
    "StreamPool",
    "TsmError",
    "compiled_cells",
    "cuda_devices",
    "isa_levels",
]

Model.labels = property(_names.labels)  # type: ignore[method-assign, assignment]
Model.targets = property(_names.targets)  # type: ignore[method-assign, assignment]
Model.columns = property(_names.columns)  # type: ignore[method-assign, assignment]


def __getattr__(name: str) -> Any:
    """Imports AsyncPool on first use, because asyncio takes longer to import than everything else here."""
    if name != "AsyncPool":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = import_module(".async_pool", __name__).AsyncPool
    return found


def compiled_cells() -> list[str]:
    """Names of the cells that the core runs natively."""
    return sorted(_core.cells)


def cuda_devices() -> int:
    """Number of GPUs that the core can use: 0 without a GPU, without a driver, or in a build without CUDA."""
    return _core.cuda_device_count()


def isa_levels() -> list[str]:
    """Instruction-set levels that this machine can run, lowest first.

    The last one is used unless the environment variable TSM_ISA names another.
    """
    return _core.isa_levels()
