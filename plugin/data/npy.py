"""Reads arrays from .npy files that may be malicious."""

from __future__ import annotations

import math

from ..common.bounded import read_at_most
from ..common.lazy import np
from .files import Entry

MAX_NPY = 1 << 33  # bytes


def read_npy(entry: Entry) -> np.ndarray:
    """A .npy file of plain numbers; its header is checked against the size of the file first."""
    with entry.open() as f:
        try:
            version = np.lib.format.read_magic(f)
            read = (
                np.lib.format.read_array_header_1_0
                if version == (1, 0)
                else np.lib.format.read_array_header_2_0
            )
            shape, fortran, dtype = read(f)
        except (ValueError, EOFError, SyntaxError) as e:
            raise ValueError(f"{entry.name}: not a .npy file ({e})") from e
        size = math.prod(shape) * dtype.itemsize
        if dtype.hasobject or fortran or min(shape, default=0) < 0 or size > MAX_NPY:
            raise ValueError(
                f"{entry.name}: {dtype} {shape}; accepted: plain numbers, row after row, no size below 0, at "
                f"most {MAX_NPY:,} bytes"
            )
        raw = read_at_most(f, size, entry.name)
    if len(raw) != size:
        raise ValueError(f"{entry.name}: {len(raw):,} bytes of data; its header promises {size:,}")
    return np.frombuffer(raw, dtype=dtype).reshape(shape)
