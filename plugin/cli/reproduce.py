"""tsm-reproduce: runs the papers' experiments and writes the page of results.

    tsm-reproduce list                             the experiments and their progress
    tsm-reproduce imdb --budget 10                 as much of it as ten minutes allow
    tsm-reproduce copy --variants 'plstm-*' --seeds 1
    tsm-reproduce all --smoke --cpu                everything at a tiny size, in a separate folder
    tsm-reproduce next --budget 28                 the most valuable unfinished runs that fit into 28 minutes
    tsm-reproduce page                             docs/results.md, docs/beyond.md and their figures

A run is one variant with one seed. If run again, the command continues from the checkpoints and skips runs that
are complete. On Ctrl-C, SIGTERM, SIGHUP, SIGUSR1 and SIGXCPU it finishes the step, saves, and exits with code
130.
"""

from __future__ import annotations

import argparse
import fnmatch
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..command.command import INTERRUPTED, UsageError, command
from ..command.flags import integer, load_plugins, make_parser, seeds, strictly

if TYPE_CHECKING:
    from ..reproduce.recipe import Experiment
    from ..reproduce.runs.runner import Conditions, Outcome, Run

RESULTS, SMOKE = "results", "runs/smoke"


@command("tsm-reproduce")
def main(argv: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    args = strictly(build_parser(), argv)
    load_plugins(args.user_dir)
    if args.name == "page":
        return write_page(args)
    from ..reproduce.recipes.catalogue import experiments

    name = "all" if args.name in ("list", "next") else args.name
    chosen = select(experiments(name), args.variants)
    if args.name == "list":
        return show_list(args, chosen)
    if args.name == "next":
        return run_next(args, chosen)
    if args.dry_run:
        raise UsageError(f"--dry-run with {args.name}; accepted: with next")
    return run(args, chosen)


def build_parser() -> argparse.ArgumentParser:
    p = make_parser("tsm-reproduce", __doc__, "tsm-reproduce NAME|all|next|list|page [flags]")
    p.add_argument("name", metavar="NAME", help="an experiment, all, next, list or page")
    what = p.add_argument_group("what")
    what.add_argument(
        "--variants",
        action="append",
        metavar="PATTERN",
        help="only matching variants, e.g. 'plstm-*'",
    )
    what.add_argument(
        "--seeds", type=seeds, metavar="N", help="seeds 1 to N; with A-B, seeds A to B"
    )
    what.add_argument(
        "--epochs", type=integer(1), metavar="N", help="stop after N of the recipe's epochs"
    )
    what.add_argument(
        "--smoke", action="store_true", help="tiny runs, to check that everything works"
    )
    how = p.add_argument_group("how")
    how.add_argument(
        "--budget", type=minutes, metavar="MINUTES", help="save and stop after this time"
    )
    how.add_argument(
        "--jobs", type=integer(1), metavar="N", help="parallel runs (default: 4 on a GPU, else 1)"
    )
    how.add_argument(
        "--dry-run", action="store_true", help="with next: print the plan and run nothing"
    )
    how.add_argument("--device", choices=("cuda", "cpu"), help="default: the GPU if there is one")
    how.add_argument("--cpu", action="store_true", help="the same as --device cpu")
    how.add_argument(
        "--bf16",
        action=argparse.BooleanOptionalAction,
        help="matrix products in bfloat16 (default on a GPU: as in the recipe)",
    )
    how.add_argument("--user-dir", metavar="DIR", help="folder with your own cells, tasks, ...")
    where = p.add_argument_group("where")
    where.add_argument("--results", type=Path, metavar="DIR", help=f"default: {RESULTS}")
    where.add_argument(
        "--data-bin", type=Path, metavar="DIR", help="preprocessed data (default: data-bin)"
    )
    where.add_argument(
        "--data", type=Path, metavar="DIR", help="official files (default: $TSM_DATA)"
    )
    where.add_argument(
        "--docs", type=Path, default=Path("docs"), metavar="DIR", help="output folder of page"
    )
    where.add_argument("--no-figures", action="store_true", help="with page: write only the text")
    return p


def minutes(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r}; accepted: a number of minutes above 0")
    return value


def select(chosen: list[Experiment], patterns: list[str] | None) -> list[Experiment]:
    """The experiments, reduced to the variants that match a pattern."""
    if not patterns:
        return chosen
    found = []
    for experiment in chosen:
        fitting = tuple(
            v for v in experiment.variants if any(fnmatch.fnmatch(v.name, p) for p in patterns)
        )
        if fitting:
            found.append(replace(experiment, variants=fitting, pairs=()))
    if not found:
        names = sorted({v.name for experiment in chosen for v in experiment.variants})
        raise UsageError(f"--variants {' '.join(patterns)} matches none of {', '.join(names)}")
    return found


def conditions_of(args: argparse.Namespace) -> Conditions:
    from ..reproduce.data import BIN, DataRoom
    from ..reproduce.runs.runner import Conditions

    results = args.results or Path(SMOKE if args.smoke else RESULTS)
    if args.smoke and os.path.realpath(results) == os.path.realpath(RESULTS):
        raise UsageError(
            f"--smoke --results {results}: its tiny runs would count as complete ones there; "
            "accepted: another folder"
        )
    data_bin = args.data_bin or (results / ".data" if args.smoke else Path(BIN))
    return Conditions(
        results=results,
        data=DataRoom(data_bin, args.data, small=args.smoke),
        cpu=uses_cpu(args),
        bf16=args.bf16,
        epochs=args.epochs,
        smoke=args.smoke,
        deadline=time.monotonic() + 60 * args.budget if args.budget else None,
        user_dir=args.user_dir,
    )


def uses_cpu(args: argparse.Namespace) -> bool:
    import torch

    if args.cpu and args.device == "cuda":
        raise UsageError("--cpu and --device cuda were both given; accepted: one of them")
    if args.device == "cuda" and not torch.cuda.is_available():
        raise UsageError("--device cuda: torch sees no GPU")
    return args.cpu or args.device == "cpu" or not torch.cuda.is_available()


def seeds_of(args: argparse.Namespace) -> range | None:
    return args.seeds or (range(1, 2) if args.smoke else None)


def run(args: argparse.Namespace, chosen: list[Experiment]) -> int:
    from ..reproduce.runs.workers import default_jobs, runs_of

    conditions = conditions_of(args)
    runs = runs_of(chosen, seeds_of(args), not conditions.cpu)
    return run_all(
        chosen, runs, conditions, args.jobs or default_jobs(not conditions.cpu, len(runs))
    )


def run_next(args: argparse.Namespace, chosen: list[Experiment]) -> int:
    """Performs the most valuable runs that fit into the budget, including their final measurements."""
    from ..reproduce.runs.schedule import MEASURING, schedule
    from ..reproduce.runs.workers import GPU_JOBS, default_jobs, divides_gpu
    from ..reproduce.store import Store

    if args.budget is None or args.budget <= MEASURING:
        raise UsageError(f"next needs --budget MINUTES, more than {MEASURING:g}")
    if args.epochs is not None:
        raise UsageError(
            "--epochs with next; accepted: next alone, since the recipes set the epochs"
        )
    conditions = conditions_of(args)
    if conditions.deadline is not None:  # leaves time to measure a run that the deadline stops
        conditions = replace(conditions, deadline=conditions.deadline - 60 * MEASURING)
    jobs = args.jobs or default_jobs(not conditions.cpu, GPU_JOBS)
    store = Store(conditions.results)
    budget, divides = args.budget - MEASURING, divides_gpu()
    plan = schedule(
        chosen, seeds_of(args), store, conditions.data, budget, jobs, args.smoke, divides
    )
    print(plan.text(), flush=True)
    if args.dry_run or not plan.runs:
        return 0
    homes = {item.variant.home for item in plan.runs}
    return run_all([e for e in chosen if e.name in homes], plan.runs, conditions, jobs)


def run_all(shown: list[Experiment], runs: list[Run], conditions: Conditions, jobs: int) -> int:
    """Performs the runs and prints the tables of their experiments."""
    from ..reproduce.runs.workers import perform_all
    from ..reproduce.store import Store
    from ..reproduce.tables import screen

    report = Report(len(runs))
    whole = perform_all(runs, conditions, jobs, report.ended, report.say)
    store = Store(conditions.results)
    for experiment in shown:
        report.say("\n" + screen(experiment, store))
    report.say(f"\n{report.summary()}; summaries in {conditions.results}")
    if not whole:
        report.say("interrupted; run the same command again to continue from the checkpoints")
        return INTERRUPTED
    return 1 if report.counts.get("failed") else 0


class Report:
    """Prints progress, and counts runs by how they ended."""

    def __init__(self, total: int) -> None:
        self.total, self.began, self.counts = total, time.monotonic(), dict[str, int]()

    def say(self, text: str) -> None:
        print(text, flush=True)

    def ended(self, run: Run, outcome: Outcome) -> None:
        self.counts[outcome.status] = self.counts.get(outcome.status, 0) + 1
        done = sum(self.counts.values())
        parts = [f"[{done}/{self.total}, {self.minutes()}] {run.name}: {outcome.status}"]
        if outcome.text:
            parts.append(outcome.text)
        if outcome.summary is not None:
            s = outcome.summary
            parts.append(f"{s.updates:,} updates, {s.seconds:,.0f} s")
            parts += [f"{k} {v:.5g}" for k, v in s.metrics.items() if headline(k, v)]
        self.say(", ".join(parts))

    def minutes(self) -> str:
        whole, rest = divmod(int(time.monotonic() - self.began), 60)
        return f"{whole}:{rest:02}"

    def summary(self) -> str:
        found = [f"{count} {status}" for status, count in sorted(self.counts.items())]
        rest = self.total - sum(self.counts.values())
        return ", ".join([*found, f"{rest} not started, or already complete"] if rest else found)


def headline(name: str, value: Any) -> bool:
    """Whether the line for a finished run shows this metric."""
    shown = ("accuracy", "bpc", "ppl", "loss", "slope", "seconds_an_epoch")
    return isinstance(value, (int, float)) and name.removeprefix("test_") in shown


def show_list(args: argparse.Namespace, chosen: list[Experiment]) -> int:
    from ..reproduce.rows import counts_of, of_asked
    from ..reproduce.store import Store

    store = Store(args.results or Path(RESULTS))
    for experiment in chosen:
        counts = counts_of(experiment, store)
        complete = of_asked(counts.complete, counts.asked)
        print(f"{experiment.name:<26}{complete:>10}  {experiment.title}")
        print(" " * 26 + "  " + " ".join(v.name for v in experiment.variants))
    return 0


def write_page(args: argparse.Namespace) -> int:
    from ..reproduce.figures import draw, drawable
    from ..reproduce.page import write_pages
    from ..reproduce.recipes.catalogue import experiments
    from ..reproduce.store import Store

    store = Store(args.results or Path(RESULTS))
    if not store.root.is_dir():
        raise UsageError(f"--results {store.root}: no such folder")
    for path in write_pages(store, args.docs, experiments()):
        print(path)
    for experiment in [] if args.no_figures else experiments():
        for kind in drawable(experiment, store):
            print(draw(experiment, kind, store, args.docs / "img"))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
