"""Errors of the Python side of the runtime; they have the same class and kinds as those of the compiled
side."""

from __future__ import annotations

from ._core import TsmError


def bad_file(message: str) -> TsmError:
    error = TsmError(message)
    error.kind = "bad file"
    return error
