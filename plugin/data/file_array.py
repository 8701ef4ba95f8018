"""A 1-d array in a file, read piece by piece as it is needed.

It is not memory-mapped: if a file is truncated or its disk fails, a mapping kills the process with SIGBUS. With
this class an error names the file, and reading 70 numbers takes no longer than from a mapping.
"""

from __future__ import annotations

import os
import weakref
from pathlib import Path

from ..common.lazy import np


class FileArray:
    """array[i], array[a:b] and np.asarray(array) copy the current contents of the file."""

    def __init__(self, path: Path, dtype: str, offset: int, count: int) -> None:
        self.path, self.dtype, self.offset, self.count = path, np.dtype(dtype), offset, count
        self._file = os.open(path, os.O_RDONLY)
        weakref.finalize(self, os.close, self._file)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, key: int | slice) -> np.ndarray:
        if not isinstance(key, slice):
            at = range(self.count)[key]
            return self._read(at, at + 1)[0]
        start, stop, step = key.indices(self.count)
        if step != 1:
            raise ValueError(f"step is {step}; accepted: 1")
        return self._read(start, max(start, stop))

    def __array__(self, dtype: np.dtype | None = None, copy: bool | None = None) -> np.ndarray:
        found = self._read(0, self.count)
        return found if dtype is None else found.astype(dtype, copy=False)

    def _read(self, start: int, stop: int) -> np.ndarray:
        out = np.empty(stop - start, self.dtype)
        rest, at = out.data.cast("B"), self.offset + start * self.dtype.itemsize
        while rest.nbytes:
            got = os.preadv(self._file, [rest], at)
            if not got:
                raise ValueError(f"{self.path}: truncated while it was in use")
            rest, at = rest[got:], at + got
        return out
