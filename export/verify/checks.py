"""The checks that `verify` runs on a runner. Each yields the outputs together with those of the model in
float64.

Letters as in the plugin: N streams, T steps. All inputs are random with a fixed seed; states are ones that the
model has reached.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from ..common.facts import shortest_dt, takes_dt
from ..common.runner import Array, Runner, State, feed, in_chunks, takes, unit
from .reference import Reference
from .tolerance import longest_sum, shares

if TYPE_CHECKING:
    from ...plugin.models import SequenceModel

T = 23
PRIMES = [2, 3, 5, 7, 5, 1]
assert sum(PRIMES) == T
YARD = (4, 64)
"""Streams and steps over which the error of float32 itself is measured first."""

Outputs = dict[str, Array]


class Expected(NamedTuple):
    """The float64 outputs, and the distance of float32 from each, relative to its size."""

    outputs: Outputs
    shares: dict[str, float]


Pair = tuple[Outputs, Expected]
"""(found, expected), output name -> values."""


@dataclass
class Subject:
    """The model under test, in float64 and in float32, and inputs for it."""

    model: SequenceModel
    reference: Reference

    def __post_init__(self) -> None:
        self.rounded = Reference(self.model, torch.float32)
        self.terms = longest_sum(self.model)
        self._answers: dict[tuple[bytes, ...], Expected] = {}
        self.shares: dict[str, float] = {}
        if all(layer.cell.bounded for layer in self.model.layers):  # in others, errors grow
            self.shares = self.answer(self.x(np.random.default_rng(0), *YARD)).shares
        self.takes_dt = takes_dt(self.model)
        self.least_dt = max(shortest_dt(self.model), 0.05)

    def x(self, rng: np.random.Generator, rows: int, steps: int) -> Array:
        """Tokens, or values."""
        if self.model.embed is None:
            width = self.model.layers[0].input_size
            return rng.standard_normal((rows, steps, width)).astype(np.float32)
        return rng.integers(0, self.model.embed.vocab_size, (rows, steps))

    def dt(self, rng: np.random.Generator, rows: int, steps: int) -> Array | None:
        if not self.takes_dt:
            return None
        return rng.uniform(self.least_dt, self.least_dt + 2, (rows, steps)).astype(np.float32)

    def reached(self, rng: np.random.Generator, rows: int, steps: int = 9) -> State:
        """States after some steps, as float32, like those of a stream."""
        _, state = self.reference.run(self.x(rng, rows, steps))
        return [{name: value.astype(np.float32) for name, value in s.items()} for s in state]

    def answer(
        self,
        x: Array,
        state: State | None = None,
        dt: Array | None = None,
        lengths: Array | None = None,
    ) -> Expected:
        """The expected outputs, cached: several runners get the same inputs."""
        states = [value for layer in state or [] for value in layer.values()]
        given = [v if v is None else v.tobytes() for v in (x, dt, lengths, *states)]
        key = tuple(v if v is not None else b"-" for v in given)
        if key not in self._answers:
            exact = named(self.reference.run(x, state, dt, lengths))
            rounded = named(self.rounded.run(x, state, dt, lengths))
            found = shares(rounded, exact)
            least = {name: max(e, self.shares.get(name, 0.0)) for name, e in found.items()}
            self._answers[key] = Expected(exact, least)
        return self._answers[key]


def named(result: tuple[Array, State]) -> Outputs:
    """The logits and every state, by their names in a file."""
    logits, state = result
    found = {"logits": logits}
    for index, layer in enumerate(state):
        found |= {f"state_{name}_{index}": value for name, value in layer.items()}
    return found


def shapes(subject: Subject, runner: Runner) -> Iterator[Pair]:
    """One or more steps of one or more streams, from zeros and from a state."""
    rng = np.random.default_rng(1)
    for rows, steps in ((1, 1), (1, T), (3, 7), (5, 2)):
        x = subject.x(rng, rows, steps * unit(runner))
        yield named(feed(runner, x)), subject.answer(x)
        state = subject.reached(rng, rows)
        yield named(feed(runner, x, state)), subject.answer(x, state)


def chunks(subject: Subject, runner: Runner) -> Iterator[Pair]:
    """The same stream in one piece, in single steps and in prime-sized chunks."""
    rng = np.random.default_rng(2)
    x = subject.x(rng, 2, T * unit(runner))
    expected = subject.answer(x)
    for cuts in ([T], [1] * T, PRIMES):
        yield named(in_chunks(runner, [size * unit(runner) for size in cuts], x)), expected


def ragged(subject: Subject, runner: Runner) -> Iterator[Pair]:
    """Rows that end early, one of them before its first step."""
    rng = np.random.default_rng(3)
    steps = 11
    x, lengths = subject.x(rng, 5, steps), np.array([steps, 3, 0, 1, steps - 1])
    for state in (None, subject.reached(rng, 5)):
        found = feed(runner, x, state, None, lengths)
        yield named(found), subject.answer(x, state, None, lengths)


def times(subject: Subject, runner: Runner) -> Iterator[Pair]:
    """Time steps of all lengths, in one piece, in prime-sized chunks, and with rows that end early."""
    rng = np.random.default_rng(4)
    steps, cuts = T * unit(runner), [size * unit(runner) for size in PRIMES]
    x, dt = subject.x(rng, 2, steps), subject.dt(rng, 2, steps)
    expected = subject.answer(x, None, dt)
    yield named(feed(runner, x, None, dt)), expected
    yield named(in_chunks(runner, cuts, x, None, dt)), expected
    if not takes(runner, "lengths"):
        return
    lengths = np.array([4, T])
    found = feed(runner, x, None, dt, lengths)
    yield named(found), subject.answer(x, None, dt, lengths)


def round_trip(subject: Subject, runner: Runner) -> Iterator[Pair]:
    """A state that was saved to a file, loaded and reordered by rows continues its streams."""
    rng = np.random.default_rng(5)
    x, half = subject.x(rng, 3, T * unit(runner)), 9 * unit(runner)
    _, state = feed(runner, x[:, :half])
    file = io.BytesIO()
    flat = {f"{i}/{name}": v for i, layer in enumerate(state) for name, v in layer.items()}
    np.savez(file, **flat)  # type: ignore[arg-type]
    file.seek(0)
    order = np.array([2, 0, 1])
    with np.load(file) as stored:
        again: State = [{n: stored[f"{i}/{n}"][order] for n in s} for i, s in enumerate(state)]
    found = named(feed(runner, x[order, half:], again))
    whole = subject.answer(x)
    expected = {name: value[order] for name, value in whole.outputs.items()}
    if expected["logits"].ndim == 3:
        expected["logits"] = expected["logits"][:, half:]
    yield found, Expected(expected, whole.shares)


Question = Callable[[Subject, Runner], Iterator[Pair]]

QUESTIONS: dict[str, Question] = {
    "other N and T": shapes,
    "chunks of 1, primes, whole": chunks,
    "ragged lengths": ragged,
    "time steps dt": times,
    "state round trip": round_trip,
}


def questions(subject: Subject, runner: Runner) -> dict[str, Question]:
    """The checks that apply to the model and to the runner's inputs."""
    needs: dict[Question, bool] = {
        ragged: takes(runner, "lengths"),
        times: subject.takes_dt and takes(runner, "dt"),
    }
    return {name: ask for name, ask in QUESTIONS.items() if needs.get(ask, True)}


def cuts_of(rng: np.random.Generator, steps: int, largest: int = 97, whole: int = 1) -> list[int]:
    """Random chunk sizes, rounded up to multiples of `whole`, that add up to at least `steps`."""
    cuts: list[int] = []
    while (left := steps - sum(cuts)) > 0:
        size = min(left, int(rng.integers(1, largest + 1)))
        cuts.append(-(-size // whole) * whole)
    return cuts
