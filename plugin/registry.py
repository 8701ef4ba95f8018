"""Registries from names to objects, with the same rules for every kind of plug-in.

A name can be registered only once, and the error for an unknown name lists close matches. Built-in entries
register themselves when their package is imported; third-party ones come from
`--user-dir` or from the entry-point group `tsm.plugins` (see `user_dir.py`).
"""

from __future__ import annotations

import difflib
import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Generic, TypeVar

T = TypeVar("T")

_tables: list[Registry[Any]] = []


def close_to(name: object, known: list[str]) -> list[str]:
    """At most three similar names."""
    return difflib.get_close_matches(str(name), known, n=3)


def unknown(kind: str, name: object, known: list[str]) -> ValueError:
    """The error for an unknown name: it lists similar names, or else all of `known`."""
    close = close_to(name, known)
    hint = f"did you mean {' or '.join(close)}?" if close else f"known: {', '.join(sorted(known))}"
    return ValueError(f"unknown {kind} {name!r}; {hint}")


class Registry(Generic[T]):
    """A table from names to objects for one kind of plug-in ("cell", "task", ...)."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._entries: dict[str, T] = {}
        self._makers: dict[str, str] = {}  # name -> module that registered it
        self._promised: dict[str, str] = {}  # name -> module that will register it
        _tables.append(self)

    def register(self, name: str) -> Callable[[T], T]:
        """Decorator that registers the object as `name` and returns it unchanged."""

        def enter(entry: T) -> T:
            if name in self._entries or self._taken(name):
                raise ValueError(f"{self.kind} {name!r} is already registered")
            self._entries[name] = entry
            self._makers[name] = _module_being_imported()
            return entry

        return enter

    def _taken(self, name: str) -> bool:
        """Whether the name is promised to a module other than the one being imported."""
        return self._promised.get(name, _module_being_imported()) != _module_being_imported()

    def promise(self, name: str, module: str) -> None:
        """Declares `name`. The `module` that registers it is imported on first use."""
        self._promised[name] = module

    def check(self, name: str) -> None:
        """Raises ValueError unless the name is known."""
        if name not in self:
            raise unknown(self.kind, name, self.names())

    def get(self, name: str) -> T:
        self.check(name)
        if name not in self._entries:
            importlib.import_module(self._promised[name])
        return self._entries[name]

    def names(self) -> list[str]:
        return sorted({*self._entries, *self._promised})

    def __contains__(self, name: object) -> bool:
        return name in self._entries or name in self._promised

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())


def _module_being_imported() -> str:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_name != "<module>":
        frame = frame.f_back
    return "" if frame is None else str(frame.f_globals.get("__name__", ""))


@contextmanager
def all_or_nothing() -> Iterator[None]:
    """An error inside the block undoes its registrations.

    Built-in entries remain, since their modules stay loaded and would not register them again.
    """
    before = {id(table): set(table._entries) for table in _tables}
    try:
        yield
    except BaseException:
        own = __name__.partition(".")[0]
        for table in _tables:
            for name in set(table._entries) - before.get(id(table), set()):
                if table._makers[name].partition(".")[0] != own:
                    del table._entries[name], table._makers[name]
        raise
