"""Names of a package that are looked up on first use, so that importing it loads no torch.

    __getattr__ = lazy(__name__, {"Recurrent": ".recurrent"})

Beside it, `if TYPE_CHECKING:` imports the same names for type checkers.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def lazy(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """A module's `__getattr__`: `homes` says which module of `package` has a name."""

    def look_up(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(homes[name], package), name)

    return look_up
