"""A stream with a size limit, since a compressed file can expand to any size.

    limit for a compressed file of n bytes: max(FLOOR, RATIO n) bytes

Text compresses to between a quarter and a tenth of its size. A few bytes that expand to a terabyte (a zip bomb,
a sparse tar) are rejected before they fill memory or disk.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import IO, cast

FLOOR = 1 << 28
RATIO = 100


def allowed(path: Path) -> int:
    """How many bytes the compressed file may expand to."""
    return max(FLOOR, RATIO * path.stat().st_size)


def bounded(stream: IO[bytes], limit: int, name: str) -> IO[bytes]:
    """The stream, to be read once; raises ValueError if it has more than `limit` bytes."""
    return cast("IO[bytes]", io.BufferedReader(_Bounded(stream, limit, name), 1 << 16))


def read_at_most(stream: IO[bytes], limit: int, name: str) -> bytearray:
    """The rest of the stream; ValueError if it has more than `limit` bytes."""
    out = bytearray()
    while block := stream.read(min(1 << 20, limit + 1 - len(out))):
        out += block
        if len(out) > limit:
            raise ValueError(f"{name}: more than {limit:,} bytes; accepted: at most that many")
    return out


class _Bounded(io.RawIOBase):
    def __init__(self, stream: IO[bytes], limit: int, name: str) -> None:
        self.stream, self.limit, self.name = stream, limit, name
        self.left = limit

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        data = self.stream.read(len(buffer))
        self.left -= len(data)
        if self.left < 0:
            raise ValueError(
                f"{self.name}: unpacks to more than {self.limit:,} bytes and {RATIO} times its size; "
                "accepted: less, or the file unpacked"
            )
        buffer[: len(data)] = data
        return len(data)
