"""Creates or replaces a data folder atomically.

If the file system can swap two names, the new folder and the old one are swapped. Otherwise the old one is
renamed first. A crash at that moment leaves it under a hidden name. The next process that opens or writes the
folder restores it (`recover`). If a process restores it while a writer is still running, that process reads the
old folder, and the writer repeats the replacement.

A folder is locked while it is written. An unlocked temporary folder was left by a killed process; it is removed
when the same output is written again.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..common.atomic import hidden, make_folder, naming, sync_folder
from ..common.exchange_names import exchange

try:
    import fcntl
except ImportError:  # not a Unix system
    fcntl = None  # type: ignore[assignment]

META = "meta.json"
SUMS = "checksums.txt"
EMBEDDINGS = "embeddings.npy"
FORMAT = "tsm-data"


def check_destination(dest: Path, overwrite: bool = True) -> None:
    """Accepts a new or empty folder or, with `overwrite`, an earlier output that contains no other files."""
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
    if present and not overwrite:
        raise ValueError(
            f"--destdir {dest} holds an earlier output; accepted: another folder, or --overwrite to "
            "replace it"
        )


@contextmanager
def staged_folder(dest: Path, overwrite: bool = True) -> Iterator[Path]:
    """Makes a sibling folder that becomes dest if the block succeeds (an old output is replaced)."""
    recover(dest)
    check_destination(dest, overwrite)
    make_folder(dest.parent)
    _remove_abandoned(dest)
    stage = hidden(dest, "tmp")
    with naming(dest):
        os.mkdir(stage)
    lock = os.open(stage, os.O_RDONLY)
    try:
        if fcntl is not None:
            with suppress(OSError):  # without locks, abandoned folders are not removed
                fcntl.flock(lock, fcntl.LOCK_EX)
        yield stage
        sync_folder(stage)
        check_destination(dest, overwrite)
        old = _take_place(stage, dest)
    except BaseException:
        shutil.rmtree(stage, ignore_errors=True)
        raise
    finally:
        os.close(lock)
    sync_folder(dest.parent)  # before deleting the old one: a crash could still undo the renaming
    if old is not None:
        with suppress(FileNotFoundError):  # another writer may already be removing it
            shutil.rmtree(old)
    for forgotten in _beside(dest, "old"):  # `recover` must not restore an older one
        shutil.rmtree(forgotten)


def recover(dest: Path) -> None:
    """Restores an earlier folder that a crash left under a hidden name, if there is one."""
    if dest.exists():
        return
    if aside := _beside(dest, "old"):
        try:
            os.rename(max(aside, key=lambda p: p.stat().st_ctime_ns), dest)
        except OSError:
            if not dest.exists():
                raise
            return  # another process (the writer or a reader) has restored it
        sync_folder(dest.parent)


def _beside(dest: Path, end: str) -> list[Path]:
    """The hidden folders of dest with this ending: "old" (renamed) or "tmp" (being written)."""
    ours = re.compile(rf"\.{re.escape(dest.name)}\.[0-9a-f]{{8}}\.{end}")  # as `hidden` names them
    found = [path for path in dest.parent.glob(".*") if ours.fullmatch(path.name)]
    return [path for path in found if path.is_dir() and not path.is_symlink()]


def _remove_abandoned(dest: Path) -> None:
    """Removes the folders of killed processes, except empty ones, which may belong to a process that has just
    started."""
    for left in _beside(dest, "tmp") if fcntl is not None else ():
        try:
            lock = os.open(left, os.O_RDONLY)
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # a running process holds the lock, or there are no locks
            continue
        else:
            if any(left.iterdir()):
                shutil.rmtree(left, ignore_errors=True)
        finally:
            os.close(lock)


def _take_place(stage: Path, dest: Path) -> Path | None:
    """Renames stage to dest; returns the new path of the old folder, or None."""
    if not dest.exists() or not any(dest.iterdir()):
        os.rename(stage, dest)
        return None
    if exchange(stage, dest):
        return stage
    while True:
        old = hidden(dest, "old")
        os.rename(dest, old)
        try:
            os.rename(stage, dest)
            return old
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                continue  # a process that just opened the folder restored the old one
            recover(dest)
            raise
        except BaseException:
            recover(dest)
            raise


def _files_of_earlier_output(dest: Path) -> set[str]:
    try:
        meta = json.loads((dest / META).read_bytes())
    except (OSError, ValueError):
        return set()
    if not isinstance(meta, dict) or meta.get("format") != FORMAT:
        return set()
    files = meta.get("files")
    listed = files if isinstance(files, list) else []
    return {META, SUMS, *(f for f in listed if isinstance(f, str))}
