"""Validation results of a run: all of them next to its checkpoints, a subset in its summary."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..common.atomic import write_bytes

Row = dict[str, Any]
POINTS = 60  # maximum rows kept in a summary


class History:
    """A receiver of the trainer's reports (train/progress.py) that stores the validations.

    path: one JSON line per validation. look: called with every validation. say: called with the progress,
    at most every `pause` seconds.
    """

    def __init__(
        self,
        path: Path,
        look: Callable[[Row], None] = lambda row: None,
        say: Callable[[Row], None] = lambda row: None,
        pause: float = 10.0,
    ) -> None:
        self.path, self.look, self.say, self.pause = path, look, say, pause
        self.rows: list[Row] = []
        self.ticks: list[tuple[int, float]] = []  # (update, time) of each report
        self.began = self.said = time.monotonic()
        self.before = 0.0

    def begin(self, update: int, seconds: float) -> None:
        """Continues after `update` updates. Later entries, which belong to a lost checkpoint, are dropped."""
        self.before = seconds
        if self.path.is_file():
            self.rows = [row for row in read_rows(self.path) if row["update"] <= update]
            for row in self.rows[-1:]:
                self.look(row)
        write_bytes(self.path, "".join(json.dumps(row) + "\n" for row in self.rows).encode())

    def event(self, kind: str, values: Row) -> None:
        now = time.monotonic()
        if kind == "train":
            self.ticks.append((values["update"], now))
        if kind == "valid":
            row = {**plain(values), "seconds": round(self.before + now - self.began, 1)}
            self.rows.append(row)
            with self.path.open("a") as file:
                file.write(json.dumps(row) + "\n")
            self.look(row)
        if kind in ("train", "valid") and now - self.said >= self.pause:
            self.said = now
            self.say(values)

    def close(self) -> None: ...

    def pace(self) -> float | None:
        """Seconds per update, between the first and the last report since the start."""
        if len(self.ticks) < 2:
            return None
        (first, began), (last, ended) = self.ticks[0], self.ticks[-1]
        return (ended - began) / (last - first)


def read_rows(path: Path) -> list[Row]:
    """The rows of a file. An incomplete last line, left by a process that was killed while writing, is
    dropped."""
    lines = path.read_bytes().splitlines()
    rows = []
    for number, line in enumerate(lines, 1):
        try:
            rows.append(json.loads(line))
        except ValueError as error:
            if number < len(lines):
                raise ValueError(f"{path}: line {number} is damaged ({error})") from error
    return rows


def plain(value: Any) -> Any:
    """Rounds numbers to six digits, also in dicts and lists; None replaces what JSON cannot represent."""
    if isinstance(value, float):
        return short(value)
    if isinstance(value, dict):
        return {name: plain(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]
    return value


def short(value: float) -> float | None:
    return float(f"{value:.6g}") if math.isfinite(value) else None


def thinned(rows: Sequence[Row], points: int = POINTS) -> list[Row]:
    """At most `points` rows, evenly spaced, with the first and the last."""
    if len(rows) <= points:
        return list(rows)
    step = (len(rows) - 1) / (points - 1)
    return [rows[round(i * step)] for i in range(points)]


def first_update(rows: Sequence[Row], metric: str, value: float) -> int | None:
    """The update of the first validation at which the metric was at least `value`."""
    for row in rows:
        if row.get(metric) is not None and row[metric] >= value:
            return int(row["update"])
    return None
