"""A load: how many sessions there are, when and how much each sends, and which ones misbehave."""

from __future__ import annotations

import json
import random
from array import array
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

ARRIVALS = ("poisson", "even")
VARIANTS = 16  # different chunks of one length


@dataclass(frozen=True)
class Load:
    """Each of `active` sessions sends `rate` messages per second, whatever the server does.

    With `think`, it sends its next message that many seconds after an answer instead; 0 saturates the server.
    `idle` sessions send one message and then only hold their connection. `mix` lists the lengths of messages
    and how often each occurs. A share of the active sessions is `slow` (reads every SLOW seconds) or `dying`
    (drops its connection without waiting for answers, and reconnects).
    """

    active: int
    seconds: float
    rate: float = 1.0
    think: float | None = None
    arrivals: str = "poisson"
    idle: int = 0
    ramp: float = 0.0  # seconds at the start that are not counted
    mix: tuple[tuple[int, float], ...] = ((8, 1.0),)
    slow: float = 0.0
    dying: float = 0.0
    vocabulary: int = 2
    seed: int = 1

    def plain(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def of(plain: dict[str, Any]) -> Load:
        return Load(**{**plain, "mix": tuple((int(n), float(w)) for n, w in plain["mix"])})

    def manners(self, number: int) -> str:
        """How an active session behaves: slow, dying or good. The bad ones are spread evenly."""
        slow, dying = round(self.slow * self.active), round(self.dying * self.active)
        place = number * 7919 % self.active if self.active % 7919 else number  # 7919 is prime
        return "slow" if place < slow else "dying" if place < slow + dying else "good"


@dataclass(frozen=True)
class Chunk:
    """Tokens of one message."""

    tokens: tuple[int, ...]

    @cached_property
    def json(self) -> bytes:
        return json.dumps({"op": "score", "tokens": self.tokens}).encode()

    @cached_property
    def body(self) -> bytes:
        return json.dumps({"tokens": self.tokens}).encode()

    @cached_property
    def raw(self) -> bytes:
        return array("q", self.tokens).tobytes()


class Draws:
    """The random numbers of a load: the same for every server."""

    def __init__(self, load: Load) -> None:
        self.load, self.random = load, random.Random(load.seed)
        self.weights = [weight for _, weight in load.mix]
        self.chunks = [[self._chunk(length) for _ in range(VARIANTS)] for length, _ in load.mix]

    def _chunk(self, length: int) -> Chunk:
        return Chunk(tuple(self.random.randrange(self.load.vocabulary) for _ in range(length)))

    def chunk(self) -> Chunk:
        kind = self.chunks[0]
        if len(self.chunks) > 1:
            (kind,) = self.random.choices(self.chunks, self.weights)
        return kind[int(self.random.random() * VARIANTS)]

    def first(self, number: int) -> float:
        """Seconds from the start to a session's first message."""
        load = self.load
        if load.think is not None:
            return load.think * self.random.random()
        if load.arrivals == "even":
            return number / (load.active * load.rate)
        return self.random.expovariate(load.rate)

    def gap(self) -> float:
        """Seconds from one message to the next; with `think`, from an answer to the next message."""
        load = self.load
        mean = 1 / load.rate if load.think is None else load.think
        if load.arrivals == "even" or not mean:
            return mean
        return self.random.expovariate(1 / mean)
