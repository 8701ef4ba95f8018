"""A progress bar on stderr, if that is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def bar(title: str, total: int | None, unit: str) -> Iterator[Callable[[int], None]]:
    """Inside the block, call update(n) when n more items are done."""
    shown = _tqdm(total=total, desc=title, unit=f" {unit}")
    if shown is None:
        yield lambda n: None
        return
    with shown:
        yield lambda n: shown.update(n)


def track(title: str) -> Callable[[range], Iterable[int]]:
    """Wraps the range of a loop in a progress bar."""

    def wrap(items: range) -> Iterable[int]:
        shown = _tqdm(iterable=items, desc=title, delay=1.0)
        return items if shown is None else shown

    return wrap


class NoBar:
    def update(self, n: int) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


def _tqdm(**settings: Any) -> Any:
    if not sys.stderr.isatty():
        return None
    try:
        from tqdm import tqdm
    except ImportError:
        return None
    return tqdm(file=sys.stderr, leave=False, unit_scale=True, **settings)


def terminal_progress(title: str, unit: str = "char") -> Any:
    """An object with update(n) and close(): a bar on a terminal, else one that does nothing."""
    shown = _tqdm(desc=title, unit=unit)
    return NoBar() if shown is None else shown
