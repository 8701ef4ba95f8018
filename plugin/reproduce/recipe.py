"""The parts of a reproduction: an experiment has variants, and a variant is run with several seeds.

A variant has the settings of one training run, spelled like the flags of `tsm-train`, and the published
numbers. Experiments may share variants: a run belongs to the variant's `home` and is performed only once.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..registry import Registry

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True)
class Metric:
    """A number in a run's summary, which tables show as value * scale, rounded to `digits`.

    low, high: the keys of its interval, if there is one. level: the metric is the number of updates until the
    validation accuracy was this high; a run that did not get there has no such number (paired.py). guess: its
    value for a model that guesses, if two models may be compared that have learned nothing.
    """

    key: str
    label: str
    scale: float = 1.0
    digits: int = 2
    low: str = ""
    high: str = ""
    level: float = 0.0
    guess: float | None = None

    def show(self, value: float) -> str:
        return f"{value * self.scale:,.{self.digits}f}"


@dataclass(frozen=True)
class Variant:
    """One row: what is trained, for how long, and what was published.

    data        a name of `tsm-preprocess --dataset`; empty if the task generates its data
    epochs      epochs of the recipe; if a run is stopped earlier, its row says so
    updates     a limit in updates instead of, or besides, epochs (0: none)
    schedule    name of the learning-rate schedule
    goal        training ends when the best checkpoint's metric is as good as this
    twice       another variant of the same home: this one gets at most twice its updates
    continues   a variant with the same settings, whose runs may end earlier: this one starts from its
                checkpoint, if there is one
    measures    measurements at the end of training (the folder measures)
    published   metric key -> number, or words if the paper only has a curve
    spread      metric key -> the deviation or error that the paper gives with its number
    shortened   remark in its row: how the data is smaller than the paper's
    hindered    remark in its row: why it has not been run
    bf16        matrix products in bfloat16 if there is a GPU
    program     "train", or the name of a computation without training (runs/programs.py)
    alone       no other run at the same time, because its time is measured
    """

    home: str
    name: str
    label: str
    arch: str = ""
    task: str = ""
    data: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    optimizer: str = "adam"
    schedule: str = "fixed"
    epochs: int = 0
    updates: int = 0
    goal: float | None = None
    twice: str = ""
    continues: Variant | None = None
    measures: tuple[str, ...] = ("test",)
    published: Mapping[str, float | str] = field(default_factory=dict)
    spread: Mapping[str, float] = field(default_factory=dict)
    shortened: str = ""
    hindered: str = ""
    bf16: bool = True
    program: str = "train"
    alone: bool = False

    def __post_init__(self) -> None:
        for value in (self.home, self.name):
            if not _NAME.fullmatch(value):
                raise ValueError(f"name {value!r}; accepted: letters, digits, '.', '-' and '_'")


@dataclass(frozen=True)
class Worth:
    """The value of a run to `tsm-reproduce next` (runs/schedule.py).

    rank     1 comes first; 0: runs only if a command names it
    minutes  duration of one run on an H200, to its end or to `enough`; existing summaries take precedence
    parts    how many of them share the GPU at once, each with an equal part of it (under NVIDIA MPS); 1: it
             runs alone; 0: it leaves the GPU idle, so any number of runs share it undivided
    enough   epochs that are enough to decide the question (0: all of the recipe's)
    """

    rank: int = 0
    minutes: float = 0.0
    parts: int = 0
    enough: int = 0

    def is_enough(self, epochs: float) -> bool:
        return 0 < self.enough <= epochs


NOTHING = Worth()


@dataclass(frozen=True)
class Experiment:
    """An experiment: a table of a paper.

    source   which paper and table
    recipe   one or two sentences for the page
    metrics  the columns, the most important first
    pairs    variants (a, b) whose difference a - b over common seeds is shown
    notes    remarks for the page, in Markdown
    figures  names of drawings (drawings.py)
    smoke    settings that make every variant tiny
    worth    patterns of variant names -> worth of their runs; the first match counts
    page     the page that shows it: "results", or "beyond" for our own questions
    hypothesis   what is expected, written before the first run
    answer   of a question of our own, in a few words; "" while it is open
    """

    name: str
    title: str
    source: str
    recipe: str
    variants: tuple[Variant, ...]
    metrics: tuple[Metric, ...]
    seeds: int = 1
    pairs: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    figures: tuple[str, ...] = ()
    smoke: Mapping[str, Any] = field(default_factory=dict)
    worth: Mapping[str, Worth] = field(default_factory=dict)
    page: str = "results"
    hypothesis: str = ""
    answer: str = ""

    def __post_init__(self) -> None:
        names = [variant.name for variant in self.variants]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"experiment {self.name!r} has two variants {name!r}")
        for pair in self.pairs:
            for name in pair:
                self.variant(name)

    def variant(self, name: str) -> Variant:
        for variant in self.variants:
            if variant.name == name:
                return variant
        raise ValueError(f"experiment {self.name!r} has no variant {name!r}")

    def worth_of(self, variant: Variant) -> Worth:
        fitting = (w for pattern, w in self.worth.items() if fnmatch.fnmatch(variant.name, pattern))
        return next(fitting, NOTHING)


ELSEWHERE = (50, 100, 200, 300, 400, 500, 750, 1000, 1500, 2000)
"""The lengths T of the copy task at which generalisation is tested."""
RATES = (4, 2, 0.5)
"""Sampling rates at which waves are tested, as multiples of the rate in training."""
WINDOWS = (100, 1_000, 10_000, 100_000, 1_000_000)
"""Lengths of the windows in which a text is scored, in tokens."""
EXPERIMENTS: Registry[Experiment] = Registry("experiment")


def register(experiment: Experiment) -> Experiment:
    """Register an experiment by its name."""
    return EXPERIMENTS.register(experiment.name)(experiment)
