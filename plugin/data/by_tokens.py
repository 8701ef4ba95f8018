"""Batches limited by steps instead of rows. Rows of similar length are grouped to reduce padding."""

from __future__ import annotations

from ..common.lazy import np


def check_max_tokens(most: int | None, longest: int, what: str) -> None:
    """Raises ValueError if the longest row does not fit."""
    if most is not None and most < longest:
        raise ValueError(
            f"max_tokens is {most}; accepted: {longest} or more, so that a whole {what} fits"
        )


def cut_by_tokens(order: np.ndarray, widths: np.ndarray, most: int) -> list[np.ndarray]:
    """Groups rows by width, narrowest first. In each group, rows x largest width is at most `most`. `order`
    breaks ties.

    widths: those of all rows. Only `order` differs between epochs, so all epochs have the same number of
    batches.
    """
    order = order[np.argsort(widths[order], kind="stable")]
    sorted_widths, first, parts = widths[order], 0, []
    for i in range(1, len(order) + 1):
        if i == len(order) or (i + 1 - first) * sorted_widths[i] > most:
            parts.append(order[first:i])
            first = i
    return parts
