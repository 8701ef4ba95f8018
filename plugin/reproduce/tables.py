"""An experiment's rows as a table: in Markdown for the page, in plain text for the screen."""

from __future__ import annotations

from collections.abc import Sequence

from .recipe import Experiment
from .rows import NOTHING, Row, difference, rows_of
from .store import Store


def columns(experiment: Experiment, rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """Headings and cells. Only results.md has columns of published values, for metrics that have any."""
    heads, picked = [""], []
    for i, metric in enumerate(experiment.metrics):
        if experiment.page == "results" and any(row.published[i] != NOTHING for row in rows):
            heads.append(f"{metric.label}: published")
            picked.append((i, True))
            heads.append("measured")
        else:
            heads.append(metric.label)
        picked.append((i, False))
    heads += ["seeds", "epochs", "time a run", "machine", "commit", "remarks"]
    cells = [
        [
            row.label,
            *((row.published if was else row.measured)[i] for i, was in picked),
            row.seeds,
            row.epochs,
            row.time,
            row.machine,
            row.commits,
            row.remarks,
        ]
        for row in rows
    ]
    return heads, cells


def differences(experiment: Experiment, store: Store) -> list[str]:
    texts = (difference(experiment, pair, store) for pair in experiment.pairs)
    return [text for text in texts if text is not None]


def markdown(experiment: Experiment, store: Store) -> list[str]:
    heads, cells = columns(experiment, rows_of(experiment, store))
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    return lines + ["| " + " | ".join(row) + " |" for row in cells]


def screen(experiment: Experiment, store: Store) -> str:
    """The measurements so far. Variants without a run are only counted."""
    rows = rows_of(experiment, store)
    shown = [row for row in rows if row.seeds != NOTHING]
    title = f"{experiment.name}: {experiment.title} ({experiment.source})"
    if not shown:
        return f"{title}\n  nothing has been measured yet"
    heads, cells = columns(experiment, shown)
    table = [heads, *cells]
    widths = [max(len(row[i]) for row in table) for i in range(len(heads))]
    lines = [
        "  "
        + "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        for row in table
    ]
    if len(shown) < len(rows):
        lines.append(f"  {len(rows) - len(shown)} of {len(rows)} variants have not been run yet")
    return "\n".join([title, *lines, *(f"  {text}" for text in differences(experiment, store))])
