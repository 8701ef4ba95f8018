"""tsm-train --seeds: repeats a training run with several seeds, then reports the mean and the standard
deviation."""

from __future__ import annotations

import dataclasses
import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..common.atomic import write_bytes

if TYPE_CHECKING:
    from ..train.loop import Trainer
    from ..train.plan import Plan

TABLE = "seeds.json"


def with_seed(plan: Plan, seed: int) -> Plan:
    """The plan with this seed for weights, data order and dropout, and with its own folder and files."""
    own = f"seed{seed}"
    loop, task = plan.loop, plan.task_config
    files: dict[str, Any] = {"save_dir": str(Path(loop.save_dir, own))}
    if loop.tensorboard_logdir:
        files["tensorboard_logdir"] = str(Path(loop.tensorboard_logdir, own))
    if loop.csv_file:
        csv = Path(loop.csv_file)
        files["csv_file"] = str(csv.with_name(f"{csv.stem}-{own}{csv.suffix}"))
    return dataclasses.replace(
        plan,
        loop=dataclasses.replace(loop, seed=seed, **files),
        task_config=dataclasses.replace(task, seed=seed) if hasattr(task, "seed") else task,
    )


def run_seeds(plan: Plan, seeds: Iterable[int]) -> Trainer:
    """Trains with one seed after another, until a signal stops a run. Returns the trainer of the last run."""
    from ..train.run import run

    found: dict[int, dict[str, float]] = {}
    for seed in seeds:
        trainer = run(with_seed(plan, seed))
        if trainer.interrupted:
            return trainer
        found[seed] = trainer.state.best_values
    if trainer.world.first:
        rows = table(found)
        if plan.loop.save:
            text = json.dumps({"seeds": list(found), **rows}, indent=2)
            write_bytes(Path(plan.loop.save_dir, TABLE), f"{text}\n".encode())
        print("\n".join(lines(rows, list(found))))
    return trainer


def table(found: Mapping[int, Mapping[str, float]]) -> dict[str, dict[str, float | list[float]]]:
    """Metric -> mean, sample standard deviation (n - 1), and the value for each seed at its best validation."""
    names = [name for name in next(iter(found.values())) if all(name in v for v in found.values())]
    rows: dict[str, dict[str, float | list[float]]] = {}
    for name in names:
        values = [values[name] for values in found.values()]
        deviation = statistics.stdev(values) if len(values) > 1 else 0.0
        rows[name] = {"mean": statistics.fmean(values), "deviation": deviation, "values": values}
    return rows


def lines(rows: Mapping[str, Mapping[str, object]], seeds: Sequence[int]) -> list[str]:
    """For people."""
    out = [f"best validation over seeds {', '.join(map(str, seeds))}:"]
    return out + [f"  {n}  {r['mean']:.4f} ± {r['deviation']:.4f}" for n, r in rows.items()]
