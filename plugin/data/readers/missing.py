"""Missing numbers in a table: one error that says how many there are and where the first ones are."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator

from .table import Record

MISSING = {"", "nan", "-nan", "na", "n/a", "#n/a", "<na>", "null", "none"}
"""What other programs write for no value, in lower case."""
SHOWN = 5  # places in the message
Hint = Callable[[str, str], str]
"""(column, text that is no number, "" if there is none) -> the end of the message."""


def refuse_missing(
    name: str, rows: Iterator[Record], columns: Collection[str], hint: Hint
) -> Iterator[Record]:
    """The rows of the table `name`. After one with a missing number, the rest is only searched for more.

    Errors before that of the missing numbers: a row that the table cannot read; a text in such a column, in the
    first row or after the missing number.
    """
    head: Record | None = None
    first = count = broken = total = 0
    places: list[str] = []
    lacking: set[str] = set()
    for record in rows:
        total += 1
        head = head or record
        missing = _missing(record, columns)
        if missing:
            first, count, broken = first or record.line, count + len(missing), broken + 1
            more = [f"{column} in line {record.line}" for column in missing]
            places += more[: SHOWN - len(places)]
            if new := {*missing} - lacking:
                _refuse_texts(name, head, new.difference(_missing(head, new)), hint)
            lacking.update(missing)
        elif not broken:
            yield record
        _refuse_texts(name, record, lacking.difference(missing), hint)
    if broken:
        shown = ", ".join(places) + ", ..." * (count > len(places))
        end = max(hint(column, "") for column in lacking)  # "" for columns that are no inputs
        raise ValueError(
            f"{name}:{first}: missing numbers: {count:,} in {broken:,} of {total:,} rows ({shown}); accepted: "
            f"a number in every field; fill them in, or leave out these rows{end}"
        )


def _refuse_texts(name: str, record: Record, columns: Collection[str], hint: Hint) -> None:
    """Raises ValueError if a column that lacks a number in another row has a text in this one."""
    for column in columns:
        if not is_number(text := record.values.get(column, "0")):
            raise ValueError(
                f"{name}:{record.line}: {column} is {text!r}; accepted: a finite number{hint(column, text)}"
            )


def _missing(record: Record, columns: Collection[str]) -> list[str]:
    """The columns without a number. Another error names columns that are not there."""
    value = record.values.get
    return [
        column
        for column in columns
        if not (text := value(column, "0"))[-1:].isdigit()
        and text.strip().lower() in MISSING
        and column not in record.others
    ]


def is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
