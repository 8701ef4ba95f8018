"""A data folder appears, or is replaced, as a whole.

Where the file system lets two names change places, the new folder and the old one do. Elsewhere the
old one steps aside first: a crash at that moment leaves it under a hidden name, from which the next
who opens or writes the folder takes it back (`recover`).
"""

from __future__ import annotations

import glob
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..common.atomic import hidden, make_folder, sync_folder
from ..common.exchange import exchange

META = "meta.json"
SUMS = "checksums.txt"
EMBEDDINGS = "embeddings.npy"
FORMAT = "tsm-data"


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
    recover(dest)
    check_destination(dest)
    make_folder(dest.parent)
    stage = hidden(dest, "tmp")
    os.mkdir(stage)
    try:
        yield stage
        sync_folder(stage)
        check_destination(dest)
        old = _take_place(stage, dest)
    except BaseException:
        shutil.rmtree(stage, ignore_errors=True)
        raise
    sync_folder(dest.parent)  # before the old one goes: until then a crash may bring it back
    if old is not None:
        shutil.rmtree(old)
    for forgotten in _aside(
        dest
    ):  # of an earlier crash: nobody may take it for the folder later on
        shutil.rmtree(forgotten)


def recover(dest: Path) -> None:
    """Take an earlier folder back that a crash left aside (see above); else nothing."""
    if dest.exists():
        return
    if aside := _aside(dest):
        os.rename(max(aside, key=lambda p: p.stat().st_ctime_ns), dest)
        sync_folder(dest.parent)


def _aside(dest: Path) -> list[Path]:
    """Folders that stepped aside for dest and are still there."""
    return [Path(p) for p in glob.glob(str(dest.parent / f".{glob.escape(dest.name)}.*.old"))]


def _take_place(stage: Path, dest: Path) -> Path | None:
    """stage becomes dest; where the folder that was there is now, or None."""
    if not dest.exists() or not any(dest.iterdir()):
        os.rename(stage, dest)
        return None
    if exchange(stage, dest):
        return stage
    old = hidden(dest, "old")
    os.rename(dest, old)
    try:
        os.rename(stage, dest)
    except BaseException:
        recover(dest)
        raise
    return old


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
