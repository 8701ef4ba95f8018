"""Chooses runs for a limited GPU time: the most valuable unfinished ones that fit into a budget.

The time of a run is estimated from other seeds of its variant, or else taken from the recipe (`Worth`). Runs
that fill the GPU are performed one by one, or a few at once on equal parts of it, the others in `jobs` parallel
lanes. A run that gets twice the updates of another comes after it. Packing is greedy, by rank and then by seed.
A run that does not fit is skipped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from ..data import DataRoom, NoData
from ..judged import SEEDS
from ..paired import mean_and_error
from ..recipe import EXPERIMENTS, Experiment, Worth
from ..store import Store, Summary
from .runner import Run, finished, lacks_analyses, reference_of
from .workers import runs_of

LATER = 5  # added to the rank of seeds that the rules for verdicts do not need
MEASURING = 0.5  # minutes for the start of a run and for its final measurements
SMOKE = 0.05  # minutes per tiny run
TOO_LONG = "too long"


@dataclass(frozen=True)
class Item:
    run: Run
    rank: int
    minutes: float

    @property
    def text(self) -> str:
        epochs = "" if self.run.epochs is None else f", {self.run.epochs} epochs"
        beside = (
            ["", ", alone"][self.run.parts] if self.run.parts < 2 else f", {self.run.parts} at once"
        )
        return f"{self.rank:>4} {self.minutes:>6.1f}  {self.run.name}{epochs}{beside}"


@dataclass
class Schedule:
    """The runs to perform, in order; their total time; and the number of runs left out, by reason."""

    budget: float
    jobs: int
    items: list[Item] = field(default_factory=list)
    minutes: float = 0.0
    left: dict[str, int] = field(default_factory=dict)

    @property
    def runs(self) -> list[Run]:
        return [item.run for item in self.items]

    def leave(self, reason: str) -> None:
        self.left[reason] = self.left.get(reason, 0) + 1

    def text(self) -> str:
        """The plan, for the screen."""
        lines = [
            f"rank minutes (estimated {self.minutes:.1f} of {self.budget:g}, {self.jobs} at once)"
        ]
        lines += [item.text for item in self.items]
        lines += [f"left, {reason}: {count}" for reason, count in sorted(self.left.items())]
        return "\n".join(lines)


def schedule(
    chosen: Sequence[Experiment],
    seeds: range | None,
    store: Store,
    data: DataRoom,
    budget: float,
    jobs: int,
    smoke: bool = False,
    divides: bool = False,
) -> Schedule:
    """Schedules the chosen experiments within `budget` minutes. divides: the GPU can be divided into parts."""
    found = Schedule(budget, jobs)
    items = _items(chosen, seeds, store, smoke, jobs if divides else 1)
    return pack(_ready(items, data, found), store, found, smoke)


def _items(
    chosen: Sequence[Experiment], seeds: range | None, store: Store, smoke: bool, most: int
) -> list[Item]:
    """All unfinished runs with a rank, the most valuable first. most: parts of the GPU."""
    items = []
    for run in runs_of(chosen, seeds):
        worth = EXPERIMENTS.get(run.variant.home).worth_of(run.variant)
        if worth.rank and not _done(run, worth, store):
            parts = run.parts or min(worth.parts, most)
            planned = replace(run, epochs=worth.enough or None, parts=parts)
            minutes = SMOKE if smoke else estimate(planned, worth, store)
            rank = worth.rank + (LATER if run.seed > SEEDS else 0)
            items.append(Item(planned, rank, minutes))
    return sorted(items, key=lambda item: (item.rank, item.run.seed))


def _done(run: Run, worth: Worth, store: Store) -> bool:
    if finished(run, store):
        return True
    summary = store.read(run.variant, run.seed)
    if summary is None or lacks_analyses(run.variant, summary):
        return False
    return worth.is_enough(summary.epochs)


def estimate(run: Run, worth: Worth, store: Store) -> float:
    """The minutes of the whole run, from the variant's summaries if there are any."""
    kept = [s for s in store.all_of(run.variant) if s.seconds > 0 and s.updates > 0]
    if not kept:
        return worth.minutes
    mean, _ = mean_and_error([s.seconds * _longer(s, run.epochs) for s in kept])
    return mean / 60 + MEASURING


def _longer(summary: Summary, epochs: int | None) -> float:
    """How many times longer the planned run is than the one in the summary."""
    if summary.ended:
        return 1.0
    if epochs is None and summary.of_updates:
        return max(1.0, summary.of_updates / summary.updates)
    return max(1.0, (epochs or summary.of_epochs) / summary.epochs) if summary.epochs else 1.0


def _ready(items: Iterable[Item], data: DataRoom, found: Schedule) -> list[Item]:
    """Prepares the data; returns the runs whose data is available."""
    missing: dict[str, bool] = {}
    ready = []
    for item in items:
        name = item.run.variant.data
        if name not in missing:
            missing[name] = _lacks(name, data)
        if missing[name]:
            found.leave(f"data not available ({name})")
        else:
            ready.append(item)
    return ready


def _lacks(name: str, data: DataRoom) -> bool:
    try:
        data.folder(name)
    except NoData:
        return True
    return False


class Lanes:
    """The time reserved for runs, in lanes beside each other. Runs on equal parts of the GPU have one lane per
    part, the others `jobs`. These groups of lanes take turns."""

    def __init__(self, budget: float, jobs: int) -> None:
        self.budget, self.jobs = budget, jobs
        self.groups: dict[int, list[float]] = {}  # parts -> the end of each lane

    @property
    def minutes(self) -> float:
        return sum(map(max, self.groups.values()))

    def take(self, parts: int, minutes: float, after: float) -> float | None:
        """The end of a run that starts at `after` or later in its group; None if it does not fit."""
        ends = self.groups.get(parts) or [0.0] * (parts or self.jobs)
        lane = min(range(len(ends)), key=ends.__getitem__)
        end = max(ends[lane], after) + minutes
        others = self.minutes - max(self.groups.get(parts, [0.0]))
        if others + max(end, *ends) > self.budget:
            return None
        ends[lane] = end
        self.groups[parts] = ends
        return end


def pack(items: Iterable[Item], store: Store, found: Schedule, smoke: bool = False) -> Schedule:
    """Fills the budget. Runs with the same number of parts are a group; the group with the most valuable first
    item runs first."""
    lanes = Lanes(found.budget, found.jobs)
    ends: dict[tuple[str, str, int], float] = {}
    groups: dict[int, list[Item]] = {}
    for item in items:
        run, v = item.run, item.run.variant
        after = ends.get((v.home, v.twice, run.seed))
        if v.twice and not smoke and after is None and reference_of(run, store) is None:
            found.leave("another run is needed first")
        elif (end := lanes.take(run.parts, item.minutes, after or 0.0)) is None:
            found.leave(TOO_LONG)
        else:
            ends[v.home, v.name, run.seed] = end
            groups.setdefault(run.parts, []).append(item)
    # Of two groups with the same rank, the one that shares the GPU undivided comes last.
    order = sorted(groups, key=lambda parts: (groups[parts][0].rank, parts == 0))
    found.items = [item for parts in order for item in groups[parts]]
    found.minutes = lanes.minutes
    return found
