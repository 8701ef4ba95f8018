"""Computations without a training, by name: settings -> metrics and details.

settings["steps"]: how many updates to make.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from ..registry import Registry
from ..tasks.toy import rate_exponent, toy_curves
from .measures import Found

PROGRAMS: Registry[Callable[[str, Mapping[str, Any]], Found]] = Registry("program")


@PROGRAMS.register("toy")
def toy(gate: str, settings: Mapping[str, Any]) -> Found:
    """FG's toy problem for one gate: how 1 - f falls."""
    steps = settings["steps"]
    curve = toy_curves(steps, points=60, gates=[gate])[gate]
    since = steps / 10
    metrics = {
        "slope": rate_exponent(curve.tau, curve.descent, since),
        "flow_slope": rate_exponent(curve.tau, curve.flow, since),
        "log10_rest": math.log10(curve.descent[-1]),
    }
    digits = {
        name: [float(f"{value:.5g}") for value in values]
        for name, values in (("descent", curve.descent), ("flow", curve.flow))
    }
    return metrics, {"tau": curve.tau.tolist(), **digits}
