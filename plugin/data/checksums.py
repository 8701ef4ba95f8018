"""checksums.txt: a line `crc32 size name` for each of the other files in a data folder, sorted by name. All
files are read once when a folder is opened (crc32: above 1 GB/s), to check that no bit has changed since
tsm-preprocess.

Folders of earlier versions have no checksums.txt. Their splits are checked against the crc32 in their index,
and a warning says that the other files are not verified, and how to add checksums.
"""

from __future__ import annotations

import warnings
import zlib
from pathlib import Path

from ..command.bar import terminal_progress
from ..common.atomic import write_bytes
from .corpus import Corpus
from .meta import Meta
from .staged_folder import META, SUMS

BLOCK = 1 << 20
LARGE = 1 << 30  # folders of at least this many bytes get a progress bar


class UncheckedData(UserWarning):
    """A data folder without checksums."""


def write_checksums(folder: Path, meta: Meta) -> None:
    """Write checksums.txt, the last file of a folder."""
    write_bytes(folder / SUMS, _sums(folder, _names(meta)))


def check_folder(folder: Path, meta: Meta) -> None:
    """Reads all files once; ValueError unless every one is exactly as it was written."""
    path = folder / SUMS
    if not path.is_file():
        if SUMS in meta.files:
            raise FileNotFoundError(f"{path} is not there; tsm-preprocess wrote it")
        _check_splits(folder, meta)
        warnings.warn(
            f"{folder} has no checksums: its dictionary and other files cannot be checked; add them "
            f"with: tsm-preprocess --add-checksums --destdir {folder}",
            UncheckedData,
            stacklevel=3,
        )
        return
    names = _names(meta)
    here, there = _sums(folder, names).splitlines(), path.read_bytes().splitlines()
    for name, own, written in zip(names, here, there, strict=False):
        if own != written:
            raise ValueError(f"{folder / name}: damaged (it does not match {SUMS})")
    if b"".join(line + b"\n" for line in here) != path.read_bytes():
        raise ValueError(f"{path}: damaged; accepted: a line for each of {', '.join(names)}")


def add_checksums(folder: Path) -> Meta:
    """Adds checksums.txt to a folder without one, after checking the splits against their indices."""
    meta = Meta.load(folder)
    if (folder / SUMS).exists():
        check_folder(folder, meta)
    else:
        _check_splits(folder, meta)
        write_checksums(folder, meta)
    return meta


def _names(meta: Meta) -> list[str]:
    return sorted({*meta.files, META} - {SUMS})


def _sums(folder: Path, names: list[str]) -> bytes:
    sizes = {name: _size(folder / name) for name in names}
    bar = terminal_progress(f"checking {folder}", "B") if sum(sizes.values()) > LARGE else None
    lines = []
    for name in names:
        crc, read = 0, 0
        with open(folder / name, "rb") as f:
            while block := f.read(BLOCK):
                crc, read = zlib.crc32(block, crc), read + len(block)
                if bar is not None:
                    bar.update(len(block))
        lines.append(f"{crc:08x} {read} {name}\n")
    if bar is not None:
        bar.close()
    return "".join(lines).encode()


def _size(path: Path) -> int:
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not there; tsm-preprocess wrote it")
    return path.stat().st_size


def _check_splits(folder: Path, meta: Meta) -> None:
    if meta.vocab_size is not None:
        for split in meta.splits:
            Corpus(folder / split).verify()
