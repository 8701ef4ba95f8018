"""All limits of the server and its retention settings; `tsm-serve --help` lists them as flags."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

CHOICES = {"dtype": ("float32", "bfloat16", "int8"), "log": ("info", "events", "off")}


def setting(default: float, low: float, high: float, help: str = "") -> Any:
    """A number that `check` checks."""
    return field(default=default, metadata={"help": help, "range": (low, high)})


def _limit(default: float, help: str) -> Any:
    low, high = (0, 1e9) if isinstance(default, float) else (1, 1 << 40)
    return setting(default, low, high, help)


def check(settings: Any) -> None:
    """Raises a ValueError if a number, a switch or a choice has a value that is not accepted."""
    for one in fields(settings):
        value = getattr(settings, one.name)
        if one.name in CHOICES:
            right, accepted = value in CHOICES[one.name], ", ".join(CHOICES[one.name])
        elif isinstance(one.default, bool):
            right, accepted = isinstance(value, bool), "true or false"
        elif "range" in one.metadata:
            low, high = one.metadata["range"]
            whole = isinstance(one.default, int)
            right = type(value) in ((int,) if whole else (int, float)) and low <= value <= high
            accepted = f"{'an integer' if whole else 'a number'} from {low:.15g} to {high:.15g}"
        else:
            continue
        if not right:
            raise ValueError(f"{one.name} = {value!r:.80}; accepted: {accepted}")


@dataclass(frozen=True)
class Limits:
    """Each is a flag such as `--max-body`; an error caused by a limit names its flag."""

    body: int = _limit(1 << 20, "bytes of a request or of a WebSocket message")
    tokens: int = _limit(10_000, "steps that one request may feed, score or generate")
    numbers: int = _limit(
        100_000, "logits in one answer; log-probabilities and tokens of a completion"
    )
    sessions: int = _limit(100_000, "sessions in the store")
    share: int = setting(
        0, 0, 1 << 40, "sessions of one user, 0: all sessions divided by the users with tokens"
    )
    hot: int = _limit(65_536, "streams in memory; the others are read from the store")
    weights: int = setting(
        4 << 30, 0, 1 << 50, "bytes of older weights in memory, for sessions that began with them"
    )
    queue: int = _limit(4_096, "requests that wait for the model, or large ones for their turn")
    waiting: int = _limit(16, "requests that wait for one session")
    connections: int = _limit(10_000, "connections at once")
    header: int = _limit(16_384, "bytes of a request's head")
    seconds: float = _limit(30.0, "for a request to arrive, and again to be answered")
    rate: float = _limit(0.0, "requests per second of one user, 0: any number")

    def __post_init__(self) -> None:
        check(self)

    def flag(self, name: str) -> str:
        assert name in {one.name for one in fields(self)}
        return f"--max-{name}"


@dataclass(frozen=True)
class Keeping:
    """What is kept for a session, and for how long."""

    seconds: float = setting(0.0, 0, 1e12)  # from the last request on; 0: forever
    history: int = setting(16, 0, 10_000)  # earlier states to keep
    every: int = setting(64, 1, 1 << 31)  # steps between these states
    replay: int = setting(0, 0, 100_000)  # inputs to keep, to rebuild the state for other weights
    same_level: bool = False  # refuse states of another instruction set
    behind: bool = False  # answer before the state is stored

    def __post_init__(self) -> None:
        check(self)
