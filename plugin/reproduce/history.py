"""What validations said as a run went on: kept beside its checkpoints, thinned in its summary."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

Row = dict[str, Any]
POINTS = 60  # rows that a summary keeps


class History:
    """A writer of the trainer's reports (train/progress.py) that remembers the validations.

    path: a JSON line a validation. look: told of every validation. say: told how far it is, at most
    every `pause` seconds.
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
        self.ticks: list[tuple[int, float]] = []  # updates, seconds: the pace between reports
        self.began = self.said = time.monotonic()
        self.before = 0.0

    def begin(self, update: int, seconds: float) -> None:
        """Go on after `update` updates: what a lost checkpoint had beyond them is forgotten."""
        self.before = seconds
        if self.path.is_file():
            rows = [json.loads(line) for line in self.path.read_text().splitlines()]
            self.rows = [row for row in rows if row["update"] <= update]
            for row in self.rows[-1:]:
                self.look(row)
        self.path.write_text("".join(json.dumps(row) + "\n" for row in self.rows))

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
        """Seconds an update, between the first and the last report of this session."""
        if len(self.ticks) < 2:
            return None
        (first, began), (last, ended) = self.ticks[0], self.ticks[-1]
        return (ended - began) / (last - first)


def plain(values: Row) -> Row:
    """Numbers with six digits, None for what JSON cannot hold."""
    return {k: short(v) if isinstance(v, float) else v for k, v in values.items()}


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
