"""One long stream in random chunks through all runners: the only check that shows drift."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from ..common.runner import Array, Runner, State, feed, takes, unit
from .checks import Expected, Subject, cuts_of, named
from .report import Difference, Drift
from .tolerance import LOST, shares

YARD = 2_000
"""Steps over which the error of float32 itself is measured; in bounded cells it does not grow later."""
POINTS = 200  # of a drift curve


@dataclass
class Stream:
    """`run` yields the expected and the actual outputs after each chunk. `done`: number of steps compared;
    `ended`: why it stopped early, or ""."""

    subject: Subject
    runners: Sequence[Runner]
    steps: int
    done: int = 0
    ended: str = ""

    def __post_init__(self) -> None:
        self.own: dict[str, float] = {}

    def run(self) -> Iterator[tuple[Expected, list[dict[str, Array]]]]:
        rng = np.random.default_rng(6)
        subject = self.subject
        exact: State | None = None
        rounded: State | None = None
        theirs: list[State | None] = [None] * len(self.runners)
        bounded = all(layer.cell.bounded for layer in subject.model.layers)
        clocked = all(takes(runner, "dt") for runner in self.runners)
        for size in cuts_of(rng, self.steps, whole=max(map(unit, self.runners))):
            x, dt = subject.x(rng, 1, size), subject.dt(rng, 1, size) if clocked else None
            result = subject.reference.run(x, exact, dt)
            expected, exact = named(result), result[1]
            if self.done < YARD or not bounded:
                own = subject.rounded.run(x, rounded, dt)
                rounded = own[1]
                for name, share in shares(named(own), expected).items():
                    self.own[name] = max(share, self.own.get(name, 0.0))
            if self._lost(expected):
                return
            found = []
            for number, runner in enumerate(self.runners):
                answer = feed(runner, x, theirs[number], dt)
                theirs[number] = answer[1]
                found.append(named(answer))
            self.done += size
            least = self.subject.shares
            yield (
                Expected(expected, {n: max(e, least.get(n, 0.0)) for n, e in self.own.items()}),
                found,
            )

    def _lost(self, expected: dict[str, Array]) -> bool:
        """Whether the comparison must end here."""
        largest = float(np.finfo(np.float32).max)
        if not all(bool((np.abs(value) <= largest).all()) for value in expected.values()):
            self.ended = "float64 itself exceeds the range of float32"
        elif max(self.own.values()) > LOST:
            self.ended = "the model in float32 diverges from float64"
        return bool(self.ended)

    def note(self, drift: Drift) -> str:
        """A short summary of the run."""
        grown = f"last tenth {drift.growth():.2g}x the first"
        return (
            f"compared up to step {self.done:,}, where {self.ended}; {grown}"
            if self.ended
            else grown
        )


@dataclass
class Curve:
    """The error of the logits along a stream, and its limit."""

    points: list[tuple[int, float, float]] = field(default_factory=list)

    def add(self, step: int, logits: Difference) -> None:
        self.points.append((step, logits.absolute, logits.allowed))

    def drift(self, steps: int) -> Drift:
        """At most POINTS points, each with the largest error since the previous one."""
        window = max(1, math.ceil(steps / POINTS))
        ends: dict[int, tuple[int, float, float]] = {}
        for at, error, allowed in self.points:
            key = (at - 1) // window
            ends[key] = (at, max(error, ends[key][1] if key in ends else 0.0), allowed)
        return Drift(*(list(column) for column in zip(*ends.values(), strict=True)))
