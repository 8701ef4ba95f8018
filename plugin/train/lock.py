"""A lock that training holds on its --save-dir, so that each folder is used by one run at a time."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import BinaryIO

try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None  # type: ignore[assignment]

NAME = ".lock"
# errno values of file systems that have no locks.
WITHOUT = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


def lock_folder(folder: Path) -> BinaryIO | None:
    """Locks the folder until the returned file is closed or the process ends; None if the file system has no
    locks.

    The lock file is not deleted on release, since another run may have opened it already.
    """
    if fcntl is None:
        return None
    file = open(folder / NAME, "ab")  # noqa: SIM115
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        if isinstance(error, BlockingIOError):
            raise ValueError(
                f"--save-dir {folder} is in use by another run; accepted: a folder that no other run uses"
            ) from None
        if error.errno in WITHOUT:
            return None
        raise
    return file
