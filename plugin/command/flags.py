"""Flags and types of flags that several commands share."""

from __future__ import annotations

import argparse
import dataclasses
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..common.checks import integers_from
from ..user_dir import import_user_dir, load_entry_points
from .command import Parser, UsageError
from .synonyms import unknown_flag


def make_parser(prog: str, text: str, usage: str) -> argparse.ArgumentParser:
    """A parser whose help is a module's docstring."""
    return Parser(
        prog=prog,
        usage=usage,
        description=text,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def add_model_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags for the model and its device."""
    group = parser.add_argument_group("model")
    group.add_argument("--path", metavar="CKPT", required=True, help="checkpoint of tsm-train")
    group.add_argument(
        "--user-dir", metavar="DIR", help="the --user-dir it was trained with, if any"
    )
    add_device_flags(group)


def add_device_flags(group: argparse._ArgumentGroup) -> None:
    """Adds the flags that `common/device.py` reads."""
    group.add_argument(
        "--device", default="", metavar="NAME", help="cpu, cuda or cuda:N (default: a GPU if any)"
    )
    group.add_argument("--cpu", action="store_true", help="the same as --device cpu")


def add_encoding_flags(group: argparse._ActionsContainer) -> None:
    """Adds the flags that `data/files.py` reads."""
    group.add_argument("--encoding", metavar="NAME", help="default: utf-8")
    group.add_argument(
        "--encoding-errors",
        choices=("strict", "replace"),
        help="invalid bytes: an error (strict, default), or replaced by U+FFFD",
    )


def strictly(parser: argparse.ArgumentParser, argv: Sequence[str]) -> argparse.Namespace:
    """Parse all of argv; the error for an unknown flag names similar ones."""
    found, rest = parser.parse_known_args(argv)
    for word in rest:
        if word.startswith("-"):
            known = [name for action in parser._actions for name in action.option_strings]
            raise UsageError(unknown_flag(word.partition("=")[0], known, parser.prog))
    if rest:
        given = f"{' '.join(rest)!r} is unexpected"
        raise UsageError(f"{given}; accepted: {parser.usage or f'see {parser.prog} --help'}")
    return found


def load_plugins(user_dir: str | Path | None) -> None:
    """Registers the plug-ins of installed packages and --user-dir."""
    load_entry_points()
    if user_dir:
        import_user_dir(user_dir)


@contextmanager
def named_as_flags(configs: Iterable[type]) -> Iterator[None]:
    """Inside the block, errors about settings of these dataclasses name the flag: --max-update instead of
    max_update."""
    try:
        yield
    except ValueError as error:
        text = as_flags(str(error), [f.name for c in configs for f in dataclasses.fields(c)])
        if text == str(error):
            raise
        raise ValueError(text) from error


def as_flags(text: str, names: Iterable[str]) -> str:
    """Replaces names of settings with flags. A one-word name is only recognised at the start of the text."""
    long = "|".join(sorted({n for n in names if "_" in n}, key=len, reverse=True))
    short = "|".join({n for n in names if "_" not in n})
    apart = r"(?<![\w/.'\"-])(?:{})(?![\w/.'\"-])"
    patterns = [apart.format(long)] if long else []
    patterns += [rf"^(?:{short})(?= is | = )"] if short else []
    if not patterns:
        return text
    return re.sub("|".join(patterns), lambda found: "--" + found[0].replace("_", "-"), text)


def integer(low: int, high: float = math.inf) -> Any:
    """The type of a flag that takes an integer from `low` to `high`."""

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = low - 1
        if value < low:
            raise argparse.ArgumentTypeError(f"{text!r}; accepted: {integers_from(low)}")
        if value > high:
            raise argparse.ArgumentTypeError(f"{text[:40]!r}; accepted: {low} to {high:,}")
        return value

    return parse


def number(low: float, high: float) -> Any:
    """The type of a flag that takes a finite number from `low` to `high`."""

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not (low <= value <= high and math.isfinite(value)):
            upper = "" if high == math.inf else f" to {high:g}"
            accepted = f"a number from {low:g}{upper}{'' if upper else ' upwards'}"
            raise argparse.ArgumentTypeError(f"{text!r}; accepted: {accepted}")
        return value

    return parse


def column_names(text: str | None) -> tuple[str, ...]:
    """ "a, b" as ("a", "b"), without the spaces, as the names of a table's header are read; () for no text."""
    return tuple(name.strip() for name in text.split(",")) if text else ()


def seeds(text: str) -> range:
    """N: 1 to N. A-B: A to B."""
    first, dash, last = text.partition("-")
    if not dash:
        first, last = "1", first
    whole = first.isdecimal() and last.isdecimal()
    found = range(int(first), int(last) + 1) if whole else range(0)
    if not found or found[0] < 1:
        raise argparse.ArgumentTypeError(f"{text!r}; accepted: N, or A-B with 1 <= A <= B")
    return found


def sizes(legend: str) -> Callable[[str], tuple[int, ...]]:
    """The type of a flag such as "B,T,H": that many positive integers."""
    count = len(legend.split(","))

    def parse(text: str) -> tuple[int, ...]:
        try:
            found = tuple(int(part) for part in text.split(","))
        except ValueError:
            found = ()
        if len(found) != count or min(found) < 1:
            raise argparse.ArgumentTypeError(
                f"{text!r}; accepted: {legend}, {count} integers of at least 1"
            )
        return found

    return parse
