"""A name with options as one command-line argument, and lists of them, one per layer.

spec     name[:key=value]...                 chrono:t_max=300
value    a number, true, false, or numbers separated by slashes: 3/4
layers   one spec for all, or one per layer, separated by commas
         multi_timescale:timescales=3/4,multi_timescale:alpha=0.56,default
"""

from __future__ import annotations

import inspect
from typing import Any

Spec = tuple[str, dict[str, Any]]


def parse_options(field: str, text: str) -> dict[str, Any]:
    """ "eps=1e-5:heads=4" -> {"eps": 1e-5, "heads": 4}"""
    options: dict[str, Any] = {}
    for part in filter(None, text.split(":")):
        key, equals, value = part.partition("=")
        if not key or not equals:
            raise ValueError(f"{field} has {part!r}; accepted: key=value, separated by colons")
        if key in options:
            raise ValueError(f"{field} has {key} twice; accepted: each key once")
        options[key] = _value(field, value)
    return options


def parse_range(field: str, text: str) -> tuple[float, float]:
    """ "0/0.5" -> (0.0, 0.5)"""
    values = _value(field, text)
    if not isinstance(values, tuple) or len(values) != 2:
        raise ValueError(f"{field} = {text!r}; accepted: two numbers, LOW/HIGH")
    return float(values[0]), float(values[1])


def format_options(options: dict[str, Any]) -> str:
    """The inverse of `parse_options`."""
    return ":".join(f"{key}={_written(value)}" for key, value in options.items())


def layer_inits(text: str, layers: int, widths: tuple[int, ...], t_max: float | None) -> list[Spec]:
    """(initialiser, options) per layer; `t_max` is passed to each initialiser that takes it."""
    specs = [_spec(part) for part in text.split(",")]
    if len(specs) == 1:
        specs = [(name, dict(options)) for name, options in specs * layers]
    if len(specs) != layers:
        raise ValueError(
            f"init = {text!r} has {len(specs)} layers; accepted: one, or decoder_layers = {layers}"
        )
    takers = [options for name, options in specs if _takes(name, "t_max")]
    if t_max is not None and not takers:
        raise ValueError(f"t_max = {t_max!r}, but init = {text!r} takes none; accepted with chrono")
    for options in takers:
        options.update({} if t_max is None else {"t_max": t_max})
    for (_, options), width in zip(specs, widths, strict=True):
        if "timescales" in options:
            options["timescales"] = _blocks(options["timescales"], width)
    return specs


def _spec(text: str) -> Spec:
    name, _, rest = text.strip().partition(":")
    from ..init import INITIALISERS

    INITIALISERS.check(name)
    return name, parse_options("init", rest)


def _takes(name: str, option: str) -> bool:
    from ..init import INITIALISERS

    return option in inspect.signature(INITIALISERS.get(name)).parameters


def _blocks(values: Any, width: int) -> list[float]:
    """Spreads a few values over `width` units in equal blocks: for 3/4, one half has 3, the other 4."""
    few = values if isinstance(values, tuple) else (values,)
    return [few[unit * len(few) // width] for unit in range(width)]


def _value(field: str, text: str) -> Any:
    if text in ("true", "false"):
        return text == "true"
    numbers = tuple(_number(field, part) for part in text.split("/"))
    return numbers if len(numbers) > 1 else numbers[0]


def _number(field: str, text: str) -> int | float:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    raise ValueError(
        f"{field} has the value {text!r}; accepted: a number, true, false, or numbers separated by slashes"
    )


def _written(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "/".join(map(repr, value)) if isinstance(value, (tuple, list)) else repr(value)
