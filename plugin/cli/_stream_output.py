"""Writes rows of results: columns for people, TSV or JSON lines for programs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TextIO

from ..data.vocab import escape

FORMATS = ("table", "tsv", "json")


class Rows:
    """rows.add({"position": 1, "token": "the", "log_prob": -2.3}); all rows have the same names."""

    def __init__(self, out: TextIO, form: str) -> None:
        self.out, self.form = out, form
        self.begun = False

    def add(self, row: Mapping[str, Any]) -> None:
        if self.form == "json":
            self.out.write(json.dumps(row, ensure_ascii=False) + "\n")
            return
        flat = flatten(row)
        if not self.begun:
            self._line(list(flat), list(flat.values()))
            self.begun = True
        words = [_text(name, value, self.form) for name, value in flat.items()]
        self._line(words, list(flat.values()))

    def _line(self, words: list[str], values: list[Any]) -> None:
        if self.form == "tsv":
            self.out.write("\t".join(words) + "\n")
            return
        cells = [
            f"{word:<16}" if isinstance(value, str) else f"{word:>10}"
            for word, value in zip(words, values, strict=True)
        ]
        self.out.write("  ".join(cells).rstrip() + "\n")


def flatten(row: Mapping[str, Any]) -> dict[str, Any]:
    """Lists and dicts become columns: "probabilities": [a, b] -> p0, p1; a dict gives one column per name."""
    flat: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, list):
            flat |= {f"{name[0]}{i}": part for i, part in enumerate(value)}
        elif isinstance(value, dict):
            form = "p({})" if name == "probabilities" else "{}"
            flat |= {form.format(on_a_line(key)): part for key, part in value.items()}
        else:
            flat[name] = value
    return flat


def _text(name: str, value: Any, form: str) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4f}" if form == "table" else f"{value:.6g}"
    if not isinstance(value, str):
        return str(value)
    return escape(value) if name == "token" else on_a_line(value)


def on_a_line(text: str) -> str:
    """A name as a field of a line, escaped as in dict.txt except for spaces."""
    return " ".join(map(escape, text.split(" ")))
