"""The provenance of a run: the commit of the code, the command that repeats it, the hash of the data."""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
from functools import cache
from pathlib import Path

from ...data.staged_folder import META, SUMS

VARIABLE = "TSM_COMMIT"  # environment variable: the commit of sources without a git history
DIGITS = 16  # digits of the hash of the data


def origin(
    home: str, variant: str, seed: int, data: str = "", flags: tuple[str, ...] = ()
) -> dict[str, str]:
    """flags: those flags of the command that affect the result."""
    words = ["tsm-reproduce", home, "--variants", variant, "--seeds", f"{seed}-{seed}", *flags]
    found = {"commit": commit(), "command": shlex.join(words)}
    return found | ({"data": data_hash(data)} if data else {})


@cache
def commit() -> str:
    """The commit of the sources, with + if they have been changed since; "" if unknown."""
    if named := os.environ.get(VARIABLE):
        return named
    root = Path(__file__).resolve().parents[3]
    if shutil.which("git") is None or not (root / ".git").exists():
        return ""
    known = _git(root, "rev-parse", "HEAD")
    return known + ("+" if known and _git(root, "status", "--porcelain", "-uno") else "")


def _git(root: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else ""


@cache
def data_hash(folder: str) -> str:
    """A hash of file names and contents, except meta.json (which contains versions) and checksums.txt."""
    total = hashlib.sha256()
    for path in sorted(Path(folder).iterdir()):
        if path.is_file() and path.name not in (META, SUMS):
            total.update(path.name.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()[:DIGITS]
