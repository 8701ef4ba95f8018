"""The length of segments of truncated back-propagation: fixed, or random as in the AWD recipe (Merity 2018).

Random: m = bptt with probability .95, else bptt / 2;  length = max(5, int(N(m, 5)));  the
learning rate is scaled by length / bptt, so that short segments do not have more weight. A length is a
pure function of (seed, epoch, index).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ..common.rng import check_seed, normal_pair


class Segments(Protocol):
    """A rule for lengths; `bptt` is the length at which the learning rate is not scaled."""

    @property
    def bptt(self) -> int: ...

    def length(self, epoch: int, index: int) -> int:
        """The length of segment `index` of an epoch."""
        ...

    def scale(self, length: int) -> float:
        """The learning-rate factor for a segment of that length."""
        ...


@dataclass(frozen=True)
class FixedLength:
    """Always bptt steps, with an unscaled learning rate."""

    bptt: int

    def __post_init__(self) -> None:
        _check(self.bptt)

    def length(self, epoch: int, index: int) -> int:
        return self.bptt

    def scale(self, length: int) -> float:
        return 1.0


@dataclass(frozen=True)
class RandomLength:
    """The AWD recipe's random lengths."""

    bptt: int = 70
    seed: int = 0
    half: float = 0.05  # probability of bptt / 2
    spread: float = 5.0
    least: int = 5

    def __post_init__(self) -> None:
        _check(self.bptt)
        check_seed(self.seed)
        if not 0 <= self.half <= 1 or not 0 <= self.spread < 1e6 or self.least < 1:
            raise ValueError(
                f"half, spread, least are {self.half}, {self.spread}, {self.least}; "
                "accepted: 0 to 1, 0 or more, 1 or more"
            )

    def length(self, epoch: int, index: int) -> int:
        uniform, normal = normal_pair(self.seed, "bptt", epoch, index)
        mean = self.bptt / 2 if uniform < self.half else self.bptt
        return max(self.least, int(mean + self.spread * normal))

    def scale(self, length: int) -> float:
        return length / self.bptt


def _check(bptt: int) -> None:
    if isinstance(bptt, bool) or not isinstance(bptt, int) or bptt < 1:
        raise ValueError(f"bptt is {bptt!r}; accepted: an integer of at least 1")
