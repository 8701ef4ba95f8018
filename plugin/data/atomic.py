"""Whole or not at all: a file, or a folder of files, appears under its name only when every byte
is on the disk."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

META = "meta.json"
FORMAT = "tsm-data"


class NotDurable(OSError):
    """The file stands under its name with every byte, but the disk may not know the name yet."""


def sync_folder(folder: Path) -> None:
    """Make renames inside folder durable."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write and seek in; it becomes `path` when the block ends well, else it vanishes.

    NotDurable: it has become `path`, and a crash of the machine may still undo that.
    """
    fd, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(fd, "w+b") as f:
            yield cast(BinaryIO, f)
            f.flush()
            os.fsync(f.fileno())
        os.chmod(name, 0o666 & ~_umask())
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    try:
        sync_folder(path.parent)
    except OSError as error:
        raise NotDurable(error.errno, error.strerror, str(path)) from error


def write_bytes(path: Path, data: bytes) -> None:
    """Replace path by data, atomically."""
    with atomic_file(path) as f:
        f.write(data)


def check_destination(dest: Path) -> None:
    """Accept a new or empty folder, or an earlier output with nothing else in it."""
    if not dest.exists():
        if dest.parent.exists() and not dest.parent.is_dir():
            raise ValueError(f"--destdir {dest}: {dest.parent} is not a folder")
        return
    if not dest.is_dir():
        raise ValueError(f"--destdir {dest} is a file; accepted: a new or empty folder")
    present = {p.name for p in dest.iterdir()}
    foreign = sorted(present - _files_of_earlier_output(dest))
    if foreign:
        raise ValueError(
            f"--destdir {dest} holds files that tsm-preprocess did not write "
            f"({', '.join(foreign[:3])}"
            f"{', ...' if len(foreign) > 3 else ''}); accepted: a new or empty folder, or an "
            "earlier output"
        )


@contextmanager
def staged_folder(dest: Path) -> Iterator[Path]:
    """A sibling folder that becomes dest when the block ends well (an old output makes way)."""
    check_destination(dest)
    dest.parent.mkdir(parents=True, exist_ok=True)
    stage = Path(tempfile.mkdtemp(prefix=f".{dest.name}.", suffix=".tmp", dir=dest.parent))
    try:
        yield stage
        os.chmod(stage, 0o777 & ~_umask())
        sync_folder(stage)
        check_destination(dest)
        if dest.exists() and any(dest.iterdir()):
            old = Path(tempfile.mkdtemp(prefix=f".{dest.name}.", suffix=".old", dir=dest.parent))
            os.rename(dest, old)
            try:
                os.rename(stage, dest)
            except BaseException:
                os.rename(old, dest)
                raise
            shutil.rmtree(old)
        else:
            os.rename(stage, dest)
    except BaseException:
        shutil.rmtree(stage, ignore_errors=True)
        raise
    sync_folder(dest.parent)


def _files_of_earlier_output(dest: Path) -> set[str]:
    try:
        meta = json.loads((dest / META).read_bytes())
    except (OSError, ValueError):
        return set()
    if not isinstance(meta, dict) or meta.get("format") != FORMAT:
        return set()
    files = meta.get("files")
    return {META, *(f for f in files if isinstance(f, str))} if isinstance(files, list) else {META}


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
