"""The JSON object of a request: every field is checked, and unknown fields are refused."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .off_loop import LARGE
from .problems import Problem

MOST_DIGITS = 400  # of an integer in a large body; reading one takes the square of their number
TOO_DEEP = "the body is nested too deeply"


def parse(body: bytes | str) -> dict[str, Any]:
    """Parses a JSON object strictly: UTF-8, no NaN, no duplicate names."""
    try:
        text = body if isinstance(body, str) else body.decode()
        fields = (LARGE_DECODER if len(text) > LARGE else DECODER).decode(text or "{}")
    except UnicodeDecodeError as error:
        raise Problem(400, f"the body is not UTF-8: {error.reason} at {error.start}") from error
    except RecursionError as error:
        raise Problem(400, TOO_DEEP) from error
    except ValueError as error:
        raise Problem(400, f"the body is not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise Problem(400, "the body is JSON, but not an object")
    return fields


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ValueError("a name occurs twice")
    return fields


def _constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def _integer(digits: str) -> int:
    if len(digits) > MOST_DIGITS:
        raise ValueError(f"an integer has {len(digits)} digits; accepted: at most {MOST_DIGITS}")
    return int(digits)


def _float(digits: str) -> float:
    return float(digits)


HOOKS: dict[str, Any] = {"object_pairs_hook": _pairs, "parse_constant": _constant}
DECODER = json.JSONDecoder(**HOOKS)
# For the thread of off_loop: every number is a call of Python, so that others run in between.
LARGE_DECODER = json.JSONDecoder(**HOOKS, parse_int=_integer, parse_float=_float)


class Fields:
    """Takes fields out of an object; `end` raises an error if any are left."""

    def __init__(self, values: dict[str, Any], known: Iterable[str] = ()) -> None:
        """known: accepted fields that the caller has already taken."""
        self.values = dict(values)
        self.known = [*known]

    def take(self, name: str, default: Any = None) -> Any:
        """The value, or `default` if it is missing or null."""
        self.known.append(name)
        value = self.values.pop(name, None)
        return default if value is None else value

    def has(self, name: str) -> bool:
        return self.values.get(name) is not None

    def integer(self, name: str, default: Any, low: int, high: int, limit: str = "") -> Any:
        """limit: the flag that sets `high`."""
        value = self.take(name, default)
        if value is default and not isinstance(default, int):
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise wrong(name, value, f"an integer from {low} to {high}{limit and f' ({limit})'}")
        return value

    def number(self, name: str, default: float, low: float, high: float) -> float:
        value = self.take(name, default)
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not low <= value <= high
        ):
            raise wrong(name, value, f"a number from {low:g} to {high:g}")
        return float(value)

    def text(self, name: str, default: Any, longest: int) -> Any:
        value = self.take(name, default)
        if value is default:
            return default
        if not isinstance(value, str) or len(value) > longest:
            raise wrong(name, value, f"a text of at most {longest} characters")
        try:
            value.encode()
        except UnicodeEncodeError as error:  # an escape gave half of a surrogate pair
            raise wrong(name, value, "text that can be written as UTF-8") from error
        return value

    def choice(self, name: str, default: str | None, *accepted: str) -> str | None:
        value = self.take(name, default)
        if value is not default and value not in accepted:
            raise wrong(name, value, ", ".join(accepted))
        return value if value is None else str(value)

    def flag(self, name: str, default: bool = False) -> bool:
        value = self.take(name, default)
        if not isinstance(value, bool):
            raise wrong(name, value, "true or false")
        return value

    def end(self) -> None:
        if self.values:
            raise Problem(
                400,
                f"unknown field {next(iter(self.values))!r:.80};"
                f" accepted: {', '.join(sorted(self.known))}",
            )


def wrong(name: str, value: Any, accepted: str) -> Problem:
    if value is None:
        return Problem(400, f"{name} is missing; accepted: {accepted}")
    return Problem(400, f"{name} = {shown(value)}; accepted: {accepted}")


def shown(value: Any) -> str:
    """A value for an error message, in ASCII and shortened."""
    text = ""
    for part in json.JSONEncoder().iterencode(value):
        text += part
        if len(text) > 60:
            return text[:57] + "..."
    return text


def integers(name: str, value: Any) -> NDArray[np.int64]:
    """A list of integers."""
    if not isinstance(value, list) or not all(type(one) is int for one in value):
        raise wrong(name, value, "a list of integers")
    try:
        return np.array(value, np.int64)
    except OverflowError as error:
        raise wrong(name, value, "integers of 64 bits") from error


def rows(name: str, value: Any, width: int | None) -> NDArray[np.float32]:
    """A list of numbers (`width` None), or of lists of `width` numbers."""
    accepted = "a list of numbers" if width is None else f"a list of rows of {width} numbers"
    flat = value if width is None else _joined(value, width)
    if not isinstance(flat, list) or not all(type(one) in (int, float) for one in flat):
        raise wrong(name, value, accepted)
    try:
        with np.errstate(over="ignore"):
            found = np.array(flat, np.float64).astype(np.float32)
    except OverflowError as error:
        raise wrong(name, value, accepted) from error
    return found if width is None else found.reshape(-1, width)


def _joined(value: Any, width: int) -> list[Any] | None:
    if not isinstance(value, list):
        return None
    if not all(isinstance(row, list) and len(row) == width for row in value):
        return None
    return [one for row in value for one in row]
