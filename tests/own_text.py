"""A user's own text in three files, for the tests of tsm-preprocess."""

from __future__ import annotations

import hashlib
import lzma
from pathlib import Path

TRAIN = "the cat sat\nthe dog sat\n\na cat ran\n"
NAMES = {"train": "train.txt", "valid": "valid.txt", "test": "test.txt.xz"}


def write_text(folder: Path) -> None:
    (folder / NAMES["train"]).write_text(TRAIN)
    (folder / NAMES["valid"]).write_text("the dog ran\n")
    (folder / NAMES["test"]).write_bytes(lzma.compress(b"the bird sat\n"))


def user_files(folder: Path, *splits: str) -> list[str]:
    """The flags that name the files of these splits."""
    return [a for s in splits for a in (f"--{s}pref", str(folder / NAMES[s]))]


def digest(folder: Path) -> dict[str, str]:
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(folder.iterdir())}
