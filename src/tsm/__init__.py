"""tsm (time-scale models): train, export and stream recurrent networks with long memory."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .plugin.loaded.load import load

__version__ = "0.1.0"
__all__ = ["__version__", "load"]

_MODULES = ("nn",)  # looked up on first use, like `load`: importing tsm does not load torch


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name == "load":
        return importlib.import_module(f"{__name__}.plugin.loaded.load").load
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULES, "load"])
