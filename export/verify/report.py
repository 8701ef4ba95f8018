"""The result of `verify`: lines for people, JSON for programs, a plot of the drift of long streams."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from ... import __version__
from ...plugin.common.lazy import np

if TYPE_CHECKING:
    from ..common.runner import Array


@dataclass(frozen=True)
class Difference:
    """One output: the largest errors, and where the error most exceeds the limit (or comes closest to it)."""

    absolute: float
    relative: float
    where: tuple[int, ...]
    found: float
    expected: float
    allowed: float
    passed: bool


def compare(found: Array, expected: Array, allowed: float) -> Difference:
    """The distance of `found` from `expected` (float64), and whether it is within the limit."""
    got = np.asarray(found, np.float64)
    if got.shape != expected.shape:
        raise ValueError(f"shape {got.shape}, expected {expected.shape}")
    if not got.size:
        return Difference(0.0, 0.0, (), 0.0, 0.0, allowed, True)
    error, size = np.abs(got - expected), np.abs(expected)
    worst = np.where(np.isfinite(error), error, np.inf)
    where = np.unravel_index(int(np.argmax(worst)), worst.shape)
    large = size >= max(1e-3 * float(size.max()), 1e-12)  # relative errors near 0 mean nothing
    return Difference(
        float(worst[where]),
        float(np.max(error[large] / size[large], initial=0.0)),
        tuple(int(i) for i in where),
        float(got[where]),
        float(expected[where]),
        allowed,
        bool(worst[where] <= allowed) and bool(np.isfinite(worst[where])),
    )


@dataclass(frozen=True)
class Check:
    """One check of one runner."""

    runner: str
    what: str
    passed: bool
    outputs: dict[str, Difference] = field(default_factory=dict)
    note: str = ""
    others: ClassVar[str] = "states"  # the name for outputs other than the logits

    def line(self) -> str:
        """-[✓] ... or -[x] ..., with the worst error of the logits and of the states."""
        text = f"-[{'✓' if self.passed else 'x'}] {self.runner}: {self.what}"
        logits = [d for name, d in self.outputs.items() if name == "logits"]
        states = {name: d for name, d in self.outputs.items() if name != "logits"}
        parts = [f"logits {d.absolute:.1e}" for d in logits]
        if states:
            parts.append(f"{self.others} {max(d.absolute for d in states.values()):.1e}")
        parts += [self.note] if self.note else []
        for name, d in self.outputs.items():
            if not d.passed:
                parts.append(
                    f"{name} at {list(d.where)} is {d.found:.6g}, expected {d.expected:.6g}, "
                    f"allowed {d.allowed:.1e}"
                )
        return f"{text}: {', '.join(parts)}" if parts else text


class Watch:
    """Called for each check and for the progress of the long stream. This one does nothing."""

    def check(self, check: Check) -> None:
        pass

    def steps(self, done: int, total: int) -> None:
        pass


@dataclass(frozen=True)
class Drift:
    """Error of a long stream's logits: at step `steps[i]`, the largest since the last point, and the limit."""

    steps: list[int]
    errors: list[float]
    allowed: list[float]

    def growth(self) -> float:
        """The largest error in the last tenth over that in the first tenth."""
        few = max(1, len(self.errors) // 10)
        return max(self.errors[-few:]) / max(max(self.errors[:few]), 1e-12)


@dataclass
class Report:
    """All checks of one exported model; `passed` decides the exit code.

    path: the file. format, dtype, recurrence, chunk_size: how it was exported. checks: in order. drift: of long
    streams, by runner. text: loss and accuracy on a text. facts: about the model and the file. criterion: what
    decided about a dtype below float32.
    """

    path: Path
    format: str
    dtype: str
    recurrence: str = ""
    chunk_size: int | None = None
    checks: list[Check] = field(default_factory=list)
    drift: dict[str, Drift] = field(default_factory=dict)
    text: dict[str, dict[str, Any]] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    criterion: dict[str, Any] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        """There were checks, and all passed."""
        return bool(self.checks) and all(check.passed for check in self.checks)

    def add(self, check: Check, watch: Watch | None = None) -> None:
        """Add a check and report it."""
        self.checks.append(check)
        if watch is not None:
            watch.check(check)

    def record(self) -> dict[str, Any]:
        """The proof: the part of the report that is stored in the file."""
        return {
            "passed": self.passed,
            "tsm_version": __version__,
            "dtype": self.dtype,
            "checks": len(self.checks),
            "criterion": self.criterion,
        }

    def lines(self) -> list[str]:
        return [check.line() for check in self.checks]

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def json(self) -> str:
        found = {
            "file": self.path.name,
            "format": self.format,
            "recurrence": self.recurrence,
            "chunk_size": self.chunk_size,
            "dtype": self.dtype,
            "passed": self.passed,
            "criterion": self.criterion,
            **self.facts,
            "checks": [asdict(check) for check in self.checks],
            "drift": {
                name: {**asdict(drift), "growth": drift.growth()}
                for name, drift in self.drift.items()
            },
            "text": self.text,
        }
        return json.dumps(_plain(found), indent=1, ensure_ascii=False) + "\n"


def _plain(value: Any) -> Any:
    """Numbers that JSON cannot hold are null."""
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value


def plot_drift(report: Report, path: Path) -> None:
    """Plots the error of the logits over the steps, one line per runner."""
    from ...plugin.common.style import DASHES, KINDS, figure, save, title

    made, (axis,) = figure(1, (5.2, 2.6), right=0.2)
    for number, (name, drift) in enumerate(report.drift.items()):
        errors = np.maximum(np.asarray(drift.errors), 1e-12)
        axis.plot(
            drift.steps,
            errors,
            label=name,
            linewidth=1.2,
            color=KINDS[number % len(KINDS)],
            linestyle=DASHES[number % len(DASHES)],
        )
        if np.isfinite(drift.allowed).all():
            label = "allowed" if number == 0 else None
            axis.plot(drift.steps, drift.allowed, linewidth=0.8, color="0.6", label=label)
    axis.set_yscale("log")
    axis.set_xlabel("step of the stream", fontsize=8)
    axis.set_ylabel("largest error of a logit", fontsize=8)
    axis.legend(fontsize=7, frameon=False)
    title(made, f"{report.path.name}: drift against float64")
    save(made, path)
