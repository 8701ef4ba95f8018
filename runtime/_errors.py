"""Refusals by the Python side of the runtime, as the compiled side makes them."""

from __future__ import annotations

from ._core import TsmError


def bad_file(message: str) -> TsmError:
    error = TsmError(message)
    error.kind = "bad file"
    return error
