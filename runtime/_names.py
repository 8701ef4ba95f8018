"""Model.labels, Model.targets and Model.columns: names from text.labels, text.targets and text.columns in a
model's file (export/FORMAT.md)."""

from __future__ import annotations

import re

from ._core import Model
from ._errors import bad_file

ESCAPE = re.compile(r"\\(u\{[0-9a-f]{1,6}\}|.?)")
SHORT = {"\\": "\\", "s": " ", "n": "\n", "t": "\t", "r": "\r"}


def labels(model: Model) -> tuple[str, ...] | None:
    """The names of the classes, from output 0 on; None if the file has none."""
    return _names(model, "text.labels", model.output_size)


def targets(model: Model) -> tuple[str, ...] | None:
    """The names of the outputs if they are numbers; None if they are logits of classes or tokens."""
    return _names(model, "text.targets", model.output_size)


def columns(model: Model) -> tuple[str, ...] | None:
    """The names of the numbers in each row of inputs; None if the file has none."""
    return _names(model, "text.columns", model.input_size)


def _names(model: Model, asset: str, count: int) -> tuple[str, ...] | None:
    raw = model.asset(asset)
    if raw is None:
        return None
    try:
        *lines, rest = raw.decode().split("\n")
        names = tuple(ESCAPE.sub(_unescaped, line) for line in lines)
        "".join(names).encode()  # half of a surrogate pair is no character
    except (ValueError, KeyError):
        names, rest = (), ""
    if rest or "" in names or not len({*names}) == len(names) == count:
        raise bad_file(
            f"{model.path}: {asset} is {raw[:40]!r}; accepted: {count} different names, one per line"
        )
    return names


def _unescaped(escape: re.Match[str]) -> str:
    code = escape[1]
    return chr(int(code[2:-1], 16)) if code.startswith("u{") else SHORT[code]
