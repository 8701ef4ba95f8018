"""Groups of units: the units of a layer in a given order, cut into runs of equal size."""

from __future__ import annotations

import numpy as np


def runs(order: np.ndarray, size: int) -> list[np.ndarray]:
    """The units of `order` in consecutive groups of `size`; the last one may be smaller."""
    if size < 1:
        raise ValueError(f"group size is {size}; accepted: 1 or more")
    return [order[start : start + size] for start in range(0, len(order), size)]


def fitting_size(wanted: int, units: int, least_groups: int) -> int:
    """`wanted`, or less if the layer is too small for enough groups of that size."""
    return max(1, min(wanted, units // least_groups))


def pick_layer(field: str, number: int, layers: int) -> int | None:
    """Converts the layer number in a setting (from 1) to an index (from 0). 0 means automatic and gives
    None."""
    if not 0 <= number <= layers:
        raise ValueError(f"{field} = {number}; accepted: 0 (chosen for you), or 1 to {layers}")
    return number - 1 if number else None
