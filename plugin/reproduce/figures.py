"""The figures of the page, drawn only from the summaries. `experiment.figure` names the drawing."""

from __future__ import annotations

import hashlib
import json
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..common import style
from ..common.atomic import atomic_file, make_folder
from ..registry import Registry
from .paired import mean_and_error
from .recipe import Experiment, Variant
from .store import Store, Summary

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Runs = Sequence[tuple[Variant, list[Summary]]]
Points = dict[str, list[tuple[float, float]]]  # "model, condition" -> (x, y)
HEIGHT, WIDTHS, NARROW = (
    3.2,
    {1: 6.0, 2: 3.8, 3: 3.0},
    2.4,
)  # inches; the width of a panel depends on the number of panels
KEY = 1.7  # inches for the legend on the right
COLUMNS = 5  # panels per row
LETTERS = 15  # letters of a panel's title per inch


class Drawing:
    """The source of a figure's points, and its axis labels."""

    def __init__(self, collect: Callable[[Experiment, Runs], Points], x: str, y: str, **look: Any):
        self.collect, self.x, self.y, self.look = collect, x, y, look


DRAWINGS: Registry[Drawing] = Registry("figure")


def figure_name(experiment: Experiment) -> str:
    return f"results_{experiment.name}.png"


def points_of(experiment: Experiment, store: Store) -> Points:
    """The points of the figure."""
    if not experiment.figure:
        return {}
    runs = [(variant, store.all_of(variant)) for variant in experiment.variants]
    found = DRAWINGS.get(experiment.figure).collect(experiment, runs)
    return {label: points for label, points in found.items() if points}


def drawable(experiment: Experiment, store: Store) -> bool:
    return bool(points_of(experiment, store))


def draw(experiment: Experiment, store: Store, folder: Path) -> Path | None:
    """Writes the PNG of an experiment; None if there is nothing to show yet."""
    lines = points_of(experiment, store)
    if not lines:
        return None
    drawing = DRAWINGS.get(experiment.figure)
    panels = list(dict.fromkeys(condition for _, condition in map(_split, lines)))
    kinds = list(dict.fromkeys(kind for kind, _ in map(_split, lines)))
    size = (WIDTHS.get(len(panels), NARROW), HEIGHT)
    titles = [textwrap.fill(condition, round(LETTERS * size[0])) for condition in panels]
    lines_above = max(text.count("\n") for text in titles)
    top = 0.62 + 0.14 * lines_above if any(panels) else 0.38
    made, axes = style.figure(len(panels), size, right=KEY, top=top, columns=COLUMNS)
    for label, points in lines.items():
        kind, condition = _split(label)
        axis, i = axes[panels.index(condition)], kinds.index(kind)
        look: dict[str, Any] = {"color": style.KINDS[i % len(style.KINDS)], "markersize": 3.5}
        look["linestyle"] = style.DASHES[i // len(style.KINDS) % len(style.DASHES)]
        look["marker"] = drawing.look.get("marker", "" if len(points) > 1 else "o")
        axis.plot(*zip(*points, strict=True), label=kind, linewidth=1.3, **look)
    for axis, text in zip(axes, titles, strict=True):
        _axes(axis, drawing, len(panels))
        axis.set_title(text, fontsize=8, color=style.INK)
    for axis in axes[::COLUMNS]:
        axis.set_ylabel(_value(drawing, experiment), fontsize=8)
    end_of_row = axes[:COLUMNS][-1]
    middle = (axes[0].get_position().x0 + end_of_row.get_position().x1) / 2
    made.text(middle, 0.02, drawing.x, fontsize=8, ha="center", va="bottom")
    style.legend_right(end_of_row, *axes)
    style.title(made, f"{experiment.title} ({experiment.source})")
    make_folder(folder)
    path = folder / figure_name(experiment)
    with atomic_file(path) as file:
        about = {"Software": None, "Description": stamp(experiment, store)}
        made.savefig(file, format=path.suffix[1:], metadata=about)
    return path


def stamp(experiment: Experiment, store: Store) -> str:
    """A fingerprint of the figure's contents, stored in its file to detect stale figures."""
    drawing = DRAWINGS.get(experiment.figure)
    shown = [experiment.title, drawing.x, drawing.y, points_of(experiment, store)]
    return hashlib.sha256(json.dumps(shown).encode()).hexdigest()[:16]


def _split(label: str) -> tuple[str, str]:
    """ "plstm, length 150, state reset" -> plstm, a line of the panel "length 150, state reset" """
    kind, _, condition = label.partition(", ")
    return kind, condition


def _axes(axis: Axes, drawing: Drawing, panels: int) -> None:
    for name in ("x", "y"):
        if drawing.look.get(f"{name}log"):
            getattr(axis, f"set_{name}scale")("log")
    if "ticks" in drawing.look:
        axis.set_xticks(range(len(drawing.look["ticks"])), drawing.look["ticks"], fontsize=7)
    elif panels > 1 and not drawing.look.get("xlog"):
        style.few_ticks(axis)


def _value(drawing: Drawing, experiment: Experiment) -> str:
    return drawing.y or f"validation {VALIDATED[experiment.metrics[0].key][1]}"


# First metric of a table -> its name in validations and its axis label.
VALIDATED = {
    "test_accuracy": ("accuracy", "accuracy"),
    "test_bpc": ("bpc", "bits per character"),
    "test_ppl": ("ppl", "perplexity"),
    "test_loss": ("loss", "squared error"),
}


def _curves(experiment: Experiment, runs: Runs) -> Points:
    """The validation curve of every variant's first seed."""
    key = VALIDATED[experiment.metrics[0].key][0]
    return {
        variant.label: [
            (row["update"], row[key]) for row in found[0].history if row.get(key) is not None
        ]
        for variant, found in runs
        if found
    }


def _metrics(experiment: Experiment, runs: Runs) -> Points:
    """The metrics of the table from left to right, one line per variant: means over seeds."""
    lines: Points = {}
    for variant, found in runs:
        points = []
        for i, metric in enumerate(experiment.metrics):
            values = [r.metrics[metric.key] for r in found if metric.key in r.metrics]
            if values:
                points.append((float(i), mean_and_error(values)[0] * metric.scale))
        lines[variant.label] = points
    return lines


def _against_first(experiment: Experiment, runs: Runs) -> Points:
    """Like `_metrics`, but as the difference in percent from the first variant that was run, since the values
    of different bins differ by factors of hundreds."""
    lines = {label: points for label, points in _metrics(experiment, runs).items() if points}
    first = dict(next(iter(lines.values()), ()))
    return {
        label: [(i, 100 * (value / first[i] - 1)) for i, value in points if i in first]
        for label, points in lines.items()
    }


def _lengths(experiment: Experiment, runs: Runs) -> Points:
    """The metrics whose keys end with a length (`accuracy_at_200`), over the lengths."""
    ends = [metric.key.rpartition("_")[2] for metric in experiment.metrics]
    return {
        label: [(float(ends[int(i)]), value) for i, value in points if ends[int(i)].isdigit()]
        for label, points in _metrics(experiment, runs).items()
    }


def _detail(name: str, x: Callable[[Any], float]) -> Callable[[Experiment, Runs], Points]:
    """Accuracy in each group of a measure, averaged over seeds."""

    def collect(experiment: Experiment, runs: Runs) -> Points:
        lines: Points = {}
        for variant, found in runs:
            groups: dict[float, list[float]] = {}
            for run in found:
                for row in run.details.get(name, []):
                    if row["accuracy"] is not None:
                        groups.setdefault(x(row), []).append(100 * row["accuracy"])
            lines[variant.label] = [
                (at, mean_and_error(values)[0]) for at, values in sorted(groups.items())
            ]
        return lines

    return collect


def _toy(experiment: Experiment, runs: Runs) -> Points:
    lines: Points = {}
    for variant, found in runs:
        for run in found[:1]:
            for how in ("descent", "flow"):
                values = zip(run.details["tau"], run.details[how], strict=True)
                lines[f"{variant.label}, {how}"] = [(t, u) for t, u in values if t and u]
    return lines


def _length_end(row: dict[str, Any]) -> float:
    """ "51-100" -> 100, "over 400" -> 450"""
    label = str(row["label"])
    return (
        float(label.removeprefix("over ")) + 50 if "over" in label else float(label.split("-")[1])
    )


DRAWINGS.register("curves")(Drawing(_curves, "updates (first seed)", ""))
DRAWINGS.register("log_curves")(Drawing(_curves, "updates (first seed)", "", ylog=True))
DRAWINGS.register("generalisation")(
    Drawing(_lengths, "T of the test sequences", "accuracy, %", xlog=True, marker="o")
)
DRAWINGS.register("windows")(
    Drawing(
        _lengths,
        "characters read since the state was 0",
        "bits per character",
        xlog=True,
        marker="o",
    )
)
DRAWINGS.register("by_length")(
    Drawing(
        _detail("by_length", _length_end),
        "words of the review, up to (last point: longer than 400)",
        "test accuracy, %",
        marker="o",
    )
)
DRAWINGS.register("by_reach")(
    Drawing(
        _detail("by_reach", lambda row: float(row["low"])),
        "longest distance between a bracket and its partner, from",
        "sequences right, %",
        marker="o",
    )
)
DRAWINGS.register("bins")(
    Drawing(
        _against_first,
        "words by their count in train, valid and test",
        "test perplexity against the first model's, %",
        marker="o",
        ticks=(">=10K", "1K-10K", "100-1K", "<100", "all"),
    )
)
DRAWINGS.register("toy")(
    Drawing(_toy, "updates, or time of the flow", "1 - f", xlog=True, ylog=True)
)
