"""The goals of tsm, and whether a benchmark run meets them."""

from __future__ import annotations

from dataclasses import dataclass

from .case import Case
from .results import Results, aligned
from .rivals import FLOOR, LSTM_OP, SCAN, TSM

MANY = [
    Case("plstm", B, 1, H)
    for B, H in ((16, 256), (64, 256), (8, 512), (16, 512), (64, 512), (16, 1024))
]
"""Several streams, one step per call: products of few rows."""


@dataclass(frozen=True)
class Goal:
    """`measured` must be at least, or at most, `limit`."""

    text: str
    limit: float
    at_least: bool
    measured: float | None
    unit: str = "x"

    @property
    def met(self) -> bool | None:
        """None: not measured."""
        if self.measured is None:
            return None
        return self.measured >= self.limit if self.at_least else self.measured <= self.limit


def stream_goals(found: Results) -> list[Goal]:
    """The goals for `plstm`, and one for `lstm`; both run on one thread, called from Python with bound
    buffers."""

    def over_floor(hidden: int, dtype: str, limit: float) -> Goal:
        case = Case("plstm", 1, 1, hidden)
        share = over(found.time(case, TSM, dtype), found.time(case, FLOOR, dtype))
        return Goal(f"{case} {dtype}: time over its floor", limit, False, share)

    def against_ort(case: Case, dtype: str, limit: float, rival: str | None = None) -> Goal:
        theirs = found.time(case, rival, dtype) if rival else found.best_ort(case, dtype)
        name = rival or ("ORT float32, best form" if dtype == "bfloat16" else "ORT, best form")
        share = over(theirs, found.time(case, TSM, dtype))
        return Goal(f"{case} {dtype}: faster than {name}", limit, True, share)

    step = {hidden: Case("plstm", 1, 1, hidden) for hidden in (256, 512, 1024)}
    return [
        against_ort(step[256], "float32", 1.7),
        over_floor(512, "float32", 1.1),
        over_floor(1024, "float32", 1.1),
        against_ort(step[256], "int8", 3.0),
        against_ort(step[512], "int8", 1.8),
        against_ort(step[1024], "int8", 1.3),
        over_floor(512, "bfloat16", 1.25),
        over_floor(1024, "bfloat16", 1.25),
        against_ort(Case("lstm", 1, 64, 256), "float32", 1.3, LSTM_OP),
        against_ort(Case("plstm", 1, 64, 256), "float32", 2.0, SCAN),
        against_ort(Case("plstm", 16, 1, 1024), "bfloat16", 2.5),
        *(against_ort(case, "float32", 1.2) for case in MANY),
    ]


def goal_cases() -> list[tuple[Case, list[str]]]:
    """The cases that the goals need, with their dtypes."""
    step = [(Case("plstm", 1, 1, h), ["float32", "bfloat16", "int8"]) for h in (256, 512, 1024)]
    chunk = [(Case(cell, 1, 64, 256), ["float32"]) for cell in ("lstm", "plstm")]
    many = [(case, ["float32", *(["bfloat16"] if case.H == 1024 else [])]) for case in MANY]
    return [*step, *chunk, *many]


def footprint_goals(
    load_ms: float | None, stream_extra: float | None, library_mb: float | None
) -> list[Goal]:
    return [
        Goal("a model of 25 MB loads, the file in memory", 60, False, load_ms, " ms"),
        Goal("memory of a stream besides its padded states", 256, False, stream_extra, " bytes"),
        Goal("libtsm_runtime.so without CUDA", 2, False, library_mb, " MB"),
    ]


def over(above: float | None, below: float | None) -> float | None:
    return None if above is None or below is None else above / below


def goal_table(goals: list[Goal]) -> str:
    rows = [["goal", "accepted", "measured", ""]]
    for goal in goals:
        sign = ">=" if goal.at_least else "<="
        shown = "-" if goal.measured is None else f"{goal.measured:.3g}{goal.unit}"
        verdict = {True: "met", False: "NOT met", None: "not measured"}[goal.met]
        rows.append([goal.text, f"{sign} {goal.limit:g}{goal.unit}", shown, verdict])
    return aligned(rows, left=(0, 3))
