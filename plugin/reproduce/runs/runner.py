"""One run: continues a variant with one seed to its end, its goal, or a stop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...common.atomic import write_bytes
from ...train.checkpoint import load_weights, read_checkpoint
from ...train.distributed import World, join_world
from ...train.loop import NotFinite, Trainer
from ...train.plan import Plan
from ...train.progress import Progress
from ...train.run import backend, start_trainer
from ...train.saver import BEST, LAST
from ..data import DataRoom, NoData
from ..history import History
from ..measures.analyses import ANALYSES
from ..measures.catalogue import Found, Subject, measure
from ..recipe import Variant
from ..store import DIVERGED, Store, Summary
from .halt import Halt, goal_of
from .machine import check_part
from .origin import origin
from .plan import plan_of
from .summaries import compute, summarise

Say = Callable[[str], None]
HISTORY = "history.jsonl"


@dataclass(frozen=True)
class Conditions:
    """Options for all runs: the folder of results, the device, the deadline (time.monotonic()), ..."""

    results: Path
    data: DataRoom
    cpu: bool = False
    bf16: bool | None = None  # None: as in the variant, if on a GPU
    epochs: int | None = None
    smoke: bool = False
    deadline: float | None = None
    user_dir: str | None = None  # also loaded by worker processes


@dataclass(frozen=True)
class Run:
    """A variant with a seed.

    smoke    settings of its experiment for a tiny run
    epochs   limit in epochs, as with --epochs (None: that of the conditions)
    parts    as in Worth; 1 if the variant must be alone
    """

    variant: Variant
    seed: int
    smoke: Mapping[str, Any]
    epochs: int | None = None
    parts: int = 0

    @property
    def name(self) -> str:
        return f"{self.variant.home}/{self.variant.name} seed {self.seed}"


@dataclass(frozen=True)
class Outcome:
    """status: done, kept (it was done before), stopped, skipped, interrupted or failed. text: an
    explanation."""

    status: str
    text: str = ""
    summary: Summary | None = None


def finished(run: Run, store: Store) -> bool:
    """Whether nothing is left to do."""
    summary = store.read(run.variant, run.seed)
    return summary is not None and summary.ended and not lacks_analyses(run.variant, summary)


def lacks_analyses(variant: Variant, summary: Summary) -> bool:
    """Whether the run is older than the analyses among its variant's measures: it has to be run again."""
    wanted = set(variant.measures) & set(ANALYSES)
    return bool(wanted) and not summary.origin and not wanted & set(summary.details)


def perform(
    run: Run, conditions: Conditions, asked: Callable[[], bool] = lambda: False, say: Say = print
) -> Outcome:
    """Starts or continues the run and writes its summary."""
    store = Store(conditions.results)
    if finished(run, store):
        return Outcome("kept", "complete already", store.read(run.variant, run.seed))
    if lacks_reference(run, conditions, store):
        return Outcome("skipped", f"needs {run.variant.twice} seed {run.seed} first")
    try:
        data = conditions.data.folder(run.variant.data)
    except NoData as error:
        return Outcome("skipped", str(error))
    if run.variant.program != "train":
        settings = {**run.variant.settings, **(run.smoke if conditions.smoke else {})}
        summary = compute(run.variant, run.seed, settings, data)
        store.write(run.variant, summary)
        return Outcome("done", "", summary)
    with join_world(conditions.cpu) as world:
        summary, politely = _train(run, conditions, store, data, world, asked, say)
    old = store.read(run.variant, run.seed)
    if old is not None and not summary.complete and summary.updates < old.updates:
        text = f"{summary.updates:,} updates; the summary with {old.updates:,} is kept"
        return Outcome("stopped" if politely else "interrupted", text, old)
    store.write(run.variant, summary)
    status = "done" if summary.complete else "stopped"
    return Outcome(status if politely else "interrupted", summary.stopped, summary)


def reference_of(run: Run, store: Store) -> Summary | None:
    """The summary of the run that limits this one to twice its updates; None if that run has not started."""
    found = store.read(replace(run.variant, name=run.variant.twice), run.seed)
    return found if found is not None and found.updates else None


def lacks_reference(run: Run, conditions: Conditions, store: Store) -> bool:
    """Whether the length of this run is still unknown."""
    wanted = bool(run.variant.twice) and not conditions.smoke
    return wanted and reference_of(run, store) is None


def limits(run: Run, conditions: Conditions, store: Store) -> tuple[int, int, bool]:
    """The limits in epochs and updates (0: none), and whether they are those of the whole recipe."""
    v = run.variant
    epochs, updates, whole = v.epochs, v.updates, True
    needed: float = epochs
    if v.twice and not conditions.smoke:
        reference = reference_of(run, store)
        assert reference is not None  # else the run is skipped
        epochs, updates, whole = 0, 2 * reference.updates, reference.ended
        needed = 2 * reference.epochs
    asked = epochs_asked(run, conditions)
    if asked is not None and asked < needed:
        epochs, whole = asked, False
    return epochs, updates, whole


def epochs_asked(run: Run, conditions: Conditions) -> int | None:
    return conditions.epochs if run.epochs is None else run.epochs


def _train(
    run: Run,
    conditions: Conditions,
    store: Store,
    data: str,
    world: World,
    asked: Callable[[], bool],
    say: Say,
) -> tuple[Summary, bool]:
    """Trains, then measures; returns the summary, and False if the run was interrupted, else True."""
    check_part(world.device)
    folder = store.folder(run.variant, run.seed)
    folder.mkdir(parents=True, exist_ok=True)
    if run.variant.continues is not None and not conditions.smoke:
        take_over(store.folder(run.variant.continues, run.seed), folder)
    on_gpu = world.device.type == "cuda"
    epochs, updates, whole = limits(run, conditions, store)
    plan = plan_of(
        run.variant,
        run.seed,
        str(folder),
        data,
        cpu=not on_gpu,
        bf16=on_gpu and run.variant.bf16 if conditions.bf16 is None else conditions.bf16,
        epochs=epochs,
        updates=updates,
        smoke=run.smoke if conditions.smoke else None,
    )
    goal = None if conditions.smoke else run.variant.goal
    halt = Halt(conditions.deadline, asked, goal_of(plan.loop, goal))
    history = History(
        folder / HISTORY, halt.look, lambda values: say(f"{run.name}: {shown(values)}")
    )

    def begins(trainer: Trainer) -> None:
        how = backend(trainer.model, world.device, plan.loop.bf16)
        say(f"{run.name}: from update {trainer.state.update:,} on {world.device}, {how}")

    trainer, why, early = train_until(plan, world, halt, history, begins)
    found: Found = ({}, {})
    best = folder / BEST
    politely = halt.politely  # read once, since a signal may still come
    if politely and best.is_file():
        load_weights(trainer.model, read_checkpoint(best)["model"], best)
        found = measure(run.variant.measures, Subject(trainer, best, history, conditions.smoke))
    at_its_end = halt.goal_reached or why.startswith(DIVERGED) or (whole and not early)
    complete = at_its_end and politely  # otherwise it still has to be measured
    made = origin(run.variant.home, run.variant.name, run.seed, data, flags_of(run, conditions))
    summary = summarise(run.variant, trainer, history, found, complete, why, updates, made)
    return summary, politely


def take_over(source: Path, folder: Path) -> None:
    """Copies the state of another run, if there is one and this run has none. LAST is the last file: without it
    a run has not begun."""
    if (source / LAST).is_file() and not (folder / LAST).is_file():
        for path in (source / name for name in (HISTORY, BEST, LAST)):
            if path.is_file():  # BEST comes with the first validation
                write_bytes(folder / path.name, path.read_bytes())


def flags_of(run: Run, conditions: Conditions) -> tuple[str, ...]:
    """The flags of the command that change a run's result."""
    asked = epochs_asked(run, conditions)
    epochs = () if asked is None else ("--epochs", str(asked))
    precision = {None: (), True: ("--bf16",), False: ("--no-bf16",)}[conditions.bf16]
    return (*epochs, *precision, *(("--smoke",) if conditions.smoke else ()))


def train_until(
    plan: Plan, world: World, halt: Halt, history: History, begins: Callable[[Trainer], None]
) -> tuple[Trainer, str, bool]:
    """Trains to the end or a stop; returns the trainer, why it ended, and whether it was stopped early."""
    early = False
    progress = Progress(plan.loop, world.first)
    progress.writers.append(history)
    try:
        with start_trainer(plan, world, progress) as trainer:
            trainer.stop = halt
            history.begin(trainer.state.update, trainer.state.seconds)
            begins(trainer)
            why = trainer.train()
            early = trainer.asked_to_stop
    except NotFinite as error:
        why = f"{DIVERGED}: {error}".partition(";")[0]
    finally:
        progress.close()
    return trainer, f"{halt.GOAL} is reached" if halt.goal_reached else why, early


def shown(values: Mapping[str, Any]) -> str:
    """The progress of a run in one line."""
    names = ("epoch", "update", "loss", "accuracy", "ppl", "bpc", "left")
    return ", ".join(
        f"{n} {values[n]:,.4g}" for n in names if isinstance(values.get(n), (int, float))
    )
