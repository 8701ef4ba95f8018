"""Atomic writes: a file appears under its name only when every byte is on the disk.

Everything that must survive a crash is written with these functions. tests/faults makes each of these calls
fail and simulates a crash between any two.
"""

from __future__ import annotations

import errno
import io
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, cast


class NotDurable(OSError):
    """The file is complete under its name, but the name may not be on disk yet."""


class _Disk(io.RawIOBase):
    """A new unbuffered file: every write is one os.write, which may write only part of the data."""

    def __init__(self, path: Path) -> None:
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self.fd

    def readinto(self, buffer) -> int:
        return os.readv(self.fd, [buffer])

    def write(self, data) -> int:
        return os.write(self.fd, data)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return os.lseek(self.fd, offset, whence)

    def truncate(self, size: int | None = None) -> int:
        size = self.tell() if size is None else size
        os.ftruncate(self.fd, size)
        return size

    def close(self) -> None:
        if not self.closed:
            super().close()
            os.close(self.fd)


def hidden(path: Path, end: str) -> Path:
    """A new temporary name next to path."""
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.{end}")


def sync_folder(folder: Path) -> None:
    """Make renames inside folder durable."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def make_folder(folder: Path) -> None:
    """Create the folder and missing parents, and sync them to disk."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    # Another process may create it first; if it is a file, writing will fail.
    with suppress(FileExistsError):
        os.mkdir(folder)
    with suppress(PermissionError):  # a folder without read permission cannot be synced
        sync_folder(folder.parent)


def check_replaceable(path: Path) -> None:
    """Raises OSError if path is a device, pipe or socket, such as /dev/null, or a link to an open file, such
    as /dev/stdout: a rename would replace it."""
    try:
        mode = os.stat(path).st_mode
        opened = path.is_symlink() and os.readlink(path).startswith("/proc/")
    except OSError:  # missing, or writing raises the error
        return
    if opened or not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise OSError(errno.EINVAL, "not a regular file; accepted: a file or a new name", str(path))


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Errors name the path that the user gave instead of a temporary one beside it."""
    try:
        yield
    except OSError as error:
        error.filename = str(path)
        raise


@contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """Opens a file for writing; it becomes `path` if the block succeeds and is deleted otherwise.

    Raises NotDurable if the file has become `path` but a crash of the machine could still undo that.
    """
    check_replaceable(path)
    new = hidden(path, "tmp")
    with naming(path):
        disk = _Disk(new)
    try:
        with io.BufferedRandom(disk, 1 << 17) as f:
            yield cast(BinaryIO, f)
            f.flush()
            os.fsync(disk.fd)
        os.replace(new, path)
    except BaseException:
        with suppress(OSError):  # report the first error
            os.unlink(new)
        raise
    try:
        sync_folder(path.parent)
    except OSError as error:
        raise NotDurable(error.errno, error.strerror, str(path)) from error


def write_bytes(path: Path, data: bytes) -> None:
    """Replace path by data, atomically."""
    with atomic_file(path) as f:
        f.write(data)
