"""Rows of published and measured values, for the screen and the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .paired import bounds, differences, far_apart, mean_and_error, paired_interval, shown, signed
from .recipe import Experiment, Metric, Variant
from .store import Store, Summary

NOTHING = "-"


@dataclass(frozen=True)
class Row:
    """One variant. published and measured: one text per metric of the experiment."""

    label: str
    published: tuple[str, ...]
    measured: tuple[str, ...]
    seeds: str
    epochs: str
    time: str
    machine: str
    commits: str
    remarks: str


@dataclass(frozen=True)
class Counts:
    """The numbers of runs of an experiment that are complete, that have a summary, and that the recipe asks
    for."""

    complete: int
    begun: int
    asked: int


def counts_of(experiment: Experiment, store: Store) -> Counts:
    runs = [run for variant in experiment.variants for run in store.all_of(variant)]
    asked = experiment.seeds * len(experiment.variants)
    return Counts(sum(run.ended for run in runs), len(runs), asked)


def rows_of(experiment: Experiment, store: Store) -> list[Row]:
    return [row_of(experiment, variant, store.all_of(variant)) for variant in experiment.variants]


def row_of(experiment: Experiment, variant: Variant, runs: Sequence[Summary]) -> Row:
    keys = {metric.key for metric in experiment.metrics}
    done = [run for run in runs if keys & set(run.metrics) or run.diverged]
    return Row(
        label=variant.label,
        published=tuple(_published(variant, metric) for metric in experiment.metrics),
        measured=tuple(_measured(metric, done) for metric in experiment.metrics),
        seeds=of_asked(len(done), experiment.seeds) if done else NOTHING,
        epochs=_epochs(done),
        time=_time(done),
        machine=_machine(done),
        commits=_commits(done),
        remarks=_remarks(experiment, variant, done, [run for run in runs if run not in done]),
    )


def of_asked(run: int, asked: int) -> str:
    """ "2 of 3", or only the number of runs if there are more than in the recipe."""
    return f"{run} of {asked}" if run <= asked else str(run)


def difference(experiment: Experiment, pair: tuple[str, str], store: Store) -> str | None:
    """The difference a - b of the first metric over common seeds; None if there are none."""
    metric = experiment.metrics[0]
    runs = [store.all_of(experiment.variant(name)) for name in pair]
    pairs = differences(metric, *runs)
    if not pairs:
        return None
    about = "1 seed" if len(pairs) == 1 else f"{len(pairs)} paired seeds"
    about += bounds(pairs)
    known = [experiment.variant(name).published.get(metric.key) for name in pair]
    if all(isinstance(value, (int, float)) for value in known):
        about += f"; published {signed(metric, known[0] - known[1])}"  # type: ignore[operator]
    if (paired := paired_interval(*runs)) is not None:
        about += f"; {paired}"
    seeds = {run.seed for run in runs[0]} & {run.seed for run in runs[1]}
    ended = [run.diverged for run in (*runs[0], *runs[1]) if run.seed in seeds]
    if any(ended):
        about += f"; {sum(ended)} of {len(ended)} runs diverged"
    return f"{pair[0]} - {pair[1]}, {metric.label}: {shown(pairs, metric)} ({about})"


def _published(variant: Variant, metric: Metric) -> str:
    value = variant.published.get(metric.key, "")
    if not isinstance(value, (int, float)):
        return value or NOTHING
    spread = variant.spread.get(metric.key)
    return metric.show(value) + ("" if spread is None else f" ± {metric.show(spread)}")


def _measured(metric: Metric, runs: Sequence[Summary]) -> str:
    having = [run for run in runs if isinstance(run.metrics.get(metric.key), (int, float))]
    if not having:
        return NOTHING
    values = [run.metrics[metric.key] for run in having]
    mean, error = mean_and_error(values)
    text = metric.show(mean)
    if far_apart(values):
        text = "seeds far apart: " + ", ".join(map(metric.show, values))
    elif error is not None:
        text += f" ± {metric.show(error)}"
    if metric.low and all(metric.low in run.metrics for run in having):
        ends = (
            mean_and_error([run.metrics[end] for run in having])[0]
            for end in (metric.low, metric.high)
        )
        text += f" ({' to '.join(map(metric.show, ends))})"
    if len(having) < len(runs):
        text += f" ({len(having)} of {len(runs)} runs)"
    return text


def _epochs(runs: Sequence[Summary]) -> str:
    if not runs:
        return NOTHING
    if any(run.of_updates for run in runs):
        done, wanted = [run.updates for run in runs], [run.of_updates for run in runs]
        return f"{span(done, ',')} of {span(wanted, ',')} updates"
    return f"{span([run.epochs for run in runs], '.4g')} of {runs[0].of_epochs}"


def span(numbers: Sequence[float], form: str) -> str:
    """The least and the greatest number, or one if they look alike."""
    low, high = f"{min(numbers):{form}}", f"{max(numbers):{form}}"
    return low if low == high else f"{low} to {high}"


def _time(runs: Sequence[Summary]) -> str:
    if not runs:
        return NOTHING
    seconds = mean_and_error([run.seconds for run in runs])[0]
    return f"{seconds / 60:.1f} min" if seconds >= 60 else f"{seconds:.0f} s"


def _machine(runs: Sequence[Summary]) -> str:
    names = {f"{_device(run.hardware)}, {run.precision}": None for run in runs}
    return "; ".join(names) or NOTHING


def _device(hardware: dict[str, Any]) -> str:
    part = hardware.get("percentage")
    return f"{part}% of {hardware['device']}" if part else str(hardware["device"])


def _commits(runs: Sequence[Summary]) -> str:
    """Short hashes in the order of seeds. + marks uncommitted changes."""
    hashes = [run.origin.get("commit", "") for run in runs]
    shown = {hash[:7] + ("+" if hash.endswith("+") else "") or "none": None for hash in hashes}
    return ", ".join(shown) or NOTHING


def _remarks(
    experiment: Experiment, variant: Variant, runs: Sequence[Summary], begun: Sequence[Summary]
) -> str:
    """begun: runs that were stopped before anything was measured."""
    if not runs and not begun:
        return f"not run: {variant.hindered}" if variant.hindered else "not run yet"
    found = []
    if begun:
        which = "stopped" if not runs else f"{len(begun)} more stopped"
        found.append(f"{which} before the test ({_epochs(begun)})")
    if runs and len(runs) < experiment.seeds:
        found.append("fewer seeds than the recipe")
    followed = sum(not run.ended and 0 < run.of_updates <= run.updates for run in runs)
    if followed:
        found.append(f"twice the updates of a {variant.twice} that is not complete")
    unfinished = sum(not run.ended for run in runs) - followed
    if unfinished:
        found.append(
            "fewer epochs than the recipe"
            + ("" if unfinished == len(runs) else f" in {unfinished} of {len(runs)} runs")
        )
    diverged = sum(run.diverged for run in runs)
    if diverged:
        found.append(f"{diverged} of {len(runs)} runs diverged")
    if variant.shortened:
        found.append(variant.shortened)
    return "; ".join(found)
