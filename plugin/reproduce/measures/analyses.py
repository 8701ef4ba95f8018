"""Analyses as measures: the findings on the best checkpoint of a run are kept in its summary.

Checkpoints are not kept with the results, so models are analysed at the end of their runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from ...analysis.catalogue import get_analysis
from ...analysis.probes.subject import Subject as Analysed
from ...trained import open_trained
from .base import MEASURES, Found, Subject

ANALYSES = (
    "learned-p",
    "reference-times",
    "unit-ablation",
    "timescale-fit",
    "timescales",
    "routing",
)
MOST = 300
"""A summary has only the percentiles of larger arrays."""


def find(name: str, subject: Subject) -> Found:
    """The text and numbers of an analysis, as details; nothing if it does not apply to the model."""
    analysis = get_analysis(name)
    rows, steps = (8, 200) if subject.smoke else (128, 4000)
    trained = open_trained(subject.best, subject.where)
    data = subject.trainer.task.config.data
    what = Analysed(trained, data, device=subject.where, rows=rows, steps=steps)
    if analysis.lacks(what) is not None:
        return {}, {}
    found = analysis.run(what)
    return {}, {name: {"text": found.text(), "numbers": kept(found.numbers())}}


def kept(value: Any) -> Any:
    """The same values, with arrays of more than MOST numbers replaced by their number and percentiles."""
    if isinstance(value, dict):
        return {name: kept(part) for name, part in value.items()}
    if not isinstance(value, list) or (count := numbers_in(value)) <= MOST:
        return value
    if any(isinstance(part, dict) for part in value):
        return [kept(part) for part in value]
    flat = np.fromiter(_numbers(value), dtype=float)
    found = np.percentile(flat, range(101)) if np.isfinite(flat).all() else flat[:0]
    return {"count": count, "percentiles": [float(f"{each:.6g}") for each in found]}


def _numbers(value: Any) -> Iterator[float]:
    for part in value:
        if isinstance(part, list):
            yield from _numbers(part)
        else:
            yield math.nan if part is None else part


def numbers_in(value: Any) -> int:
    parts = value.values() if isinstance(value, dict) else value
    return sum(map(numbers_in, parts)) if isinstance(value, (dict, list)) else 1


def _register(name: str) -> None:
    MEASURES.register(name)(lambda subject: find(name, subject))


for _name in ANALYSES:
    _register(_name)
