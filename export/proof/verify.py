"""Is an exported model the trained one? Every export ends with this.

    report = verify(model, runners, "float32", steps=10_000)
    print(report)                        # -[✓] ONNX Runtime CPU: ragged lengths: logits 1.2e-07, ...

What runs the exported model is a Runner (runner.py); what it is compared with is the model in PyTorch,
in float64. The questions are in checks.py: other N and T than it was exported with, chunks, ragged
lengths, dt, states that were stored; then a long stream, and real data where it is given.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from .checks import Subject, named, questions, stream
from .data import Data
from .reference import Reference
from .report import TOLERANCES, Check, Difference, Drift, Report, Tolerance, Watch, compare
from .runner import Runner, State, feed, in_chunks

if TYPE_CHECKING:
    from ...plugin.models import SequenceModel

__all__ = ["Runner", "State", "VerifyError", "feed", "in_chunks", "verify"]

STEPS = 10_000
POINTS = 200  # of a drift curve


class VerifyError(ArithmeticError):
    """The exported model is not the trained one; `report` says where."""

    def __init__(self, report: Report) -> None:
        failed = [check.line() for check in report.checks if not check.passed]
        super().__init__(
            f"{report.path.name} is not the model it was made from; {len(failed)} of "
            f"{len(report.checks)} checks failed: {'; '.join(failed)}"
        )
        self.report = report


def verify(
    model: SequenceModel,
    runners: Sequence[Runner],
    dtype: str = "float32",
    *,
    steps: int = STEPS,
    data: Data | None = None,
    report: Report | None = None,
    watch: Watch | None = None,
) -> Report:
    """Put every question to every runner. steps: length of the long stream (0: none)."""
    if not runners:
        raise ValueError("no runner was given; accepted: at least one")
    found = report or Report(Path("model"), "", dtype)
    watch = watch or Watch()
    subject = Subject(model, Reference(model))
    tolerance = TOLERANCES[dtype]

    def add(check: Check) -> None:
        found.checks.append(check)
        watch.check(check)

    for runner in runners:
        for what, ask in questions(subject, runner).items():
            add(_asked(runner, what, lambda r=runner, a=ask: list(a(subject, r)), tolerance))  # type: ignore[misc]
    long = [runner for runner in runners if getattr(runner, "most_steps", None) is None]
    if steps and long:
        for check in _streamed(subject, long, steps, tolerance, found, watch):
            add(check)
    if data is not None:
        expected = data.score(subject.reference)
        found.text["float64"] = dict(expected)
        for runner in long:
            add(_on_data(runner, data, expected, tolerance, found))
    return found


def _asked(runner: Runner, what: str, pairs: Callable[[], list], tolerance: Tolerance) -> Check:  # type: ignore[type-arg]
    """The worst difference of every output over all pairs; a runner that fails is an answer, too."""
    worst: dict[str, Difference] = {}
    try:
        for got, want in pairs():
            if set(got) != set(want):
                raise ValueError(f"outputs {sorted(got)}, expected {sorted(want)}")
            for name, value in want.items():
                _keep(worst, name, compare(got[name], value, tolerance))
    except Exception as error:
        return Check(runner.name, what, False, worst, f"{type(error).__name__}: {error}")
    return Check(runner.name, what, all(d.passed for d in worst.values()), worst)


def _keep(worst: dict[str, Difference], name: str, new: Difference) -> None:
    """Keep the worse of two: a failure before a pass, then the larger absolute error."""
    old = worst.get(name)
    rank = (not new.passed, new.absolute)
    if old is None or rank > (not old.passed, old.absolute):
        worst[name] = new


def _streamed(
    subject: Subject,
    runners: list[Runner],
    steps: int,
    tolerance: Tolerance,
    report: Report,
    watch: Watch,
) -> list[Check]:
    """The long stream; errors by step go to `report.drift`."""
    worst: list[dict[str, Difference]] = [{} for _ in runners]
    curves: list[list[tuple[int, float]]] = [[] for _ in runners]
    done = 0
    what = f"stream of {steps:,} steps"
    try:
        for done, expected, found in stream(subject, runners, steps, lambda n: None):
            for number, result in enumerate(found):
                got, want = named(result), named(expected)
                for name, value in want.items():
                    _keep(worst[number], name, compare(got[name], value, tolerance))
                error = np.abs(got["logits"].astype(np.float64) - want["logits"])
                curves[number].append((done, float(error.max())))
            watch.steps(done, steps)
    except Exception as error:  # whose fault it is does not matter: the stream ended
        note = f"after step {done}: {type(error).__name__}: {error}"
        return [Check(runner.name, what, False, worst[i], note) for i, runner in enumerate(runners)]
    checks = []
    for number, runner in enumerate(runners):
        drift = _thinned(curves[number], steps)
        report.drift[runner.name] = drift
        passed = all(d.passed for d in worst[number].values())
        note = f"last tenth {drift.growth():.2g}x the first"
        checks.append(Check(runner.name, what, passed, worst[number], note))
    return checks


def _thinned(curve: list[tuple[int, float]], steps: int) -> Drift:
    """At most POINTS points, each the largest error since the one before."""
    window = max(1, math.ceil(steps / POINTS))
    ends: dict[int, tuple[int, float]] = {}
    for at, error in curve:
        key = (at - 1) // window
        ends[key] = (at, max(error, ends[key][1] if key in ends else 0.0))
    return Drift([at for at, _ in ends.values()], [error for _, error in ends.values()])


def _on_data(
    runner: Runner, data: Data, expected: dict[str, float], tolerance: Tolerance, report: Report
) -> Check:
    """Perplexity (or the loss) and accuracy, beside float64's."""
    try:
        found = data.score(runner)
    except Exception as error:
        return Check(runner.name, "data", False, {}, f"{type(error).__name__}: {error}")
    report.text[runner.name] = dict(found)
    passed, parts = True, []
    for name, want in expected.items():
        got = found[name]
        if name in ("perplexity", "loss"):
            if name == "loss" and "perplexity" in expected:
                continue
            fits = abs(got - want) <= tolerance.loss * max(abs(want), 1e-3)
            parts.append(f"{name} {got:.6g} ({got - want:+.1e})")
        else:
            fits = abs(got - want) <= tolerance.accuracy
            parts.append(f"{name} {100 * got:.2f}% ({100 * (got - want):+.2f})")
        passed = passed and fits and math.isfinite(got)
    return Check(runner.name, "data", passed, {}, ", ".join(parts))
