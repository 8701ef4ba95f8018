"""What the figures of the pages show: points computed from the summaries alone. `experiment.figures` names
drawings."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ..registry import Registry
from .paired import far_apart, mean_and_error
from .recipe import Experiment, Metric, Variant
from .store import Summary

Runs = Sequence[tuple[Variant, list[Summary]]]
Line = list[tuple[float, float]]  # x, y
Points = dict[str, Line]  # by "model, condition"
GAP = (math.nan, math.nan)


class Drawing:
    """The source of a figure's points, and its axis labels. about: what it shows, if not the first metric of
    the table."""

    def __init__(
        self,
        collect: Callable[[Experiment, Runs], Points],
        x: str,
        y: str,
        about: str = "",
        **look: Any,
    ):
        self.collect, self.x, self.y, self.about, self.look = collect, x, y, about, look


DRAWINGS: Registry[Drawing] = Registry("figure")


def split_label(label: str) -> tuple[str, str]:
    """ "plstm, length 150, state reset" -> plstm, a line of the panel "length 150, state reset" """
    kind, _, condition = label.partition(", ")
    return kind, condition


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


def _metrics(metrics: Mapping[float, Metric], run: Summary) -> dict[float, float]:
    """The metrics that a run has, by place."""
    return {
        at: run.metrics[metric.key] * metric.scale
        for at, metric in metrics.items()
        if metric.key in run.metrics
    }


def _lines(each: Sequence[Mapping[float, float]]) -> list[Line]:
    """Values of runs by place: their means, or a line per run if runs are far apart at one of the places."""
    found = _grouped(each)
    if not any(map(far_apart, found.values())):
        return [[(at, mean_and_error(values)[0]) for at, values in found.items()]]
    return [sorted(run.items()) for run in each]


def _grouped(each: Sequence[Mapping[float, float]]) -> dict[float, list[float]]:
    places = sorted({at for run in each for at in run})
    return {at: [run[at] for run in each if at in run] for at in places}


def _together(lines: Sequence[Line]) -> Line:
    """Lines of one name as one, with gaps between them."""
    found: Line = []
    for line in lines:
        found += ([GAP] if found and line else []) + line
    return found


def _against_first(experiment: Experiment, runs: Runs) -> Points:
    """The metrics of the table from left to right, as the difference in percent from the first variant that was
    run, since the values of different bins differ by factors of hundreds."""
    metrics = {float(i): metric for i, metric in enumerate(experiment.metrics)}
    found = {v.label: [_metrics(metrics, run) for run in own] for v, own in runs if own}
    first = _grouped(next(iter(found.values()), []))
    usual = {at: mean_and_error(values)[0] for at, values in first.items()}
    return {
        label: _together(
            [
                [(at, 100 * (value / usual[at] - 1)) for at, value in line if at in usual]
                for line in _lines(each)
            ]
        )
        for label, each in found.items()
    }


def _lengths(prefix: str) -> Callable[[Experiment, Runs], Points]:
    """The metrics with keys such as `accuracy_at_200`, over the lengths."""

    def collect(experiment: Experiment, runs: Runs) -> Points:
        metrics = {
            float(metric.key.removeprefix(prefix)): metric
            for metric in experiment.metrics
            if metric.key.startswith(prefix)
        }
        return {
            variant.label: _together(_lines([_metrics(metrics, run) for run in found]))
            for variant, found in runs
        }

    return collect


def _detail(name: str, x: Callable[[Any], float]) -> Callable[[Experiment, Runs], Points]:
    """Accuracy in each group of a measure."""

    def of(run: Summary) -> dict[float, float]:
        rows = run.details.get(name, [])
        return {x(row): 100 * row["accuracy"] for row in rows if row["accuracy"] is not None}

    def collect(experiment: Experiment, runs: Runs) -> Points:
        return {
            variant.label: _together(_lines([of(run) for run in found])) for variant, found in runs
        }

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


def _numbers(runs: Runs, analysis: str) -> Iterator[tuple[Variant, list[Any]]]:
    """Each variant with the numbers of an analysis of its runs, if it has any."""
    for variant, found in runs:
        kept = [run.details[analysis]["numbers"] for run in found if analysis in run.details]
        if kept:
            yield variant, kept


def _compared(experiment: Experiment, runs: Runs) -> Runs:
    """The first two variants that are compared, if any are; more would hide each other."""
    if not experiment.pairs:
        return runs
    return [run for run in runs if run[0].name in experiment.pairs[0]]


def _ablation(experiment: Experiment, runs: Runs) -> Points:
    """The accuracy without some units, averaged over orders and seeds, and that of guessing a symbol."""
    lines: Points = {}
    chance: Points = {}
    for variant, kept in _numbers(runs, "unit-ablation"):
        kind, condition = split_label(variant.label)
        symbols = next(run for own, found in runs if own is variant for run in found).config["task"]
        level = 100 / symbols["copy_symbols"]
        chance[f"chance, {condition}"] = [(0.0, level), (float(kept[0]["silenced"][-1]), level)]
        for name, key in ((kind, "random"), (f"{kind}: {kept[0]['first_name']}", "first")):
            values: dict[int, list[float]] = {}
            for numbers in kept:
                if numbers[key] is not None:
                    row = np.atleast_2d(numbers[key]).mean(0)
                    for count, value in zip(numbers["silenced"], row, strict=True):
                        values.setdefault(count, []).append(100 * float(value))
            lines[f"{name}, {condition}"] = [
                (float(count), mean_and_error(found)[0]) for count, found in values.items()
            ]
    return lines | chance


def _exponents(experiment: Experiment, runs: Runs) -> Points:
    """The share of units whose exponent is at most p, over the units of all seeds."""
    lines: Points = {}
    for variant, kept in _numbers(runs, "learned-p"):
        kind, condition = split_label(variant.label)
        units: dict[str, list[float]] = {"later-reset": [], "others": []}
        for numbers in kept:
            if numbers["later"] is None:
                continue
            if isinstance(numbers["p"], dict):  # a large layer, of which only percentiles are kept
                continue
            layer = numbers["p"][numbers["later_layer"] - 1]
            for p, late in zip(layer, numbers["later"], strict=True):
                units["later-reset" if late else "others"].append(p)
        for name, values in units.items():
            shares = 100 * np.arange(1, len(values) + 1) / max(len(values), 1)
            points = zip(sorted(values), shares.tolist(), strict=True)
            lines[f"{kind}: {name}, {condition}"] = list(points)
    return lines


def _timescale_fit(experiment: Experiment, runs: Runs) -> Points:
    """The distance of the units' timescales to an inverse gamma distribution, averaged over seeds."""
    return {
        variant.label: list(
            zip(
                kept[0]["alphas"],
                np.mean([numbers["alpha_statistics"] for numbers in kept], axis=0).tolist(),
                strict=True,
            )
        )
        for variant, kept in _numbers(_compared(experiment, runs), "timescale-fit")
    }


def _timescales(experiment: Experiment, runs: Runs) -> Points:
    """The timescales of a layer's units, from the shortest to the longest (first seed)."""
    lines: Points = {}
    for variant, kept in _numbers(_compared(experiment, runs), "timescales"):
        for number, layer in enumerate(kept[0]["layers"], 1):
            values = layer["gates"]
            if isinstance(values, dict):  # a large layer
                values = values["percentiles"]
            elif isinstance(values, str):  # of a run that did not keep them
                continue
            shares = np.linspace(0, 100, len(values)).tolist()
            points = zip(shares, sorted(values), strict=True)
            lines[f"{variant.label}, layer {number}"] = list(points)
    return lines


def _routing(experiment: Experiment, runs: Runs) -> Points:
    """What the loss of a group of units does to each bin of words, by the timescale of the group."""
    lines: Points = {}
    for variant, kept in _numbers(_compared(experiment, runs), "routing"):
        for numbers in kept:
            for bin, label in enumerate(numbers["bins"]):
                ratios = [row[bin] for row in numbers["ratios"]]
                points = zip(numbers["timescales"], ratios, strict=True)
                panel = "all words" if label == "all" else f"words {label}"
                lines.setdefault(f"{variant.label}, {panel}", []).extend(points)
    return {label: sorted(points) for label, points in lines.items()}


DRAWINGS.register("curves")(Drawing(_curves, "updates (first seed)", ""))
DRAWINGS.register("log_curves")(Drawing(_curves, "updates (first seed)", "", ylog=True))
DRAWINGS.register("generalisation")(
    Drawing(
        _lengths("accuracy_at_"), "T of the test sequences", "accuracy, %", xlog=True, marker="o"
    )
)
DRAWINGS.register("windows")(
    Drawing(
        _lengths("bits_at_"),
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
        "test accuracy, % (from 80)",
        marker="o",
        low=80,
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
DRAWINGS.register("ablation")(
    Drawing(_ablation, "units silenced", "accuracy, %", "without some of the units (PL figure 5)")
)
DRAWINGS.register("exponents")(
    Drawing(_exponents, "p", "units with at most this p, %", "learned exponents (PL figure A.4)")
)
DRAWINGS.register("timescale_fit")(
    Drawing(
        _timescale_fit,
        "shape alpha of an inverse gamma distribution",
        "distance of the units (Kolmogorov-Smirnov)",
        "timescales of the units (MTS figure 1)",
    )
)
DRAWINGS.register("timescales")(
    Drawing(
        _timescales,
        "units, from the shortest timescale to the longest, %",
        "timescale, steps",
        "timescales by layer (MTS figures 1 and 4)",
        ylog=True,
    )
)
DRAWINGS.register("routing")(
    Drawing(
        _routing,
        "mean timescale of a group of 50 units, steps",
        "perplexity without it / with it",
        "without groups of units (MTS figure 3)",
        xlog=True,
        marker="o",
        line="none",
    )
)
