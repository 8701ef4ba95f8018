"""The checksum of a `.tsm` file (format 2): CRC-32 of all bytes, with zeros in place of its own digits.

The digits are at the same offset in every file, so that no flipped bit can hide them: the header begins with
`{"__metadata__":{"checksum":"DIGITS"`. The C++ counterpart is cpp/src/core/files/file_checksum.h.
"""

from __future__ import annotations

import zlib

PREFIX = b'{"__metadata__":{"checksum":"'
BLANK = "0" * 8
"""Stands in place of the digits while the checksum is computed."""
_BEGIN = 8 + len(PREFIX)
_END = _BEGIN + len(BLANK)


def stated(data: bytes | bytearray) -> str | None:
    """The checksum that a file states; None if the file does not begin with PREFIX."""
    if data[8:_BEGIN] != PREFIX or data[_END : _END + 1] != b'"':
        return None
    return data[_BEGIN:_END].decode("latin-1")


def computed(data: bytes | bytearray) -> str:
    """The checksum of a file's bytes: 8 hex digits."""
    crc = zlib.crc32(BLANK.encode(), zlib.crc32(data[:_BEGIN]))
    return f"{zlib.crc32(memoryview(data)[_END:], crc):08x}"


def seal(data: bytearray) -> None:
    """Write the checksum into a file whose header begins with PREFIX, BLANK and a quote."""
    if stated(data) is None:
        raise ValueError(f"the header begins with {bytes(data[8:_END])!r}; accepted: {PREFIX!r}")
    data[_BEGIN:_END] = computed(data).encode()


def check(data: bytes, name: str) -> None:
    """Raises ValueError if a file of format 2 is damaged anywhere."""
    found, right = stated(data), computed(data)
    if found is None:
        raise ValueError(
            f"{name}: it does not begin with its checksum; accepted: a .tsm file of format 2"
        )
    if found != right:
        raise ValueError(f"{name}: it is damaged: its checksum is {right}, but it states {found!r}")
