"""Layers: a cell over time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..common.lazy import lazy

if TYPE_CHECKING:
    from .recurrent import Recurrent

__all__ = ["Recurrent"]

__getattr__ = lazy(__name__, {"Recurrent": ".recurrent"})
