"""A command never overwrites its own input: a typo must not destroy a checkpoint."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

Place = str | Path


def keep_inputs(flag: str, outputs: Iterable[Place], inputs: Iterable[Place | None]) -> None:
    """Raises ValueError if writing `outputs` would replace one of `inputs`, or a file in an input folder.

    A file is recognised under any name: another path, a symbolic link, a hard link. Missing files, None and ""
    are ignored.
    """
    read = {key: name for given in inputs if given for name, key in _files(Path(given))}
    for place in outputs:
        for path in (
            Path(place),
            Path(os.path.realpath(place)),
        ):  # resolve() fails in a loop of links
            found = read.get(_key(path) or (-1, -1))
            if found is not None:
                raise ValueError(
                    f"{flag} {place} would replace {found}, which is read; accepted: another name"
                )


def _files(path: Path) -> Iterator[tuple[Path, tuple[int, int]]]:
    for one in (path, *(sorted(path.rglob("*")) if path.is_dir() else ())):
        key = _key(one)
        if key is not None:
            yield one, key


def _key(path: Path) -> tuple[int, int] | None:
    """The identity of a file or folder. None for devices and pipes, since writing does not replace them."""
    try:
        found = os.stat(path)
    except OSError:  # missing: reading it will raise the error
        return None
    kept = stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)
    return (found.st_dev, found.st_ino) if kept else None
