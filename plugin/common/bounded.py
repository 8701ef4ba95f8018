"""A stream with a size limit: exceeding it is an error, since compressed files can expand to anything.

    accepted from a packed file of n bytes: FLOOR bytes, or RATIO n where that is more

Text is packed to a quarter or a tenth; a few bytes that stand for a terabyte (a bomb, a sparse tar)
are refused before they fill memory or disk.
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
    """The stream, to be read once; ValueError where it gives more than `limit` bytes."""
    return cast("IO[bytes]", io.BufferedReader(_Bounded(stream, limit, name), 1 << 16))


def read_at_most(stream: IO[bytes], limit: int, name: str) -> bytearray:
    """The rest of the stream, which should be small."""
    out = bytearray()
    while block := stream.read(min(1 << 20, limit + 1 - len(out))):
        out += block
        if len(out) > limit:
            raise ValueError(f"{name}: more than {limit:,} bytes; accepted: at most so many")
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
