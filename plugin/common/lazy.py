"""Names that are resolved on first use, so that --help, for example, loads neither torch nor numpy.

    __getattr__ = lazy(__name__, {"Recurrent": ".recurrent"})   names of a package
    from ..common.lazy import np                                numpy

With the first form, `if TYPE_CHECKING:` imports the same names for type checkers.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

__all__ = ["LazyModule", "lazy", "np"]


def lazy(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Returns a module-level `__getattr__`. `homes` maps each name to its module in `package`."""

    def look_up(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(homes[name], package), name)

    return look_up


class LazyModule(ModuleType):
    """A module that is imported when one of its names is first used."""

    def __getattr__(self, name: str) -> Any:
        value = getattr(importlib.import_module(self.__name__), name)
        setattr(self, name, value)
        return value


if TYPE_CHECKING:
    import numpy as np
else:
    np = LazyModule("numpy")
