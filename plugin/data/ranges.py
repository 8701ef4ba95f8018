"""ranges.txt: the smallest and the largest value of each input in the training data, one line per input.

A data folder stores them in meta.json, a checkpoint contains this file, and a .tsm file has the tensor
text.ranges. Models do not rescale their inputs, so values far outside were probably not scaled as in training.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..common.lazy import np

RANGES = "ranges.txt"
SHOWN = 5  # names in a message


class FarOutside(UserWarning):
    """Warning about inputs that are far outside the training data."""


@dataclass(frozen=True)
class Ranges:
    """pairs: (smallest, largest) of each input."""

    pairs: tuple[tuple[float, float], ...]

    @classmethod
    def of(cls, value: object, count: int, where: str) -> Ranges:
        """Checks the entry of a meta.json."""
        pairs = value if isinstance(value, list) else []
        fits = all(
            isinstance(pair, list) and len(pair) == 2 and all(type(n) is float for n in pair)
            for pair in pairs
        )
        if (
            not fits
            or len(pairs) != count
            or not all(-math.inf < a <= b < math.inf for a, b in pairs)
        ):
            raise ValueError(
                f"{where} is {repr(value)[:80]}; accepted: {count} pairs of a smallest and a largest number"
            )
        return cls(tuple((low, high) for low, high in pairs))

    @classmethod
    def parse(cls, data: bytes, where: str, count: int) -> Ranges:
        """Parses the bytes of ranges.txt."""
        try:
            *lines, rest = data.decode("ascii").split("\n")
            pairs = [[float(number) for number in line.split(" ")] for line in lines]
        except ValueError:
            pairs, rest = [], ""
        if rest:  # cut short
            pairs = []
        return cls.of(pairs, count, where)

    def dump(self) -> bytes:
        """The bytes of ranges.txt."""
        return "".join(f"{low!r} {high!r}\n" for low, high in self.pairs).encode()

    def outside(self, x: np.ndarray, names: Sequence[str]) -> str:
        """Which inputs of x [T,I] are further outside than their range is wide; "" if none is. names: of the
        inputs; may be empty."""
        if not len(x):
            return ""
        lows, highs = (np.array(side) for side in zip(*self.pairs, strict=True))
        width = np.maximum(highs - lows, 1e-3 * np.maximum(np.abs(lows), np.abs(highs)))
        least, most = x.min(axis=0).astype(np.float64), x.max(axis=0).astype(np.float64)
        far = np.flatnonzero((least < lows - width) | (most > highs + width)).tolist()
        shown = [
            f"{names[i] if names else f'number {i + 1}'} ({least[i]:.3g} to {most[i]:.3g}; in training "
            f"{lows[i]:.3g} to {highs[i]:.3g})"
            for i in far[:SHOWN]
        ]
        return ", ".join(shown) + ", ..." * (len(far) > SHOWN)


def note(where: str, found: str) -> str:
    """What commands print about inputs that `outside` has found."""
    return f"{where}: far outside the training data, so maybe not scaled as there: {found}"
