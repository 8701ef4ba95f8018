"""tsm (time-scale models): train, export and stream recurrent networks with long memory."""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_MODULES = ("nn",)  # loaded on first use: importing tsm loads no torch


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULES])
