"""Tables with named columns, read record by record: CSV, TSV, JSON lines, a Hugging Face data set.

Only the current record is in memory; errors name the file and the line.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from ..files import COMPRESSED, UTF8, Encoding, Entry, read_lines

KINDS = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".npz": "npz",
}
UNREAD = {
    ".parquet": "Parquet",
    ".feather": "Feather",
    ".arrow": "Arrow",
    ".xlsx": "Excel",
    ".xls": "Excel",
}
MAX_FIELD = 1 << 24  # characters; also the most that an unclosed quote can take in


class Record(NamedTuple):
    """A row: where it begins, and its values by column; {} for an empty row.

    others: the kinds of the values that are no text, number or boolean, by column; `field` refuses these.
    """

    line: int
    values: dict[str, str]
    others: Mapping[str, str] = {}


class Table(Protocol):
    """A source that can be read repeatedly from the start."""

    @property
    def name(self) -> str: ...

    def records(self) -> Iterator[Record]: ...


def kind_of(path: Path) -> str | None:
    """csv, tsv, jsonl or npz by the file's name, compressed or not; None for any other. ValueError for a table
    that is not read."""
    name = Path(path.stem) if path.suffix in COMPRESSED else path
    if unread := UNREAD.get(name.suffix.lower()):
        raise ValueError(
            f"{path}: {unread} files are not read; accepted: CSV, TSV, JSON lines or .npz (pandas writes "
            f"CSV: table.to_csv({name.stem + '.csv'!r}, index=False))"
        )
    return KINDS.get(name.suffix.lower())


@dataclass(frozen=True)
class FileTable:
    """A CSV, TSV or JSON lines file, plain or compressed.

    quotes: a field in double quotes may contain delimiters and line breaks, and "" is one quote. header: the
    first row names the columns; without it they are 1, 2, ...
    """

    entry: Entry
    kind: str
    delimiter: str = ""
    quotes: bool = True
    header: bool = True
    encoding: Encoding = UTF8

    def __post_init__(self) -> None:
        if len(self.delimiter) > 1 or self.delimiter in ('"', "\r", "\n"):
            raise ValueError(
                f"--delimiter is {self.delimiter!r}; accepted: one character, no quote or line break"
            )

    @property
    def name(self) -> str:
        return self.entry.name

    def records(self) -> Iterator[Record]:
        """Every row in order."""
        return self._json() if self.kind == "jsonl" else self._separated()

    def _separated(self) -> Iterator[Record]:
        csv.field_size_limit(MAX_FIELD)  # the default of 131,072 is too low for long texts
        reader = csv.reader(
            (line + "\n" for line in read_lines(self.entry, self.encoding)),
            delimiter=self.delimiter or {"csv": ",", "tsv": "\t"}[self.kind],
            quoting=csv.QUOTE_MINIMAL if self.quotes else csv.QUOTE_NONE,
            strict=self.quotes,
        )
        names: list[str] = []
        while True:
            line = reader.line_num + 1
            try:
                row = next(reader)
            except StopIteration:
                break
            except csv.Error as error:
                raise ValueError(f"{self.name}:{line}: {_why_not(error, names)}") from error
            if not any(field.strip() for field in row):
                yield Record(line, {})
                continue
            if not names:
                names = self._names(row, line)
                if self.header:
                    continue
            if len(row) != len(names):
                raise ValueError(
                    f"{self.name}:{line}: {len(row)} fields; accepted: {len(names)}, as in the "
                    "first row (is a delimiter or a quote missing?)"
                )
            yield Record(line, dict(zip(names, row, strict=True)))
        if not names:
            raise ValueError(f"{self.name} is empty; accepted: rows with columns")

    def _names(self, row: list[str], line: int) -> list[str]:
        if not self.header:
            return [str(i + 1) for i in range(len(row))]
        names = [field.strip() for field in row]
        twice = next((n for i, n in enumerate(names) if n in names[:i]), None)
        if twice is not None:
            raise ValueError(f"{self.name}:{line}: two columns are called {twice!r}")
        return names

    def _json(self) -> Iterator[Record]:
        number = 0
        for number, line in enumerate(read_lines(self.entry, self.encoding), 1):
            if not line.strip():
                yield Record(number, {})
                continue
            try:
                value = json.loads(line)
                if "\\u" in line:  # half a surrogate pair is valid JSON, but not valid text
                    json.dumps(value, ensure_ascii=False).encode()
            except (ValueError, RecursionError) as error:
                raise ValueError(
                    f"{self.name}:{number}: not JSON of UTF-8 text ({error})"
                ) from error
            if not isinstance(value, dict):
                raise ValueError(
                    f"{self.name}:{number}: {line[:40]!r}; accepted: a JSON object on every line"
                )
            yield record_of(number, value)
        if not number:
            raise ValueError(f"{self.name} is empty; accepted: a JSON object on every line")


def record_of(line: int, row: Mapping[str, Any]) -> Record:
    """A row of typed values. None is an empty field, true and false are kept as words."""
    values, others = {}, {}
    for column, value in row.items():
        if isinstance(value, str):
            values[column] = value
        elif value is None or isinstance(value, (bool, int, float)):
            values[column] = "" if value is None else json.dumps(value)
        else:
            values[column], others[column] = "", type(value).__name__
    return Record(line, values, others)


def field(table: Table, record: Record, column: str, flag: str, hint: str = "") -> str:
    """The value of a column, or an error that lists the columns and ends with the hint."""
    if column in record.others:
        raise ValueError(
            f"{table.name}:{record.line}: {column!r} ({flag}) is a {record.others[column]}; accepted: a text, "
            "a number, true or false"
        )
    try:
        return record.values[column]
    except KeyError:
        known = list(record.values)
        hint = _delimiter_hint(known) or hint
        raise ValueError(
            f"{table.name}:{record.line}: no column {column!r} ({flag}); accepted: "
            f"{', '.join(map(repr, known))}{hint}"
        ) from None


def _why_not(error: csv.Error, names: list[str]) -> str:
    """What is wrong with a row. names: the columns."""
    if "new-line character" in str(error):
        return "a carriage return in it ends no line; accepted: lines that end in \\n or \\r\\n"
    return (
        f"{error}; accepted: fields with balanced double quotes (--no-quotes reads quotes as plain "
        f"characters){_delimiter_hint(names)}"
    )


def _delimiter_hint(names: list[str]) -> str:
    """A hint if all columns seem to have been read as one."""
    one = len(names) == 1 and any(mark in names[0] for mark in ";\t|")
    return " (wrong delimiter? --delimiter sets it)" if one else ""
