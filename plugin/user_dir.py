"""Third-party plug-ins: a folder given with `--user-dir`, or installed packages.

A folder with an `__init__.py` is imported as one package; the files of any other folder are imported one by
one. An installed package declares an entry point in the group `tsm.plugins`; importing its module must register
the plug-ins. If a plug-in cannot be imported, the error names it and the cause, and its registrations are
undone.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from .registry import all_or_nothing

GROUP = "tsm.plugins"


def import_user_dir(folder: str | Path) -> list[str]:
    """Import the plug-ins of `folder`; importing the same folder again does nothing. Returns the modules."""
    path = Path(os.path.realpath(folder))
    if not path.is_dir():
        raise FileNotFoundError(f"--user-dir {folder}: no such folder")
    if (path / "__init__.py").exists():
        return [_import(f"tsm_user_{path.name}", path / "__init__.py", [str(path)])]
    files = sorted(path.glob("*.py"))
    if not files:
        raise FileNotFoundError(f"--user-dir {folder} has no Python file")
    return [_import(f"tsm_user_{path.name}_{file.stem}", file, None) for file in files]


def import_file(file: str | Path) -> str:
    """Imports one Python file with plug-ins; returns the module."""
    path = Path(file).resolve()
    return _import(f"tsm_user_{path.parent.name}_{path.stem}", path, None)


def _import(name: str, file: Path, search: list[str] | None) -> str:
    known = sys.modules.get(name)
    if known is not None:
        if known.__file__ != str(file):
            raise ValueError(f"{file} and {known.__file__} would both be module {name}")
        return name
    spec = importlib.util.spec_from_file_location(name, file, submodule_search_locations=search)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} cannot be imported")
    module: ModuleType = importlib.util.module_from_spec(spec)
    with _whole(str(file), name):
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return name


def load_entry_points() -> list[str]:
    """Imports every installed package that declares plug-ins. Returns their names."""
    points = importlib.metadata.entry_points(group=GROUP)
    for point in points:
        name = f"the installed plug-in {point.name!r} ({point.value})"
        with _whole(name, point.module.partition(".")[0]):
            point.load()
    return sorted(point.name for point in points)


@contextmanager
def _whole(plugin: str, package: str) -> Iterator[None]:
    """After a failed import, no registered names and no modules of `package` remain, so a retry runs it
    again."""
    before = set(sys.modules)
    try:
        with all_or_nothing():
            yield
    except BaseException as error:
        for name in set(sys.modules) - before:
            if name == package or name.startswith(f"{package}."):
                del sys.modules[name]
        if not isinstance(error, Exception):  # Ctrl-C
            raise
        why = f"{type(error).__name__}: {error}"
        raise ValueError(f"{plugin} cannot be imported: {why}") from error
