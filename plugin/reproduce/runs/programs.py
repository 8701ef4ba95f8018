"""Computations without training, by name: (variant, settings, data folder) -> metrics and details.

settings["steps"]: the number of updates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from ...data.data_dir import DataDir
from ...evaluation.n_gram import n_gram_bits
from ...registry import Registry
from ...tasks.toy import rate_exponent, toy_curves
from ..measures.base import Found

PROGRAMS: Registry[Callable[[str, Mapping[str, Any], str], Found]] = Registry("program")


@PROGRAMS.register("toy")
def toy(gate: str, settings: Mapping[str, Any], data: str) -> Found:
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


@PROGRAMS.register("n-gram")
def n_gram(variant: str, settings: Mapping[str, Any], data: str) -> Found:
    """Bits per token of the test split under an n-gram model of the training split."""
    folder = DataDir(data)
    train, test = (corpus.read(0, len(corpus)) for corpus in map(folder.corpus, ("train", "test")))
    return {"test_bpc": n_gram_bits(train, test, len(folder.vocab), settings["order"])}, {}
