"""Settings as frozen dataclasses, defined next to the class they configure, and as command-line flags.

A field declared with `setting(default, "help", aliases...)` becomes the flag `--field-name`. The default is
stated only in the dataclass. An unknown key is an error that names close matches.

    @dataclass(frozen=True)
    class LoopConfig:
        max_epoch: int = setting(10, "passes over the training data")
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from .registry import unknown

C = TypeVar("C")


def setting(default: Any, help: str, *aliases: str, choices: Iterable[str] | None = None) -> Any:
    """A dataclass field with what its flag needs: help text, further flag names, accepted values."""
    meta = {"help": help, "aliases": aliases, "choices": list(choices) if choices else None}
    return dataclasses.field(default=default, metadata=meta)


def integers(text: str) -> tuple[int, ...]:
    """ "1150,1150,400" -> (1150, 1150, 400)"""
    try:
        return tuple(integer(part) for part in text.split(","))
    except (ValueError, argparse.ArgumentTypeError):
        raise argparse.ArgumentTypeError(
            f"{text!r}; accepted: integers separated by commas"
        ) from None


def integer(text: str) -> int:
    """An integer of at most 64 bits: no setting needs more, and libraries accept no others."""
    try:
        value = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}; accepted: an integer") from None
    if value.bit_length() > 64:
        raise argparse.ArgumentTypeError(f"{text[:40]!r}; accepted: an integer of at most 64 bits")
    return value


def add_flags(
    parser: argparse.ArgumentParser, cls: type, defaults: Mapping[str, Any] | None = None
) -> None:
    """Adds a flag for every field of `cls`. Flags have no defaults: a flag that is not given is absent."""
    group = parser.add_argument_group((cls.__doc__ or cls.__name__).splitlines()[0])
    hints = typing.get_type_hints(cls)
    for field in dataclasses.fields(cls):
        names = [f"--{field.name.replace('_', '-')}", *field.metadata.get("aliases", ())]
        shown = (defaults or {}).get(field.name, field.default)
        text = f"{field.metadata.get('help', '')} (default: {shown})"
        common: dict[str, Any] = {"dest": field.name, "default": argparse.SUPPRESS, "help": text}
        kind = _plain(hints[field.name])
        if kind is bool:
            group.add_argument(*names, action=argparse.BooleanOptionalAction, **common)
        else:
            parse = {tuple: integers, int: integer}.get(kind, kind)
            group.add_argument(*names, type=parse, choices=field.metadata.get("choices"), **common)


def _plain(hint: Any) -> Any:
    """The type to parse: int for `int | None`, tuple for `tuple[int, ...]`."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        hint = next(a for a in typing.get_args(hint) if a is not type(None))
    return typing.get_origin(hint) or hint


def check_types(cls: type, values: Mapping[str, Any]) -> None:
    """Raises ValueError unless every value, as read from a file, has the type of its field."""
    accepted: dict[Any, tuple[type, ...]] = {
        bool: (bool,),
        int: (int,),
        float: (int, float),
        str: (str,),
    }
    hints = typing.get_type_hints(cls)
    for field in dataclasses.fields(cls):
        value = values.get(field.name, field.default)
        kind = _plain(hints[field.name])
        if value == field.default or (
            value is None and type(None) in typing.get_args(hints[field.name])
        ):
            continue
        if kind is tuple and isinstance(value, (list, tuple)):
            fits = all(type(part) is int for part in value)
        else:
            fits = kind not in accepted or type(value) in accepted[kind]
        if not fits or (type(value) is float and not math.isfinite(value)):
            name = "integers" if kind is tuple else getattr(kind, "__name__", kind)
            raise ValueError(f"{field.name} is {value!r}; accepted: {name}")


def build(cls: type[C], values: Mapping[str, Any], *, strict: bool = True) -> C:
    """`cls` from a mapping. Unknown keys are errors, or are ignored with strict=False."""
    known = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
    if strict:
        for key in values:
            if key not in known:
                raise unknown("setting", key, known)
    return cls(**{key: values[key] for key in known if key in values})
