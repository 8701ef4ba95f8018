"""A cell's program as stored in a model file, and the hash by which the compiled core recognises it.

The hash tells whether a program and its declarations are those that were compiled. A changed formula has a
different hash, so it is trained by the reference backend, and the runtime interprets the program in the model
file. export/FORMAT.md specifies the hashed text.
"""

from __future__ import annotations

import struct
from typing import Any

from .record import Formula
from .tape import Literal, Ref

MOST_NAMES = 32
"""The maximum number of gates, states, vectors or constants of a cell."""
MOST_VALUES = 256
"""The maximum number of inputs (dt always counts), literals and nodes of a program in a model file."""

_FNV_START, _FNV_PRIME = 0xCBF29CE484222325, 0x100000001B3


def program(cell: type[Formula]) -> dict[str, Any] | None:
    """{"nodes": [[op, argument, ...], ...], "outputs": {state: reference}}; None for a composite cell."""
    if not cell.elementwise:
        return None
    tape = cell.tape()
    return {
        "nodes": [[node.op, *map(_json, node.args)] for node in tape.nodes],
        "outputs": {state: _json(tape.outputs[state]) for state in cell.states},
    }


def program_text(cell: type[Formula]) -> str:
    """The text that is hashed: the program and its declarations, one per line."""
    tape = cell.tape()
    lines = [
        " ".join(("gates", *cell.gates)),
        " ".join(("states", *cell.states)),
        " ".join(("vectors", *cell.vectors)),
        " ".join(("constants", *cell.constants)),
        f"dt {int(cell.takes_dt)}",
        *(" ".join((node.op, *map(_text, node.args))) for node in tape.nodes),
        *(f"{state} {_text(tape.outputs[state])}" for state in cell.states),
    ]
    return "".join(f"{line}\n" for line in lines)


def program_hash(cell: type[Formula]) -> int:
    """64 bits of FNV-1a over `program_text`."""
    value = _FNV_START
    for byte in program_text(cell).encode("ascii"):
        value = (value ^ byte) * _FNV_PRIME % 2**64
    return value


def _json(ref: Ref) -> Any:
    return {"value": ref.value} if isinstance(ref, Literal) else ref


def _text(ref: Ref) -> str:
    """A node's number, an input's name, or "=" and the bits of a literal."""
    return f"={struct.pack('>d', ref.value).hex()}" if isinstance(ref, Literal) else str(ref)
