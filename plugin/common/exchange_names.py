"""Swaps two names atomically (Linux: renameat2 with RENAME_EXCHANGE)."""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path

AT_FDCWD = -100
RENAME_EXCHANGE = 2
# Errors of kernels and file systems (NFS, some FUSE) that do not support it.
WITHOUT = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP)


def exchange(a: Path, b: Path) -> bool:
    """Swaps a and b; returns False, with nothing changed, if the system does not support it."""
    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if call is None:
        return False
    if call(AT_FDCWD, os.fsencode(a), AT_FDCWD, os.fsencode(b), RENAME_EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in WITHOUT:
        return False
    raise OSError(number, os.strerror(number), str(b))
