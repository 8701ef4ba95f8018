"""Checks a file by itself, without a model to compare it with.

Does it run, are its outputs finite, and does a stream give the same results in chunks as in one piece? Chunking
may only change the rounding; a fault causes errors as large as the signal.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..common.runner import Array, Runner, feed, in_chunks, unit
from .checks import PRIMES, named
from .report import Check

WORST_SHARE = 0.1
"""RMS of the difference relative to the RMS of the output."""


def check_alone(runner: Runner, facts: Mapping[str, Any]) -> Check:
    """One check: compares a stream in one piece with the same stream in chunks and with one continued from its
    saved state."""
    what = "in chunks as in one piece"
    try:
        worst = _differences(runner, facts)
    except Exception as error:  # any error fails the check
        return Check(runner.name, what, False, {}, f"{type(error).__name__}: {error}")
    name = max(worst, key=lambda key: worst[key])
    passed = bool(worst[name] <= WORST_SHARE)
    return Check(runner.name, what, passed, {}, f"largest difference {worst[name]:.1e} of {name}")


def _differences(runner: Runner, facts: Mapping[str, Any]) -> dict[str, float]:
    rng = np.random.default_rng(7)
    cuts = [size * unit(runner) for size in PRIMES]
    x = _input(rng, json.loads(facts["input"]), sum(cuts))
    whole, pieces = named(feed(runner, x)), named(in_chunks(runner, cuts, x))
    if whole["logits"].shape[-1] != int(facts["output_size"]):
        raise ValueError(
            f"logits have shape {whole['logits'].shape}, output_size {facts['output_size']}"
        )
    for state in json.loads(facts["states"]):
        name = f"state_{state['name']}_{state['layer']}"
        if name not in whole or whole[name].shape != (len(x), state["width"]):
            raise ValueError(
                f"{name} is missing or has another shape than [{len(x)}, {state['width']}]"
            )
    found = {}
    for name, value in whole.items():
        if not np.isfinite(value).all() or not np.isfinite(pieces[name]).all():
            raise ValueError(f"{name} has a number that is not finite")
        size = max(float(np.sqrt(np.square(value, dtype=np.float64).mean())), 1e-6)
        error = np.square(value.astype(np.float64) - pieces[name]).mean()
        found[name] = float(np.sqrt(error)) / size
    return found


def _input(rng: np.random.Generator, reads: Mapping[str, Any], steps: int) -> Array:
    if reads["kind"] == "values":
        return rng.standard_normal((3, steps, reads["width"])).astype(np.float32)
    return rng.integers(0, reads["vocab_size"], (3, steps))
