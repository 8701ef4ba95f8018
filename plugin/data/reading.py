"""reading.txt: one line that says how a text classifier was trained to read its input.

    max_length N     the first N tokens; the label is read at the last one
    fixed_length N   the same, but a shorter text is padded to N tokens and read at step N

It is made from the settings of a checkpoint. A .tsm file contains it as the tensor text.reading.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

READING = "reading.txt"
_LINE = re.compile(rb"(max|fixed)_length ([1-9][0-9]{0,8})\n")


@dataclass(frozen=True)
class Reading:
    """length: the maximum number of tokens of a text. fixed: shorter texts are padded to it."""

    length: int
    fixed: bool = False

    def dump(self) -> bytes:
        """The bytes of reading.txt."""
        return f"{'fixed' if self.fixed else 'max'}_length {self.length}\n".encode()

    @classmethod
    def parse(cls, data: bytes, where: str) -> Reading:
        """Parses the bytes of reading.txt."""
        found = _LINE.fullmatch(data)
        if found is None:
            raise ValueError(
                f"{where} is {data[:40]!r}; accepted: max_length or fixed_length, and an integer"
            )
        return cls(int(found[2]), found[1] == b"fixed")
