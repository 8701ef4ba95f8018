"""All limits of the server and its retention settings; `tsm-serve --help` lists them as flags."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any


def _limit(default: float, help: str) -> Any:
    return field(default=default, metadata={"help": help})


@dataclass(frozen=True)
class Limits:
    """Each is a flag such as `--max-body`; an error caused by a limit names its flag."""

    body: int = _limit(1 << 20, "bytes of a request or of a WebSocket message")
    tokens: int = _limit(10_000, "steps that one request may feed, score or generate")
    numbers: int = _limit(100_000, "logits in one answer")
    sessions: int = _limit(100_000, "sessions in the store")
    hot: int = _limit(65_536, "streams in memory; the others are read from the store")
    queue: int = _limit(4_096, "requests that wait for the model")
    waiting: int = _limit(16, "requests that wait for one session")
    connections: int = _limit(10_000, "connections at once")
    header: int = _limit(16_384, "bytes of a request's head")
    seconds: float = _limit(30.0, "for a request to arrive, and again to be answered")
    rate: float = _limit(0.0, "requests per second of one user, 0: any number")

    def flag(self, name: str) -> str:
        assert name in {one.name for one in fields(self)}
        return f"--max-{name}"


@dataclass(frozen=True)
class Keeping:
    """What is kept for a session besides its state."""

    seconds: float = 0.0  # how long after the last request; 0: forever
    history: int = 16  # states kept for going back
    every: int = 64  # steps between these states
    replay: int = 0  # number of last inputs, to rebuild the state for other weights
    same_level: bool = False  # refuse states of another instruction set
    behind: bool = False  # answer before the state is stored
