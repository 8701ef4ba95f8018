"""Layers: a cell over time."""

from .recurrent import Recurrent

__all__ = ["Recurrent"]
