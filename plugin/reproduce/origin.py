"""The provenance of a run: the commit of the code, the command that repeats it, the hash of the data."""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
from functools import cache
from pathlib import Path

from ..data.staged_folder import META, SUMS

VARIABLE = "TSM_COMMIT"  # names the commit where the sources came without their history
DIGITS = 16  # of the data's hash


def origin(
    home: str, variant: str, seed: int, data: str = "", flags: tuple[str, ...] = ()
) -> dict[str, str]:
    """flags: those of the command that change the result."""
    words = ["tsm-reproduce", home, "--variants", variant, "--seeds", f"{seed}-{seed}", *flags]
    found = {"commit": commit(), "command": shlex.join(words)}
    return found | ({"data": data_hash(data)} if data else {})


@cache
def commit() -> str:
    """The commit of the sources, with + if they have been changed since; "" if unknown."""
    if named := os.environ.get(VARIABLE):
        return named
    root = Path(__file__).resolve().parents[2]
    if shutil.which("git") is None or not (root / ".git").exists():
        return ""
    known = _git(root, "rev-parse", "HEAD")
    return known + ("+" if known and _git(root, "status", "--porcelain", "-uno") else "")


def _git(root: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else ""


@cache
def data_hash(folder: str) -> str:
    """Of the names and bytes of the folder's files. Left out: meta.json, which names versions, and its
    checksum."""
    total = hashlib.sha256()
    for path in sorted(Path(folder).iterdir()):
        if path.is_file() and path.name not in (META, SUMS):
            total.update(path.name.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()[:DIGITS]
