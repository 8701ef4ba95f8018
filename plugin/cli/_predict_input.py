"""The input of tsm-predict: texts (one per line, or a column of a table), or sequences of numbers."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any

from ..command.command import UsageError
from ..command.flags import column_names
from ..data.build.labelled import one_line
from ..data.files import Entry, encoding_of, read_lines
from ..data.ranges import note
from ..data.readers.numbers import Columns, SeriesArrays, SeriesTable
from ..data.readers.table import FileTable, Record, field, kind_of
from ..data.roles import ROLE_NAMES, TIMES
from ._predict_model import Encode, Item, Predictor

OF_TEXT = ("text_column",)
OF_NUMBERS = ("sequence_column", "value_columns", "dt_column", "time_column")


class Stdin(Entry):
    """The contents of stdin, which can be read only once."""

    @property
    def name(self) -> str:
        return "stdin"

    @contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        yield sys.stdin.buffer


@dataclass(frozen=True)
class Begun:
    """A table whose first row was looked at. Its rows can be read only once."""

    name: str
    rows: Iterator[Record]

    def records(self) -> Iterator[Record]:
        return self.rows


def open_items(args: argparse.Namespace, predictor: Predictor) -> Iterator[Item]:
    """Yields the items of the input."""
    entry = Stdin(Path("-")) if args.input is None else Entry(args.input)
    kind = args.input_format or kind_of(entry.path) or "lines"
    if args.input is not None and not args.input.is_file():
        raise FileNotFoundError(
            f"{args.input} is not a file; accepted: a file, or nothing for stdin"
        )
    for flag in OF_NUMBERS if predictor.encode else OF_TEXT:
        if getattr(args, flag):
            takes = "texts" if predictor.encode else "rows of numbers"
            raise UsageError(f"--{flag.replace('_', '-')}: {args.model} takes {takes}")
    if predictor.encode is not None:
        return _texts(args, entry, kind, predictor.encode)
    return _numbers(args, entry, kind, predictor)


def _table(args: argparse.Namespace, entry: Entry, kind: str) -> FileTable:
    how = (args.delimiter or "", not args.no_quotes, not args.no_header)
    return FileTable(entry, kind, *how, encoding_of(args.encoding, args.encoding_errors))


def _texts(args: argparse.Namespace, entry: Entry, kind: str, encode: Encode) -> Iterator[Item]:
    if kind == "npz":
        raise UsageError(
            f"{entry.name}: {args.model} reads texts; accepted: lines, csv, tsv, jsonl"
        )
    if kind == "lines":
        for number, line in enumerate(
            read_lines(entry, encoding_of(args.encoding, args.encoding_errors)), 1
        ):
            yield Item("line", number, encode(one_line(line)))
        return
    table, column = _table(args, entry, kind), args.text_column or "text"
    for record in table.records():
        text = field(table, record, column, "--text-column") if record.values else ""
        yield Item("line", record.line, encode(one_line(text)))


def _numbers(
    args: argparse.Namespace, entry: Entry, kind: str, predictor: Predictor
) -> Iterator[Item]:
    width = predictor.width
    if kind == "lines" or (kind == "npz" and args.input is None):
        raise UsageError(
            f"{args.model} reads rows of {width} numbers; accepted: a .csv, .tsv, .jsonl or .npz file, or "
            "stdin with --input-format csv"
        )
    file: SeriesTable | SeriesArrays
    if kind == "npz":
        file = SeriesArrays(entry.path, wants_target=False)
    else:
        rows = (record for record in _table(args, entry, kind).records() if record.values)
        first = list(islice(rows, 1))
        columns = _columns(args, predictor, first[0].values if first else (), entry.name)
        file = SeriesTable(Begun(entry.name, chain(first, rows)), columns)
    told, ranges = not predictor.model.takes_dt, predictor.model.ranges
    for series in file.series():
        if series.dt is None and not told:
            told = True
            print(
                f"tsm-predict: {entry.name} has no time steps, which the cell of {args.model} uses: "
                "every step lasts 1 (--dt-column, --time-column; dt in an .npz file)",
                file=sys.stderr,
            )
        if series.x.shape[1] != width:
            raise ValueError(
                f"{series.where}: {series.x.shape[1]} values per step; accepted: {width} "
                "(--value-columns)"
            )
        if ranges is not None and (found := ranges.outside(series.x, predictor.columns)):
            ranges = None
            print(f"tsm-predict: {note(series.where, found)}", file=sys.stderr)
        yield Item("sequence", series.name, series.x, series.dt)


def _columns(
    args: argparse.Namespace, predictor: Predictor, there: Collection[str], where: str
) -> Columns:
    """The columns to read from a table that has those in `there`: given by flags ("": none), else those of the
    training data."""
    flags = {role: getattr(args, f"{role}_column") for role in ROLE_NAMES}
    asked = {role: name for role, name in flags.items() if name is not None}
    if all(asked.get(role) for role in TIMES):
        raise UsageError("--dt-column and --time-column were both given; accepted: one of them")
    settled = {*asked}
    if settled & TIMES or not predictor.model.takes_dt:
        settled |= TIMES
    # A column that a flag gives to something else; the values of training may also have had a role.
    taken = {*column_names(args.value_columns)}.difference(predictor.columns) | {*asked.values()}
    known = {
        role: name
        for role, name in predictor.model.roles.items()
        if role not in settled and name not in taken
    }
    found = {role: name for role, name in known.items() if name in there}
    for what, roles in (
        ("is read as in training", found),
        ("lacks what the training data had", {r: n for r, n in known.items() if r not in found}),
    ):
        if roles and there:
            shown = " ".join(f"--{role}-column {name!r}" for role, name in roles.items())
            print(f"tsm-predict: {where} {what}: {shown}", file=sys.stderr)
    values = _values(args, predictor.columns)
    used: dict[str, Any] = {role: name or None for role, name in (asked | found).items()}
    return Columns(values=values, chosen=bool(values), **used)


def _values(args: argparse.Namespace, of_training: Sequence[str]) -> tuple[str, ...]:
    """The columns to read: those given by the flag, else those of the training data. (): all others, in
    order."""
    if args.value_columns:
        return column_names(args.value_columns)
    numbered = all(name.isdecimal() for name in of_training)  # a table without a header
    return () if args.no_header and not numbered else tuple(of_training)
