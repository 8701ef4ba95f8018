"""Checks of numbers. Errors name the field, its value and what is accepted."""

from __future__ import annotations

from typing import Any


def integers_from(least: int) -> str:
    """What is accepted, in words."""
    return f"an integer of at least {least}"


def check_integer(name: str, value: Any, least: int = 1, most: int | None = None) -> None:
    """Raises ValueError unless value is an int (not a bool) of at least `least` and at most `most`."""
    if type(value) is not int or value < least:
        raise ValueError(f"{name} = {value!r}; accepted: {integers_from(least)}")
    if most is not None and value > most:
        raise ValueError(f"{name} = {value!r}; accepted: an integer from {least} to {most:,}")


def check_least(config: Any, least: float, *names: str) -> None:
    """Raises ValueError for the first of these settings that is below `least`."""
    for name in names:
        if not getattr(config, name) >= least:
            raise ValueError(f"{name} is {getattr(config, name)!r}; accepted: {least} or more")


def check_most(config: Any, most: float, *names: str) -> None:
    """Raises ValueError for the first of these settings that is above `most`."""
    for name in names:
        if not getattr(config, name) <= most:
            raise ValueError(f"{name} is {getattr(config, name)!r}; accepted: {most:,} or less")


def check_rate(name: str, p: float) -> float:
    """p, if it is a valid dropout rate."""
    if isinstance(p, bool) or not isinstance(p, (int, float)) or not 0 <= p < 1:
        raise ValueError(f"{name} = {p!r}; accepted: 0 <= {name} < 1")
    return float(p)
