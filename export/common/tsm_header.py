"""The header of a `.tsm` file, which is a safetensors file: 8 bytes of length, then JSON, then the tensors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from . import checksum

METADATA = "__metadata__"
LONGEST = 16 << 20  # bytes, as in the runtime


def read_header(path: Path) -> dict[str, Any]:
    """The header of a file, which may be hostile; its metadata are a table."""
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > LONGEST:
            raise ValueError(
                f"{path}: the header's length is {length:,}; accepted: up to {LONGEST:,}"
            )
        text = file.read(length)
    try:
        header = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: the header is not JSON ({error})") from error
    if not isinstance(header, dict) or not isinstance(header.get(METADATA), dict):
        raise ValueError(f"{path}: the header has no {METADATA}; accepted: a .tsm file")
    return header


def with_metadata(file: bytes, metadata: Mapping[str, str]) -> bytearray:
    """A safetensors file with these metadata besides its own, and a checksum before them."""
    length = int.from_bytes(file[:8], "little")
    header = json.loads(file[8 : 8 + length])
    own = header.pop(METADATA, {})
    whole = {"checksum": "", **own, **metadata}  # the checksum comes first
    whole["checksum"] = checksum.BLANK  # seal() fills it in
    head = json.dumps({METADATA: whole, **header}, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)
    made = bytearray(len(head).to_bytes(8, "little") + head)
    made += memoryview(file)[8 + length :]
    checksum.seal(made)
    return made
