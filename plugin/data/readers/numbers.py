"""Reads sequences of numbers from a user's own files: a table with one row per step, or .npz.

    .csv, .tsv, .jsonl   a column names the sequence: consecutive rows with the same name form one sequence
    .npz                 x [N,T,I] or [N,T];  lengths [N];  dt [N,T];  y, see below

A target is a label or numbers, one for the sequence or (per_step) one for every step. In .npz y is integers or
text (labels) [N], per step [N,T]; or floats (numbers) [N] or [N,C], per step [N,T] or [N,T,C].
"""

from __future__ import annotations

import math
import warnings
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, groupby
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from ...common.lazy import np
from ..files import Entry
from ..npy import read_npy
from ..roles import ROLE_NAMES
from .missing import is_number, refuse_missing
from .table import Record, Table, field

MAX_STEPS = 1 << 24  # in one sequence
MAX_NUMBER = 2.0**128 - 2.0**104  # the largest in float32


class UnreadColumn(UserWarning):
    """Warning about a column that is not read, although it may have been meant."""


class Series(NamedTuple):
    """name: the sequence's name. where: its location, for messages. x float32 [T,I]; dt float32 [T] or None.

    target: text for labels, [] or [T]; float32 for numbers, [C] or [T,C]; None if targets are not read.
    """

    name: str
    where: str
    x: np.ndarray
    dt: np.ndarray | None
    target: np.ndarray | None


class SeriesFile(Protocol):
    """A source that can be read repeatedly from the start."""

    @property
    def name(self) -> str: ...

    def series(self) -> Iterator[Series]: ...


@dataclass(frozen=True)
class Columns:
    """The roles of the columns. sequence None: the table is one sequence. values (): all other columns.

    chosen: the user named the value columns, so other columns may be ignored.
    dt: the time since the previous row; time: the time itself, whose differences are dt (the first is 1).
    """

    sequence: str | None = None
    values: tuple[str, ...] = ()
    dt: str | None = None
    time: str | None = None
    label: str | None = None
    targets: tuple[str, ...] = ()
    per_step: bool = False
    chosen: bool = False

    @property
    def roles(self) -> dict[str, str]:
        """Role -> column, for the roles that a column has."""
        return {role: name for role in ROLE_NAMES if (name := getattr(self, role)) is not None}


@dataclass(frozen=True)
class SeriesTable:
    """One row per step."""

    table: Table
    columns: Columns

    @property
    def name(self) -> str:
        return self.table.name

    def series(self) -> Iterator[Series]:
        """The sequences in order. Only one is in memory at a time."""
        column, seen = self.columns.sequence, set()
        rows = self._rows()
        first = next(rows, None)
        if first is None:
            return
        values = self._values(first)
        rows = chain([first], rows)
        if not self.columns.chosen:
            rows = self._told(rows, {*values, *self._apart()})
        elif column is None:
            self._warn_of_one_sequence(first, values)
        rows = refuse_missing(self.name, rows, self._of_numbers(values), self._hint)

        def key(record: Record) -> str:
            if column is None:
                return ""
            name = field(self.table, record, column, "--sequence-column")
            if not name.strip():
                raise ValueError(
                    f"{self.name}:{record.line}: the sequence ({column!r}) is missing; accepted: its name "
                    "in every row"
                )
            return name

        for name, group in groupby(rows, key):
            series = self._series(name, group, values)
            if name in seen:
                raise ValueError(
                    f"{series.where}: sequence {name!r} again after another one; accepted: the rows of a "
                    "sequence one after the other"
                )
            seen.add(name)
            yield series

    def value_columns(self) -> tuple[str, ...]:
        """The columns of the values in order: the given ones, or the other columns of the first row."""
        first = next(self._rows(), None)
        return self.columns.values if first is None else self._values(first)

    def _rows(self) -> Iterator[Record]:
        return (record for record in self.table.records() if record.values)

    def _told(self, rows: Iterator[Record], known: set[str | None]) -> Iterator[Record]:
        """The rows; reports the first one that has unknown columns."""
        told = False
        for record in rows:
            more = [] if told else [repr(name) for name in record.values if name not in known]
            if more:
                told = True
                warnings.warn(
                    f"{self.name}:{record.line}: {', '.join(more)} is not read, here and below: the first row "
                    "does not have it (--value-columns chooses)",
                    UnreadColumn,
                    stacklevel=2,
                )
            yield record

    def _warn_of_one_sequence(self, first: Record, values: tuple[str, ...]) -> None:
        """Reports columns of which one may name the sequence."""
        unread = [repr(name) for name in first.values if name not in {*values, *self._apart()}]
        if unread:
            warnings.warn(
                f"{self.name}: all rows are one sequence (--sequence-column names the column that tells "
                f"sequences apart); not read: {', '.join(unread)}",
                UnreadColumn,
                stacklevel=2,
            )

    def _apart(self) -> set[str | None]:
        """The columns that do not hold values."""
        c = self.columns
        return {c.sequence, c.dt, c.time, c.label, *c.targets}

    def _of_numbers(self, values: tuple[str, ...]) -> list[str]:
        """The columns that must hold a number in every row."""
        c = self.columns
        found = dict.fromkeys((*values, *c.targets, c.time if c.dt is None else c.dt))
        return [column for column in found if column is not None]

    def _hint(self, column: str, text: str) -> str:
        """The end of the message about a column of numbers in which a field is missing ("") or not a number."""
        if "," in text and is_number(text.replace(",", "")):
            return " without commas, decimals after a point"
        if text and column == self.columns.time:
            return ", e.g. of seconds; dates are not read"
        of_inputs = not self.columns.chosen and column not in self._apart()
        return "; --value-columns A,B chooses the inputs" * of_inputs

    def _values(self, first: Record) -> tuple[str, ...]:
        c, apart = self.columns, self._apart()
        found = c.values or tuple(column for column in first.values if column not in apart)
        if "" in found:
            raise ValueError(
                f"{self.name}: a column of values has no name (the index of a pandas table?); accepted: "
                "named columns (--value-columns A,B chooses the inputs)"
            )
        return found

    def _series(self, name: str, group: Iterator[Record], values: tuple[str, ...]) -> Series:
        rows: list[Record] = []
        for record in group:
            rows.append(record)
            if len(rows) > MAX_STEPS:
                raise ValueError(
                    f"{self.name}:{record.line}: more than {MAX_STEPS:,} rows of one sequence"
                )
        x = self._numbers(rows, values, "--value-columns")
        where = f"{self.name}:{rows[0].line}"
        return Series(name or "1", where, x, self._dt(rows), self._target(rows))

    def _dt(self, rows: list[Record]) -> np.ndarray | None:
        c = self.columns
        if c.dt is not None:
            dt = self._numbers(rows, (c.dt,), "--dt-column")[:, 0]
        elif c.time is not None:
            times = [self._number(r, c.time, "--time-column") for r in rows]
            with np.errstate(over="ignore"):  # rejected below
                dt = np.concatenate([[1.0], np.diff(np.array(times))]).astype(np.float32)
        else:
            return None
        wrong = ~((dt > 0) & np.isfinite(dt))
        if wrong.any():
            first = int(wrong.argmax())
            raise ValueError(
                f"{self.name}:{rows[first].line}: the time since the previous row is {dt[first]:g}; "
                "accepted: above 0"
            )
        return dt

    def _target(self, rows: list[Record]) -> np.ndarray | None:
        c = self.columns
        if c.label is not None:
            names = [field(self.table, r, c.label, "--label-column").strip() for r in rows]
            for record, name in zip(rows, names, strict=True):
                if not name:
                    raise ValueError(
                        f"{self.name}:{record.line}: the label ({c.label!r}) is missing"
                    )
            target = np.array(names)
        elif c.targets:
            target = self._numbers(rows, c.targets, "--target-columns")
        else:
            return None
        if c.per_step:
            return target
        changes = (target != target[0]).reshape(len(rows), -1)
        if changes.any():
            row = int(changes.any(axis=1).argmax())
            column = c.label or c.targets[int(changes[row].argmax())]
            old, new = rows[0].values[column], rows[row].values[column]
            raise ValueError(
                f"{self.name}:{rows[row].line}: the target changes within the sequence, {column} from "
                f"{old!r} to {new!r}; accepted: one value per sequence, or --per-step"
            )
        return np.asarray(target[0])

    def _numbers(self, rows: list[Record], columns: tuple[str, ...], flag: str) -> np.ndarray:
        found = [[self._number(r, c, flag) for c in columns] for r in rows]
        return np.array(found, dtype=np.float32).reshape(len(rows), len(columns))

    def _number(self, record: Record, column: str, flag: str) -> float:
        text = field(self.table, record, column, flag)
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not abs(value) <= MAX_NUMBER:
            raise ValueError(
                f"{self.name}:{record.line}: {column} is {text!r}; accepted: a finite number"
                f"{self._hint(column, text)}"
            )
        return value


@dataclass(frozen=True)
class SeriesArrays:
    """A .npz file. Its arrays are read completely."""

    path: Path
    per_step: bool = False
    wants_target: bool = True

    @property
    def name(self) -> str:
        return self.path.name

    def series(self) -> Iterator[Series]:
        """Sequences in order."""
        arrays = self._arrays()
        x = self._checked(arrays, "x", "fiu", (2, 3))
        x = (x[:, :, None] if x.ndim == 2 else x).astype(np.float32)
        n, steps = x.shape[:2]
        lengths = self._lengths(arrays, n, steps)
        dt = arrays.get("dt")
        if dt is not None and (dt.dtype.kind not in "fiu" or dt.shape != (n, steps)):
            raise ValueError(f"{self.name}: dt is {dt.dtype} {dt.shape}; accepted: {(n, steps)}")
        y = self._targets(arrays, n, steps) if self.wants_target else None
        for row, length in enumerate(lengths.tolist()):
            where = f"{self.name}, row {row + 1}"
            gaps = None if dt is None else dt[row, :length].astype(np.float32)
            if not np.isfinite(x[row, :length]).all():
                raise ValueError(f"{where}: x has a number that is not finite")
            if gaps is not None and not (np.isfinite(gaps).all() and gaps.min() > 0):
                raise ValueError(f"{where}: dt is {gaps.min():g}; accepted: finite and above 0")
            target = None if y is None else np.asarray(y[row, :length] if self.per_step else y[row])
            if target is not None and target.dtype.kind == "f" and not np.isfinite(target).all():
                raise ValueError(f"{where}: y has a number that is not finite")
            if target is not None and target.dtype.kind == "U" and (target == "").any():
                raise ValueError(f"{where}: y has an empty label")
            yield Series(str(row + 1), where, x[row, :length], gaps, target)

    def _arrays(self) -> dict[str, np.ndarray]:
        if not self.path.is_file():
            raise FileNotFoundError(f"{self.path} is not there or not a file")
        try:
            with zipfile.ZipFile(self.path) as archive:
                names = [n for n in archive.namelist() if n.endswith(".npy")]
        except zipfile.BadZipFile as error:
            raise ValueError(f"{self.path} is not an .npz file ({error})") from error
        wanted = {"x", "y", "dt", "lengths"}
        return {n[:-4]: read_npy(Entry(self.path, n)) for n in names if n[:-4] in wanted}

    def _checked(
        self, arrays: dict[str, np.ndarray], name: str, kinds: str, dims: tuple[int, ...]
    ) -> np.ndarray:
        if name not in arrays:
            raise ValueError(f"{self.name} has no array {name!r}; accepted: x, y, and dt, lengths")
        found = arrays[name]
        if found.dtype.kind not in kinds or found.ndim not in dims or not found.size:
            raise ValueError(
                f"{self.name}: {name} is {found.dtype} {found.shape}; accepted: numbers with "
                f"{' or '.join(map(str, dims))} dimensions"
            )
        return found

    def _lengths(self, arrays: dict[str, np.ndarray], n: int, steps: int) -> np.ndarray:
        lengths = arrays.get("lengths", np.full(n, steps))
        if (
            lengths.dtype.kind not in "iu"
            or lengths.shape != (n,)
            or not 1 <= lengths.min() <= lengths.max() <= steps
        ):
            raise ValueError(
                f"{self.name}: lengths are {lengths.dtype} {lengths.shape}; accepted: {n} integers from "
                f"1 to {steps}"
            )
        return lengths

    def _targets(self, arrays: dict[str, np.ndarray], n: int, steps: int) -> Any:
        lead = (n, steps) if self.per_step else (n,)
        y = self._checked(arrays, "y", "fiuUb", (1, 2, 3))
        labels = y.dtype.kind != "f"
        if y.shape[: len(lead)] != lead or y.ndim - len(lead) > (0 if labels else 1):
            raise ValueError(
                f"{self.name}: y is {y.dtype} {y.shape}; accepted: labels {lead} or numbers "
                f"{lead} or [..., C] (targets for every step: --per-step)"
            )
        if labels:
            return y.astype(str)
        y = y.astype(np.float32)
        return y if y.ndim > len(lead) else y[..., None]
