"""One run: a variant with one seed, from where it stands to its end, its goal, or a stop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..models import count_parameters
from ..train.checkpoint import load_weights, read_checkpoint
from ..train.distributed import World, join_world
from ..train.loop import NotFinite, Trainer
from ..train.progress import Progress
from ..train.run import Plan, backend, build_trainer
from ..train.saver import BEST
from .data import DataRoom, NoData
from .halt import Halt
from .history import History, plain, thinned
from .machine import hardware, versions
from .measures import Found, Subject, measure
from .plan import plan_of
from .programs import PROGRAMS
from .recipe import Variant
from .store import Store, Summary

Say = Callable[[str], None]


@dataclass(frozen=True)
class Conditions:
    """How runs are made: where results go, on what, and until when (time.time())."""

    results: Path
    data: DataRoom
    cpu: bool = False
    bf16: bool | None = None  # None: as the variant says, where there is a GPU
    epochs: int | None = None
    smoke: bool = False
    deadline: float | None = None
    user_dir: str | None = None  # what other processes have to load, too


@dataclass(frozen=True)
class Run:
    """A variant with a seed; smoke: its experiment's settings for a tiny size."""

    variant: Variant
    seed: int
    smoke: Mapping[str, Any]

    @property
    def name(self) -> str:
        return f"{self.variant.home}/{self.variant.name} seed {self.seed}"


@dataclass(frozen=True)
class Outcome:
    """done, kept (it was done before), stopped, skipped; and a sentence."""

    status: str
    text: str = ""
    summary: Summary | None = None


def finished(run: Run, store: Store) -> bool:
    """Whether nothing is left to do."""
    summary = store.read(run.variant, run.seed)
    return summary is not None and summary.complete


def perform(
    run: Run, conditions: Conditions, asked: Callable[[], bool] = lambda: False, say: Say = print
) -> Outcome:
    """Make the run, or go on with it, and write its summary."""
    store = Store(conditions.results)
    if finished(run, store):
        return Outcome("kept", "complete already", store.read(run.variant, run.seed))
    if run.variant.program != "train":
        summary = _compute(run, conditions)
        store.write(run.variant, summary)
        return Outcome("done", "", summary)
    try:
        data = conditions.data.folder(run.variant.data)
    except NoData as error:
        return Outcome("skipped", str(error))
    with join_world(conditions.cpu) as world:
        summary, politely = _train(run, conditions, store, data, world, asked, say)
    old = store.read(run.variant, run.seed)
    if old is not None and not summary.complete and summary.updates < old.updates:
        text = f"{summary.updates:,} updates; the summary with {old.updates:,} is kept"
        return Outcome("stopped", text, old)
    store.write(run.variant, summary)
    status = "done" if summary.complete else "stopped"
    return Outcome(status if politely else "interrupted", summary.stopped, summary)


def limits(run: Run, conditions: Conditions, store: Store) -> tuple[int, int, bool]:
    """Epochs and updates to end after (0: no limit), and whether that is the whole recipe."""
    v = run.variant
    epochs, updates, whole = v.epochs, v.updates, True
    if v.twice and not conditions.smoke:
        reference = store.read(replace(v, name=v.twice), run.seed)
        if reference is not None:
            updates = 2 * reference.updates
            whole = reference.complete
    if conditions.epochs is not None and conditions.epochs < epochs:
        epochs, whole = conditions.epochs, False
    return epochs, updates, whole


def _train(
    run: Run,
    conditions: Conditions,
    store: Store,
    data: str,
    world: World,
    asked: Callable[[], bool],
    say: Say,
) -> tuple[Summary, bool]:
    folder = store.folder(run.variant, run.seed)
    folder.mkdir(parents=True, exist_ok=True)
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
    halt = Halt(conditions.deadline, asked)
    goal = None if conditions.smoke else run.variant.goal

    def look(row: dict[str, Any]) -> None:
        best = row.get(plan.loop.best_checkpoint_metric)
        if goal is not None and best is not None:
            maximize = plan.loop.maximize_best_checkpoint_metric
            halt.goal_reached = best >= goal if maximize else best <= goal

    history = History(
        folder / "history.jsonl", look, lambda values: say(f"{run.name}: {_shown(values)}")
    )
    progress = Progress(plan.loop, world.first)
    progress.writers.append(history)
    trainer = build_trainer(plan, world, progress)
    trainer.stop = halt
    history.begin(trainer.state.update, trainer.state.seconds)
    reached_end = False
    try:
        why = trainer.train()
        reached_end = not trainer.asked_to_stop
    except NotFinite as error:
        why = f"diverged: {error}".partition(";")[0]
        reached_end = True
    finally:
        progress.close()
    found: Found = ({}, {})
    best = folder / BEST
    if halt.politely and best.is_file():
        load_weights(trainer.model, read_checkpoint(best)["model"], best)
        subject = Subject(trainer, best, history, conditions.smoke)
        found = measure(run.variant.measures, subject)
    complete = halt.goal_reached or (reached_end and whole)
    if halt.goal_reached:
        why = f"{plan.loop.best_checkpoint_metric} of {goal} is reached"
    summary = _summary(run, trainer, plan, history, found, complete, why, updates)
    return summary, halt.politely


def _summary(
    run: Run,
    trainer: Trainer,
    plan: Plan,
    history: History,
    found: Found,
    complete: bool,
    why: str,
    updates: int,
) -> Summary:
    s, device = trainer.state, trainer.world.device
    an_epoch = trainer.task.batches_per_epoch(s.epoch) / plan.loop.update_freq
    best: dict[str, Any] = {f"valid_{name}": value for name, value in s.best_values.items()}
    if best:
        best["best_update"] = s.best_update
    pace = history.pace()
    return Summary(
        home=run.variant.home,
        variant=run.variant.name,
        seed=run.seed,
        complete=complete,
        stopped=why,
        epochs=round(s.epoch - 1 + s.index / an_epoch, 3),
        of_epochs=run.variant.epochs,
        updates=s.update,
        of_updates=updates,
        metrics=plain({**best, **found[0]}),
        seconds=round(s.seconds, 1),
        precision="bfloat16" if plan.loop.bf16 else "float32",
        backend=backend(trainer.model, device, plan.loop.bf16),
        hardware={**hardware(device), **({} if pace is None else {"ms_an_update": 1e3 * pace})},
        versions=versions(),
        parameters=count_parameters(trainer.model),
        config=_config(trainer.settings),
        history=thinned(history.rows),
        details=found[1],
    )


def _config(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings without paths and without what only shapes the log."""
    parts = {name: dict(settings[name]) for name in ("model", "task", "optimizer", "loop")}
    parts["task"].pop("data", None)
    kept = ("clip_norm", "alpha", "beta", "update_freq", "bf16", "best_checkpoint_metric")
    parts["loop"] = {name: parts["loop"][name] for name in kept}
    return {**parts, "criterion": settings["criterion"]}


def _compute(run: Run, conditions: Conditions) -> Summary:
    """A run without a training."""
    import time

    import torch

    began = time.monotonic()
    settings = run.smoke if conditions.smoke else run.variant.settings
    metrics, details = PROGRAMS.get(run.variant.program)(run.variant.name, settings)
    return Summary(
        home=run.variant.home,
        variant=run.variant.name,
        seed=run.seed,
        complete=True,
        stopped="computed",
        epochs=0.0,
        of_epochs=0,
        updates=run.variant.updates,
        of_updates=run.variant.updates,
        metrics=plain(metrics),
        seconds=round(time.monotonic() - began, 1),
        precision="float64",
        backend="none",
        hardware=hardware(torch.device("cpu")),
        versions=versions(),
        details=details,
    )


def _shown(values: Mapping[str, Any]) -> str:
    names = ("epoch", "update", "loss", "accuracy", "ppl", "bpc", "left")
    shown = [f"{n} {values[n]:,.4g}" for n in names if isinstance(values.get(n), (int, float))]
    return ", ".join(shown)
