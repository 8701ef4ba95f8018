"""Copies many arrays on a GPU in one launch. torch launches one kernel for each array that is a slice."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from . import gpu
from .gpu import current_stream
from .sketch import KINDS_OF_CALLS, Given, Sketch

AT_ONCE = 12
"""The number of copies in a launch of the core. A call of the core has at most 32 arrays."""


def copy_all(values: Sequence[Tensor], places: Sequence[Tensor]) -> None:
    """Copies each value to its place, which has its shape and dtype. All are on one GPU."""
    fast: list[tuple[Tensor, Tensor]] = []
    rest: dict[torch.dtype, list[tuple[Tensor, Tensor]]] = {}
    for value, place in zip(values, places, strict=True):
        source, to = _readable(value), _readable(place)
        alike = value.shape == place.shape and value.dtype == place.dtype
        if alike and source is not None and to is not None:
            fast.append((source, to))
        else:
            rest.setdefault(value.dtype, []).append((value, place))
    for first in range(0, len(fast), AT_ONCE):
        _launch(fast[first : first + AT_ONCE])
    for pairs in rest.values():
        torch._foreach_copy_([place for _, place in pairs], [value for value, _ in pairs])


def _launch(pairs: Sequence[tuple[Tensor, Tensor]]) -> None:
    arrays = [t for pair in pairs for t in pair]
    device = arrays[0].device
    run = _described(device.index, tuple([(t.dtype, t.shape, t.stride()) for t in arrays]))
    run(tuple([t.data_ptr() for t in arrays]), current_stream(device))


@lru_cache(KINDS_OF_CALLS)
def _described(device: int, given: tuple[Given, ...]) -> Any:
    sketch = Sketch(device)
    arrays = [sketch.array(*like) for like in given]
    for value, place in zip(arrays[::2], arrays[1::2], strict=True):
        sketch.copy(place, value)
    sketch.run_copies()
    return sketch.launches.run


def _readable(tensor: Tensor) -> Tensor | None:
    """As the core's copies read it: integers as pairs of float32, since bits are kept. None: they cannot."""
    if not tensor.numel() or not 1 <= tensor.dim() <= 3 or tensor.is_neg():
        return None
    if not gpu.has_kernels(torch.float32, tensor.device):
        return None
    if tensor.dtype == torch.int64 and tensor.stride(-1) == 1:
        return tensor.view(torch.float32)
    return tensor if tensor.dtype in gpu.COPIED else None
