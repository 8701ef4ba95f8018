"""Reports of training: a progress bar for people, lines for logs, JSON for programs.

Every report is an event with named values:

    start (what is trained)   note (a sentence)   train (--log-interval, --log-seconds)   valid   epoch   done
"""

from __future__ import annotations

import csv
import dataclasses
import errno
import json
import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, TextIO

from .settings import LoopConfig

Values = dict[str, Any]
GONE = (errno.EIO, errno.EPIPE)  # errno for a closed terminal and for a closed pipe


class Writer(Protocol):
    """A receiver of events."""

    def event(self, kind: str, values: Values) -> None: ...

    def close(self) -> None: ...


class JsonWriter:
    """One object per line. Numbers that JSON cannot represent become null."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def event(self, kind: str, values: Values) -> None:
        print(json.dumps({"event": kind, **_finite(values)}), file=self.stream, flush=True)

    def close(self) -> None: ...


class SimpleWriter:
    """Lines for people: `epoch 3 | update 1,200 | loss 1.234 | ...`, and notes as sentences."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def event(self, kind: str, values: Values) -> None:
        print(as_text(kind, values), file=self.stream, flush=True)

    def close(self) -> None: ...


class BarWriter:
    """A tqdm bar over the epoch's updates, and lines above it."""

    def __init__(self, stream: TextIO) -> None:
        from tqdm import tqdm

        self._tqdm, self.stream = tqdm, stream
        self._bar: Any = None

    def begin(self, epoch: int, done: int, total: int) -> None:
        self.close()
        self._bar = self._tqdm(
            total=total, initial=done, desc=f"epoch {epoch}", file=self.stream, leave=False
        )

    def tick(self, values: Values) -> None:
        if self._bar is not None:
            self._bar.set_postfix_str("  ".join(_shown(k, v) for k, v in values.items()), False)
            self._bar.update(1)

    def event(self, kind: str, values: Values) -> None:
        if kind != "train":  # the bar shows the training values
            self._tqdm.write(as_text(kind, values), file=self.stream)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None


class TensorBoardWriter:
    """Scalars by update: train/loss, valid/ppl, ..."""

    def __init__(self, folder: str) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(folder)

    def event(self, kind: str, values: Values) -> None:
        if kind not in ("train", "valid"):
            return
        for name, value in values.items():
            if isinstance(value, float):
                self._writer.add_scalar(f"{kind}/{name}", value, values["update"])
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class CsvWriter:
    """event,epoch,update,name,value: one line per number, appended to a file."""

    def __init__(self, path: str | Path) -> None:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        self._file = open(path, "a", encoding="utf-8", newline="")  # noqa: SIM115  until close
        self._rows = csv.writer(self._file)
        if not self._file.tell():
            self._rows.writerow(["event", "epoch", "update", "name", "value"])

    def event(self, kind: str, values: Values) -> None:
        for name, value in values.items() if kind in ("train", "valid") else ():
            if isinstance(value, float):
                self._rows.writerow([kind, values["epoch"], values["update"], name, value])
        self._file.flush()

    def close(self) -> None:
        self._file.close()


class WandbWriter:
    """A run of Weights & Biases; the package is not a dependency of tsm."""

    def __init__(self, project: str, config: Values | None = None) -> None:
        try:
            import wandb
        except ImportError as error:
            raise ValueError("wandb_project needs the package wandb: pip install wandb") from error
        self._run = wandb.init(project=project, config=config or {})

    def event(self, kind: str, values: Values) -> None:
        if kind in ("train", "valid"):
            numbers = {f"{kind}/{n}": v for n, v in values.items() if isinstance(v, float)}
            self._run.log(numbers, step=values["update"])

    def close(self) -> None:
        self._run.finish()


class Progress:
    """All writers of a training run. Only the first process has any.

    on_loss: called when the output is closed, so that training can be saved after its terminal is gone. Without
    on_loss, a closed output is an error.
    """

    def __init__(self, config: LoopConfig, first: bool = True) -> None:
        self.writers: list[Writer] = []
        self.on_loss: Callable[[str], None] | None = None
        self.lost = False
        self.bar: BarWriter | None = None
        self._file: TextIO | None = None
        if not first:
            return
        shape = config.log_format or ("tqdm" if sys.stderr.isatty() else "simple")
        if shape == "tqdm":
            self.bar = BarWriter(sys.stderr)
            self.writers.append(self.bar)
        elif shape != "none":
            self.writers.append(_lines(shape, sys.stdout))
        if config.log_file:
            Path(config.log_file).parent.mkdir(parents=True, exist_ok=True)
            self._file = open(config.log_file, "a", encoding="utf-8")  # noqa: SIM115  until close
            self.writers.append(_lines(shape, self._file))
        if config.tensorboard_logdir:
            self.writers.append(TensorBoardWriter(config.tensorboard_logdir))
        if config.csv_file:
            self.writers.append(CsvWriter(config.csv_file))
        if config.wandb_project:
            self.writers.append(WandbWriter(config.wandb_project, dataclasses.asdict(config)))

    def event(self, kind: str, values: Values) -> None:
        for writer in list(self.writers):
            with self._unless_gone(writer):
                writer.event(kind, values)

    def note(self, text: str) -> None:
        self.event("note", {"text": text})

    def begin_epoch(self, epoch: int, done: int, total: int) -> None:
        if self.bar is not None:
            with self._unless_gone(self.bar):
                self.bar.begin(epoch, done, total)

    def tick(self, values: Values) -> None:
        if self.bar is not None:
            with self._unless_gone(self.bar):
                self.bar.tick(values)

    def close(self) -> None:
        for writer in list(self.writers):
            with self._unless_gone(writer):
                writer.close()
        if self._file is not None:
            self._file.close()

    @contextmanager
    def _unless_gone(self, writer: Writer) -> Iterator[None]:
        """Removes a writer whose terminal or pipe is closed."""
        try:
            yield
        except OSError as error:
            standard = getattr(writer, "stream", None) in (sys.stdout, sys.stderr)
            if error.errno not in GONE or not standard or self.on_loss is None:
                raise
            self.writers.remove(writer)
            self.bar = None if writer is self.bar else self.bar
            self.lost = True
            self.on_loss("the end of the output")


class Clock:
    """Computes steps per second since the last report, and the remaining time at the mean pace.

    From earlier runs: done, the number of updates; before, the seconds; steps, the steps since the last report.
    """

    def __init__(
        self, total: int | None, done: int, before: float = 0.0, steps: float = 0.0
    ) -> None:
        self.total, self.first, self.before, self.steps = total, done, before, steps
        self.began = self.looked = time.monotonic()
        self.next: float = 0.0  # time of the next report; 0: immediately

    def due(self, update: int, interval: int, seconds: float) -> bool:
        """Whether to report: every `interval` updates or, if that is 0, at once and then every `seconds`
        seconds."""
        if interval:
            return update % interval == 0
        now = time.monotonic()
        if now < self.next:
            return False
        self.next = now + seconds
        return True

    def look(self, update: int, steps: float) -> Values:
        now = time.monotonic()
        values: Values = {"tokens_per_s": (steps - self.steps) / max(now - self.looked, 1e-9)}
        self.looked, self.steps = now, 0.0
        if self.total and update > self.first:
            pace = (now - self.began) / (update - self.first)
            values["left"] = pace * max(self.total - update, 0)
        return values

    def seconds(self) -> float:
        """Seconds of this run and of those that it continues."""
        return self.before + time.monotonic() - self.began


def as_text(kind: str, values: Values) -> str:
    """Formats an event as a line (`done`: as a table)."""
    if "text" in values:
        return str(values["text"])
    if kind == "done":
        return table(values)
    return " | ".join([kind, *(_shown(name, value) for name, value in values.items())])


def table(values: Values) -> str:
    """name   value, one per line."""
    width = max(len(name) for name in values)
    rows = [f"  {n.replace('_', ' '):<{width}}  {_value(n, v)}" for n, v in values.items()]
    rule = "-" * max(len(row) for row in rows)
    return "\n".join([rule, *rows, rule])


def duration(seconds: float) -> str:
    """75 -> 1:15"""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _lines(shape: str, stream: TextIO) -> Writer:
    return JsonWriter(stream) if shape == "json" else SimpleWriter(stream)


def _shown(name: str, value: Any) -> str:
    if name == "tokens_per_s":
        return f"{_value(name, value)} tokens/s"
    return f"{name.replace('_', ' ')} {_value(name, value)}"


def _value(name: str, value: Any) -> str:
    if name in ("left", "seconds"):
        return duration(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, float):
        if value and not 1e-3 <= abs(value) < 1e6:
            return f"{value:.3g}"
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return str(value)


def _finite(values: Values) -> Values:
    bad = {k for k, v in values.items() if isinstance(v, float) and not math.isfinite(v)}
    return {k: None if k in bad else v for k, v in values.items()}
