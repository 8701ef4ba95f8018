"""Many runs: which come next, one after the other in this process or several at once in others.

Several processes on one GPU help where a run alone leaves it idle (short sequences, small batches):
the host's work of one overlaps with the kernels of another.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import replace
from typing import Any

from ..train.signals import StopRequest
from .recipe import Experiment
from .runner import Conditions, Outcome, Run, Say, finished, perform
from .store import Store

Done = Callable[[Run, Outcome], None]
GPU_JOBS = 4
_stop: Any = None  # in a worker: the event that asks all runs to stop


def runs_of(chosen: Sequence[Experiment], seeds: int | None) -> list[Run]:
    """All runs, each once: every variant with its first seed, then with its second, ..."""
    found: dict[tuple[str, str, int], Run] = {}
    for experiment in chosen:
        for seed in range(1, (seeds or experiment.seeds) + 1):
            for variant in experiment.variants:
                key = (variant.home, variant.name, seed)
                found.setdefault(key, Run(variant, seed, experiment.smoke))
    return list(found.values())


def default_jobs(gpu: bool, count: int) -> int:
    """Processes at once: on a CPU one, whose kernels use all cores."""
    return max(1, min(GPU_JOBS, count)) if gpu else 1


class Queue:
    """Runs in order, but one that is limited by another's updates waits until that one has ended."""

    def __init__(self, runs: Sequence[Run], store: Store) -> None:
        self.waiting = [run for run in runs if not finished(run, store)]
        self.running: list[Run] = []

    def next(self) -> Run | None:
        """A run that may start now, which is then a running one."""
        before = {self._key(run) for run in (*self.waiting, *self.running)}
        for run in self.waiting:
            v = run.variant
            if (
                not v.twice
                or self._key(replace(run, variant=replace(v, name=v.twice))) not in before
            ):
                self.waiting.remove(run)
                self.running.append(run)
                return run
        return None

    def ended(self, run: Run) -> None:
        self.running.remove(run)

    @staticmethod
    def _key(run: Run) -> tuple[str, str, int]:
        return run.variant.home, run.variant.name, run.seed


def perform_all(
    runs: Sequence[Run], conditions: Conditions, jobs: int, done: Done, say: Say = print
) -> bool:
    """Make all runs that are not finished; whether nobody interrupted."""
    queue = Queue(runs, Store(conditions.results))
    if jobs == 1:
        for run in iter(queue.next, None):
            outcome = attempt(run, conditions, say=say)
            queue.ended(run)
            done(run, outcome)
            if outcome.status == "interrupted":
                return False
        return True
    return _in_processes(queue, conditions, jobs, done)


def attempt(
    run: Run, conditions: Conditions, asked: Callable[[], bool] = lambda: False, say: Say = print
) -> Outcome:
    """perform(), with an error as an outcome: one bad run does not end the others."""
    if over(conditions):
        return Outcome("skipped", "the budget was over before it could start")
    try:
        return perform(run, conditions, asked, say)
    except Exception as error:
        if os.environ.get("TSM_DEBUG"):
            traceback.print_exc()
        return Outcome("failed", f"{type(error).__name__}: {' '.join(str(error).split())}")


def over(conditions: Conditions) -> bool:
    import time

    return conditions.deadline is not None and time.time() >= conditions.deadline


def _in_processes(queue: Queue, conditions: Conditions, jobs: int, done: Done) -> bool:
    context = multiprocessing.get_context("spawn")
    event = context.Event()
    threads = max(1, (os.cpu_count() or 1) // jobs)
    active: dict[Future[Outcome], Run] = {}
    with (
        StopRequest() as stop,
        ProcessPoolExecutor(jobs, context, _start_worker, (event, threads)) as pool,
    ):
        while True:
            for run in _startable(queue, jobs - len(active), stop):
                active[pool.submit(_work, run, conditions)] = run
            if not active:
                return stop.requested is None
            ready, _ = wait(active, timeout=0.5, return_when=FIRST_COMPLETED)
            if stop.requested:
                event.set()
            for future in ready:
                run = active.pop(future)
                queue.ended(run)
                done(run, future.result())


def _startable(queue: Queue, places: int, stop: StopRequest) -> Iterator[Run]:
    while places > 0 and not stop.requested and (run := queue.next()) is not None:
        places -= 1
        yield run


def _start_worker(event: Any, threads: int) -> None:
    """In a new process: no more threads than its share of the cores."""
    global _stop
    import torch

    _stop = event
    torch.set_num_threads(threads)


def _work(run: Run, conditions: Conditions) -> Outcome:
    return attempt(run, conditions, _stop.is_set, _say_now)


def _say_now(text: str) -> None:
    print(text, flush=True, file=sys.stdout)
