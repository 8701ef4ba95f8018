"""Is an exported model equal to the trained one? Every export ends with this.

    report = verify(model, runners, "float32", steps=10_000)
    print(report)                        # -[✓] ONNX Runtime CPU: ragged lengths: logits 1.2e-07, ...

A Runner (runner.py) runs the exported model; it is compared with the model in PyTorch in float64. The checks
are in checks.py: N and T other than those at export, chunks, ragged lengths, dt, saved states; then a long
stream (stream.py).

float32 is judged number by number, with the tolerance of tolerance.py. Below float32, outputs must have the
right structure, and the overall quality is judged (quality.py), on the given data or on a sample.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..common.runner import Runner, unit
from .checks import Expected, Outputs, Pair, Subject, questions
from .data import Data
from .quality import LIMIT, Quality, measure
from .reference import Reference
from .report import Check, Difference, Report, Watch, compare
from .sample import sample
from .stream import Curve, Stream
from .tolerance import MULTIPLE, STRUCTURE, allowed, structure

if TYPE_CHECKING:
    from ...plugin.models import SequenceModel

STEPS = 10_000


class VerifyError(ArithmeticError):
    """The exported model differs from the trained one; `report` says where."""

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
    limit: float = LIMIT,
    classes: bool = True,
    report: Report | None = None,
    watch: Watch | None = None,
) -> Report:
    """Run every check on every runner. steps: length of the long stream (0: none).

    limit: the largest change of quality (quality.py) that is allowed below float32.
    classes: whether outputs are class logits rather than numbers.
    """
    if not runners:
        raise ValueError("no runner was given; accepted: at least one")
    found = report or Report(Path("model"), "", dtype)
    watch = watch or Watch()
    subject = Subject(model, Reference(model))
    judge = Judge(dtype == "float32", subject.terms)
    for runner in runners:
        for what, ask in questions(subject, runner).items():
            found.add(_asked(runner, what, partial(ask, subject, runner), judge), watch)
    long = [runner for runner in runners if getattr(runner, "most_steps", None) is None]
    if steps and long:
        for check in _streamed(Stream(subject, long, steps), judge, found, watch):
            found.add(check, watch)
    found.criterion = {"name": "rounding", "multiple": MULTIPLE}
    if long and (data is not None or not judge.exact):
        chosen = data or sample(subject, max(map(unit, long)))
        for check in _scored(subject, long, chosen, None if judge.exact else limit, classes, found):
            found.add(check, watch)
    return found


class Judge:
    """Compares an output of a file with that of float64."""

    def __init__(self, exact: bool, terms: int) -> None:
        self.exact, self.terms = exact, terms

    def __call__(self, found: Outputs, expected: Expected, name: str) -> Difference:
        got, want = found[name], expected.outputs[name]
        if self.exact:
            return compare(got, want, allowed(want, expected.shares[name], self.terms))
        difference = compare(got, want, np.inf)
        error, signal = structure(got, want, centred=name == "logits")
        return replace(
            difference, allowed=STRUCTURE * signal, passed=bool(error <= STRUCTURE * signal)
        )


def _asked(runner: Runner, what: str, pairs: Callable[[], Iterable[Pair]], judge: Judge) -> Check:
    """The worst difference of every output over all pairs; an exception in the runner is a failed check."""
    worst: dict[str, Difference] = {}
    try:
        for got, want in pairs():
            if set(got) != set(want.outputs):
                raise ValueError(f"outputs {sorted(got)}, expected {sorted(want.outputs)}")
            for name in want.outputs:
                _keep(worst, name, judge(got, want, name))
    except Exception as error:
        return Check(runner.name, what, False, worst, f"{type(error).__name__}: {error}")
    return Check(runner.name, what, all(d.passed for d in worst.values()), worst)


def _keep(worst: dict[str, Difference], name: str, new: Difference) -> None:
    """Keep the worse of two differences: a failure rather than a pass, otherwise the larger absolute error."""
    old = worst.get(name)
    rank = (not new.passed, new.absolute)
    if old is None or rank > (not old.passed, old.absolute):
        worst[name] = new


def _streamed(stream: Stream, judge: Judge, report: Report, watch: Watch) -> list[Check]:
    """Runs the long stream; errors by step go to `report.drift`. Below float32 they are not judged."""
    runners, what = stream.runners, f"stream of {stream.steps:,} steps"
    worst: list[dict[str, Difference]] = [{} for _ in runners]
    curves = [Curve() for _ in runners]
    try:
        for expected, found in stream.run():
            for number, got in enumerate(found):
                for name in expected.outputs:
                    difference = judge(got, expected, name)
                    if not judge.exact:
                        fine = bool(np.isfinite(got[name]).all())
                        difference = replace(difference, allowed=np.inf, passed=fine)
                    _keep(worst[number], name, difference)
                    if name == "logits":
                        curves[number].add(stream.done, difference)
            watch.steps(stream.done, stream.steps)
    except Exception as error:  # whatever the cause, the stream has ended
        note = f"after step {stream.done}: {type(error).__name__}: {error}"
        return [Check(runner.name, what, False, worst[i], note) for i, runner in enumerate(runners)]
    if not stream.done:
        return [Check(runner.name, what, False, {}, stream.ended) for runner in runners]
    checks = []
    for number, runner in enumerate(runners):
        drift = curves[number].drift(stream.steps)
        report.drift[runner.name] = drift
        passed = all(d.passed for d in worst[number].values())
        checks.append(Check(runner.name, what, passed, worst[number], stream.note(drift)))
    return checks


def _scored(
    subject: Subject,
    runners: Sequence[Runner],
    data: Data,
    limit: float | None,
    classes: bool,
    report: Report,
) -> list[Check]:
    """Checks perplexity, divergence or squared error; limit None: what the float32 tolerance allows."""
    criterion = "divergence" if classes else "squared error"
    if subject.model.name == "lm":
        criterion = "perplexity"
    checks, worst = [], 0.0
    for runner in runners:
        try:
            exact, found = measure(data, [subject.reference, runner], criterion)
        except Exception as error:
            checks.append(
                Check(runner.name, data.name, False, {}, f"{type(error).__name__}: {error}")
            )
            continue
        most = _in_float32(report, found) if limit is None else limit
        report.text["float64"], report.text[runner.name] = exact.values, found.values
        note = f"{criterion} {found.found:.1e} away, limit {most:.1e}{_values(found, exact)}"
        checks.append(Check(runner.name, data.name, found.found <= most, {}, note))
        worst = max(worst, found.found)
    if limit is not None:
        report.criterion = {"name": criterion, "on": data.name, "found": worst, "limit": limit}
    return checks


def _in_float32(report: Report, found: Quality) -> float:
    """An error d of the logits changes a log-probability, and so a loss, by up to 2 d; outputs that are numbers
    change by d."""
    logits = [c.outputs["logits"].allowed for c in report.checks if "logits" in c.outputs]
    most = max(logits, default=0.0)
    return most**2 / found.variance if found.criterion == "squared error" else 2 * most


def _values(found: Quality, exact: Quality) -> str:
    parts = []
    for name, value in found.values.items():
        away = value - exact.values[name]
        if name == "accuracy":
            parts.append(f"accuracy {100 * value:.2f}% ({100 * away:+.2f})")
        elif name == "perplexity" or (name == "loss" and "perplexity" not in found.values):
            parts.append(f"{name} {value:.6g} ({away:+.1e})")
    return "".join(f", {part}" for part in parts)
