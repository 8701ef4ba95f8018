"""Types of the flags."""

from __future__ import annotations

import argparse
from collections.abc import Callable


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
