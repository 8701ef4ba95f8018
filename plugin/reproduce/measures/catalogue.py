"""All measures: importing this module registers them."""

from __future__ import annotations

from . import analyses, scores, texts, waves  # noqa: F401
from .base import MEASURES, Found, Subject, measure

__all__ = ["MEASURES", "Found", "Subject", "measure"]
