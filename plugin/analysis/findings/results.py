"""Writes findings to files: NAME.json, NAME.csv, NAME.png, NAME.svg, and any others that the analysis makes."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from .... import __version__
from ...common import style
from ...common.atomic import write_bytes
from ...common.inputs import keep_inputs
from ..probes.subject import Subject
from .base import Analysis, Finding, Row, plain


@dataclasses.dataclass(frozen=True)
class Result:
    """An analysis, the models it was run on, and one finding per model."""

    analysis: Analysis
    settings: Any
    subjects: Sequence[Subject]
    findings: Sequence[Finding]

    def text(self) -> str:
        """The text of the findings; with several models, each starts with its label."""
        if len(self.findings) == 1:
            return self.findings[0].text()
        return " ".join(f"{found.label}: {found.text()}" for found in self.findings)

    def table(self) -> list[Row]:
        """The rows of all models; with several models, the first column is the label."""
        if len(self.findings) == 1:
            return self.findings[0].table()
        return [{"model": found.label, **row} for found in self.findings for row in found.table()]

    def draw(self) -> Any:
        first, *others = self.findings
        return first.draw(*others)

    def json(self) -> bytes:
        """The findings with everything they were computed from: settings, models and data."""
        values = {
            "analysis": self.analysis.name,
            "source": self.analysis.source,
            "tsm_version": __version__,
            "settings": dataclasses.asdict(self.settings),
            "models": [
                {**describe(subject), "text": found.text(), "numbers": found.numbers()}
                for subject, found in zip(self.subjects, self.findings, strict=True)
            ],
        }
        return (json.dumps(plain(values), indent=1, allow_nan=False) + "\n").encode()

    def csv(self) -> bytes:
        rows = plain(self.table())
        buffer = io.StringIO()
        writer = csv.DictWriter(buffer, list(rows[0]) if rows else [], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        return buffer.getvalue().encode()


def run(analysis: Analysis, subjects: Sequence[Subject], settings: Any = None) -> Result:
    """Analyses every subject. Several subjects must have the same task, since they share a figure."""
    tasks = sorted({subject.task_name for subject in subjects if subject.maybe_trained})
    if len(tasks) > 1:
        raise ValueError(f"the models were trained on {' and '.join(tasks)}; accepted: one task")
    chosen = analysis.settings() if settings is None else settings
    findings = [analysis.run(subject, chosen) for subject in subjects]
    return Result(analysis, chosen, subjects, findings)


def write(result: Result, folder: Path, keep: Iterable[Path | None] = ()) -> list[Path]:
    """Writes all files of a result atomically. keep: files that must not be replaced."""
    folder.mkdir(parents=True, exist_ok=True)
    figure = result.draw()
    contents = {
        "json": result.json(),
        "csv": result.csv(),
        "png": style.rendered(figure, "png"),
        "svg": style.rendered(figure, "svg"),
    }
    files = {f"{result.analysis.name}.{kind}": data for kind, data in contents.items()}
    for found in result.findings:
        files |= found.files()
    keep_inputs("--output", [folder / name for name in files], keep)
    for name, data in files.items():
        write_bytes(folder / name, data)
    return [folder / name for name in files]


def describe(subject: Subject) -> Row:
    """The analysed model and data, as plain values."""
    about: Row = {"label": subject.label, "split": subject.split, "seed": subject.seed}
    about |= {"steps": subject.steps, "rows": subject.rows}
    if subject.maybe_trained is None:
        return {**about, "checkpoint": None, "data": subject.data}
    trained = subject.trained
    return {
        **about,
        "checkpoint": str(trained.path),
        "arch": trained.config["model"]["arch"],
        "cell": subject.cell.name,
        "hidden": [layer.hidden_size for layer in subject.layers],
        "task": subject.task_name,
        "data": subject.data or trained.config["task"].get("data") or None,
    }
