"""Many small copies on a GPU in one launch (cpp/src/kernels/cuda/train/strided_copies.h)."""

from __future__ import annotations

import torch
from torch import Tensor

from .core import _core

COPIED = (torch.float32, torch.bfloat16)


class Pieces:
    """Copies that are collected, then run together. No two may write the same place."""

    def __init__(self) -> None:
        self._sizes: list[list[int]] = []
        self._fills: list[float] = []
        self._alive: list[Tensor] = []  # the copies' memory, until they are launched

    def add(self, to: Tensor, source: Tensor | None = None, fill: float = 0.0) -> None:
        """to = source where that has an element, fill elsewhere; both of the same 1 to 3 dimensions."""
        assert to.dtype in COPIED
        address, wide = 0, 1
        inside = steps = (0, 0, 0)
        if source is not None:
            if source.dtype not in COPIED:
                source = source.to(to.dtype)
            self._alive.append(source)
            address, wide = source.data_ptr(), int(source.dtype == torch.float32)
            inside, steps = _three(source.shape, 1), _three(source.stride(), 0)
        kinds = (wide, int(to.dtype == torch.float32))
        sizes = (*_three(to.shape, 1), *inside, *steps, *_three(to.stride(), 0))
        self._sizes.append([address, to.data_ptr(), *kinds, *sizes])
        self._fills.append(fill)
        self._alive.append(to)

    def run(self, device: torch.device) -> None:
        """Launches what was collected, on the current stream; nothing is left to run then."""
        if self._sizes:
            stream = torch.cuda.current_stream(device).cuda_stream
            with torch.cuda.device(device):
                _core.copy_pieces_cuda(self._sizes, self._fills, stream)
        self._sizes, self._fills, self._alive = [], [], []


def _three(sizes: tuple[int, ...], missing: int) -> tuple[int, int, int]:
    i, j, k = (missing,) * (3 - len(sizes)) + tuple(sizes)
    return i, j, k
