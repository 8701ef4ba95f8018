"""Performs many runs, one by one in this process or several at once in worker processes.

Several processes on one GPU help if a single run leaves it idle (short sequences, small batches): the host work
of one overlaps with the kernels of another. A run that fills the GPU is alone, or has a fixed part of it.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, ProcessPoolExecutor, wait
from itertools import groupby
from pathlib import Path
from typing import Any

import torch

from ...train.signals import StopRequest
from ...user_dir import import_user_dir, load_entry_points
from ..data import NoData
from ..recipe import Experiment
from ..store import Store
from .machine import PERCENTAGE
from .runner import Conditions, Outcome, Run, Say, finished, perform

Done = Callable[[Run, Outcome], None]
GPU_JOBS = 4
_stop: Any = None  # in a worker: the event that stops all runs


def runs_of(chosen: Sequence[Experiment], seeds: range | None, gpu: bool = False) -> list[Run]:
    """All runs without duplicates: every variant with its first seed, then with its second, ... gpu: those that
    fill a GPU are alone on it."""
    found: dict[tuple[str, str, int], Run] = {}
    for experiment in chosen:
        for seed in seeds or range(1, experiment.seeds + 1):
            for variant in experiment.variants:
                key = (variant.home, variant.name, seed)
                fills = gpu and experiment.worth_of(variant).parts == 1
                parts = int(variant.alone or fills)
                found.setdefault(key, Run(variant, seed, experiment.smoke, parts=parts))
    return list(found.values())


def default_jobs(gpu: bool, count: int) -> int:
    """The number of parallel processes; one on a CPU, whose kernels use all cores."""
    return max(1, min(GPU_JOBS, count)) if gpu else 1


class Queue:
    """Runs in order. A run waits for the one that limits its updates, and for the one that it continues."""

    def __init__(self, runs: Sequence[Run], store: Store) -> None:
        self.waiting = [run for run in runs if not finished(run, store)]
        self.running: list[Run] = []

    def next(self) -> Run | None:
        """A run that may start now. It is marked as running."""
        for run in self.waiting:
            if self._may_start(run):
                self.waiting.remove(run)
                self.running.append(run)
                return run
        return None

    def _may_start(self, run: Run) -> bool:
        v = run.variant
        before = {(v.home, v.twice, run.seed)}
        if v.continues is not None:
            before.add((v.continues.home, v.continues.name, run.seed))
        return before.isdisjoint(map(self._key, (*self.waiting, *self.running)))

    def ended(self, run: Run) -> None:
        self.running.remove(run)

    @staticmethod
    def _key(run: Run) -> tuple[str, str, int]:
        return run.variant.home, run.variant.name, run.seed


def divides_gpu() -> bool:
    """Whether NVIDIA MPS runs, so that processes can have parts of the GPU."""
    return Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"), "control").exists()


def perform_all(
    runs: Sequence[Run], conditions: Conditions, jobs: int, done: Done, say: Say = print
) -> bool:
    """Performs all unfinished runs; returns False if interrupted. Neighbours with the same number of parts are
    performed together."""
    store = Store(conditions.results)
    if jobs == 1:
        queue = Queue(runs, store)
        while not over(conditions) and (run := queue.next()) is not None:
            outcome = attempt(run, conditions, say=say)
            queue.ended(run)
            done(run, outcome)
            if outcome.status == "interrupted":
                return False
        return True
    for parts, together in groupby(runs, lambda run: run.parts):
        if not _in_processes(Queue(list(together), store), conditions, jobs, parts, done):
            return False
    return True


def attempt(
    run: Run, conditions: Conditions, asked: Callable[[], bool] = lambda: False, say: Say = print
) -> Outcome:
    """perform(), with errors turned into outcomes, so that one bad run does not end the others."""
    try:
        return perform(run, conditions, asked, say)
    except Exception as error:
        return _failed(error)


def hindrance(run: Run, conditions: Conditions) -> Outcome | None:
    """Prepares the data of a run; returns an outcome if that is not possible. This is done here because several
    worker processes could otherwise create the same folder at once."""
    try:
        conditions.data.folder(run.variant.data)
    except NoData as error:
        return Outcome("skipped", str(error))
    except Exception as error:
        return _failed(error)
    return None


def _failed(error: Exception) -> Outcome:
    if os.environ.get("TSM_DEBUG"):
        traceback.print_exception(error)
    return Outcome("failed", f"{type(error).__name__}: {' '.join(str(error).split())}")


def over(conditions: Conditions) -> bool:
    """Whether the budget is spent."""
    return conditions.deadline is not None and time.monotonic() >= conditions.deadline


def threads_each(jobs: int) -> int:
    """Each job's share of the cores that this process may use (taskset and containers limit them)."""
    can_say = hasattr(os, "sched_getaffinity")
    return max(1, (len(os.sched_getaffinity(0)) if can_say else os.cpu_count() or 1) // jobs)


def _in_processes(queue: Queue, conditions: Conditions, jobs: int, parts: int, done: Done) -> bool:
    jobs = parts or jobs
    context = multiprocessing.get_context("spawn")
    event = context.Event()
    threads = threads_each(jobs)
    active: dict[Future[Outcome], Run] = {}
    with (
        StopRequest() as stop,
        ProcessPoolExecutor(
            jobs, context, _start_worker, (event, threads, parts, conditions.user_dir)
        ) as pool,
    ):
        while True:
            while len(active) < jobs and not stop.requested and not over(conditions):
                run = queue.next()
                if run is None:
                    break
                if (outcome := hindrance(run, conditions)) is not None:
                    queue.ended(run)
                    done(run, outcome)
                    continue
                active[pool.submit(_work, run, conditions)] = run
            if not active:
                return stop.requested is None
            ready, _ = wait(active, timeout=0.5, return_when=FIRST_COMPLETED)
            if stop.requested:
                event.set()
            for future in ready:
                run = active.pop(future)
                queue.ended(run)
                done(run, _result(future))


def _result(future: Future[Outcome]) -> Outcome:
    try:
        return future.result()
    except BrokenExecutor as error:
        raise ValueError(
            "a worker process was killed (out of memory?); fewer --jobs may help; the same "
            "command continues from the checkpoints"
        ) from error


def _start_worker(event: Any, threads: int, parts: int, user_dir: str | None) -> None:
    """Sets up a worker process: the same plug-ins as in the main process, and a fair share of the cores and, if
    it is divided, of the GPU.

    Ctrl-C and the closing of a terminal reach all of its processes. They would kill an idle worker, and with it
    the pool and all other runs. So workers ignore these signals and stop when the event is set.
    """
    global _stop
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    _stop = event
    if parts > 1:  # before CUDA starts in this process
        os.environ[PERCENTAGE] = str(100 // parts)
    load_entry_points()
    if user_dir:
        import_user_dir(user_dir)
    torch.set_num_threads(threads)


def _work(run: Run, conditions: Conditions) -> Outcome:
    return attempt(run, conditions, _stop.is_set, _say_now)


def _say_now(text: str) -> None:
    print(text, flush=True, file=sys.stdout)
