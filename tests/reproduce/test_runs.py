"""Runs stop at a budget or a signal, continue where they stopped, and are not repeated."""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import os
import signal
import time
from concurrent.futures import ProcessPoolExecutor

import pytest
import torch

from training.conftest import assert_same, without_time
from tsm.plugin.reproduce.data import DataRoom
from tsm.plugin.reproduce.history import History, first_update, plain, thinned
from tsm.plugin.reproduce.recipe import Experiment, Metric
from tsm.plugin.reproduce.recipes.catalogue import experiments
from tsm.plugin.reproduce.runs import machine, workers
from tsm.plugin.reproduce.runs.halt import Halt
from tsm.plugin.reproduce.runs.machine import PERCENTAGE, hardware
from tsm.plugin.reproduce.runs.runner import finished, limits, perform
from tsm.plugin.reproduce.runs.workers import (
    Queue,
    _start_worker,
    hindrance,
    perform_all,
    runs_of,
    threads_each,
)
from tsm.plugin.train.checkpoint import read_checkpoint
from tsm.plugin.train.loop import NotFinite, Trainer
from tsm.plugin.train.signals import StopRequest


def quiet(text: str) -> None:
    """Nobody listens."""


def stop_at(monkeypatch, update: int, how) -> None:
    """Makes training call a function in the middle of an update."""
    original = Trainer.backward

    def backward(trainer, batch):
        if trainer.state.update + 1 == update:
            how()
        return original(trainer, batch)

    monkeypatch.setattr(Trainer, "backward", backward)


def weights(room, run):
    return without_time(
        read_checkpoint(room.store.folder(run.variant, run.seed) / "checkpoint_last.pt")
    )


def test_a_whole_run(room):
    run = room.run()
    outcome = perform(run, room.conditions(), say=quiet)
    assert outcome.status == "done"
    s = room.store.read(run.variant, 1)
    assert s == outcome.summary and s.complete and s.epochs == 4 and s.updates == 20
    assert {"test_accuracy", "test_loss", "valid_accuracy", "seconds_an_epoch"} <= set(s.metrics)
    assert [row["epoch"] for row in s.history] == [1, 2, 3, 4]
    assert s.config["model"]["cell"] == "plstm" and s.parameters > 0 and s.versions["tsm"]
    text = room.store.path(run.variant, 1).read_text()
    assert str(room.folder) not in text, "a summary names no path"


def test_what_is_complete_is_not_repeated(room, monkeypatch):
    run = room.run()
    perform(run, room.conditions(), say=quiet)
    monkeypatch.setattr(Trainer, "train", lambda trainer: pytest.fail("it trains again"))
    assert perform(run, room.conditions(), say=quiet).status == "kept"
    assert not Queue([run], room.store).waiting


@pytest.mark.parametrize("update", [3, 10])
def test_a_stopped_run_goes_on_as_if_unbroken(room, monkeypatch, update):
    whole, broken = room.run(), room.run(home="broken")
    perform(whole, room.conditions(), say=quiet)
    with monkeypatch.context() as patch:
        stop_at(patch, update, lambda: os.kill(os.getpid(), signal.SIGTERM))
        outcome = perform(broken, room.conditions(), say=quiet)
    assert outcome.status == "interrupted"
    assert not outcome.summary.complete and outcome.summary.updates == update
    assert "test_accuracy" not in outcome.summary.metrics
    assert perform(broken, room.conditions(), say=quiet).status == "done"
    assert_same(weights(room, broken), weights(room, whole))
    rows = [room.store.read(run.variant, 1).history for run in (whole, broken)]
    for row in (*rows[0], *rows[1]):
        row.pop("seconds")
    assert rows[0] == rows[1]


def test_the_budget_ends_a_run_which_is_measured_all_the_same(room, monkeypatch):
    run = room.run()
    conditions = room.conditions(deadline=time.monotonic() + 3600)
    late = conditions.deadline + 1
    stop_at(monkeypatch, 8, lambda: monkeypatch.setattr(time, "monotonic", lambda: late))
    outcome = perform(run, conditions, say=quiet)
    assert outcome.status == "stopped" and "budget" in outcome.text
    assert outcome.summary.updates == 8 and not outcome.summary.complete
    assert outcome.summary.epochs == pytest.approx(1.6)
    assert "test_accuracy" in outcome.summary.metrics


def test_no_run_begins_after_the_budget(room):
    seen = []
    conditions = room.conditions(deadline=time.monotonic() - 1)
    assert perform_all([room.run()], conditions, 1, lambda *a: seen.append(a), quiet)
    assert not seen


def test_a_clock_that_is_set_ahead_does_not_end_the_budget(room, monkeypatch):
    seen = []
    conditions = room.conditions(deadline=time.monotonic() + 3600)
    later = time.time() + 86_400
    monkeypatch.setattr(time, "time", lambda: later)
    assert perform_all([room.run()], conditions, 1, lambda *a: seen.append(a), quiet)
    assert [outcome.status for _, outcome in seen] == ["done"]


def test_an_update_of_several_batches_counts_as_several(room, monkeypatch):
    """With 5 batches per epoch and 2 per update, there are 3 updates per epoch."""
    settings = {**room.run().variant.settings, "update_freq": 2}
    run = room.run(settings=settings)
    monkeypatch.setattr(History, "pace", lambda history: 7.0)
    with monkeypatch.context() as patch:
        late = time.monotonic() + 7200
        stop_at(patch, 5, lambda: patch.setattr(time, "monotonic", lambda: late))
        summary = perform(run, room.conditions(deadline=time.monotonic() + 3600), say=quiet).summary
    assert (summary.updates, summary.epochs) == (5, 1.8)
    assert summary.metrics["seconds_an_epoch"] == 21
    summary = perform(run, room.conditions(), say=quiet).summary
    assert (summary.updates, summary.epochs) == (12, 4)


def test_a_shorter_run_does_not_replace_a_longer_one(room):
    run = room.run()
    perform(run, room.conditions(epochs=3), say=quiet)
    for path in room.store.folder(run.variant, 1).iterdir():
        path.unlink()  # as on another machine: the summary was copied, the checkpoints were not
    outcome = perform(run, room.conditions(epochs=1), say=quiet)
    assert outcome.status == "stopped" and "is kept" in outcome.text
    assert room.store.read(run.variant, 1).epochs == 3


def test_fewer_epochs_are_not_the_whole_recipe_and_go_on(room):
    run = room.run()
    assert perform(run, room.conditions(epochs=2), say=quiet).summary.epochs == 2
    assert not room.store.read(run.variant, 1).complete
    assert perform(run, room.conditions(), say=quiet).summary.epochs == 4


def test_a_longer_variant_continues_a_shorter_one(room):
    short, whole = room.run(), room.run(home="whole")
    longer = room.run(home="longer", continues=short.variant)
    perform(whole, room.conditions(), say=quiet)
    perform(short, room.conditions(epochs=3), say=quiet)
    said = []
    summary = perform(longer, room.conditions(), say=said.append).summary
    assert "from update 15 " in said[0] and summary.ended and summary.epochs == 4
    assert [row["epoch"] for row in summary.history] == [1, 2, 3, 4]
    assert_same(weights(room, longer), weights(room, whole))
    assert room.store.read(short.variant, 1).epochs == 3


def test_a_longer_variant_waits_for_the_shorter_one(room):
    """It would copy the files of a run that is writing them, or train the same epochs once more."""
    short, other = room.run(), room.run(seed=2)
    longer = room.run(home="longer", continues=short.variant)
    queue = Queue([longer, short, other], room.store)
    assert [queue.next(), queue.next(), queue.next()] == [short, other, None]
    queue.ended(short)
    assert queue.next() == longer


def test_a_longer_variant_continues_one_without_a_validation(room, monkeypatch):
    short = room.run()
    with monkeypatch.context() as patch:
        stop_at(patch, 3, terminate)
        assert perform(short, room.conditions(), say=quiet).status == "interrupted"
    longer = room.run(home="longer", continues=short.variant)
    said = []
    assert perform(longer, room.conditions(), say=said.append).status == "done"
    assert "from update 3 " in said[0]


def test_a_longer_variant_keeps_what_it_has(room):
    short = room.run()
    longer = room.run(home="longer", continues=short.variant)
    before = perform(longer, room.conditions(epochs=3), say=quiet).summary  # nothing to continue
    perform(short, room.conditions(epochs=1), say=quiet)
    assert before.epochs == 3
    assert perform(longer, room.conditions(), say=quiet).summary.history[:3] == before.history


def test_a_goal_ends_a_run(room):
    run = room.run(goal=0.0)
    summary = perform(run, room.conditions(), say=quiet).summary
    assert summary.complete and summary.epochs == 1 and "goal" in summary.stopped
    assert "test_accuracy" in summary.metrics


def terminate() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def test_a_signal_as_the_goal_is_reached_leaves_the_run_to_be_measured(room, monkeypatch):
    run = room.run(goal=0.0)
    original = Halt.look

    def look(halt, row):
        original(halt, row)
        terminate()

    with monkeypatch.context() as patch:
        patch.setattr(Halt, "look", look)
        outcome = perform(run, room.conditions(), say=quiet)
    assert outcome.status == "interrupted" and not finished(run, room.store)
    summary = perform(run, room.conditions(), say=quiet).summary
    assert summary.ended and summary.updates == outcome.summary.updates
    assert "test_accuracy" in summary.metrics


def test_a_signal_as_a_run_diverges_leaves_it_to_be_measured(room, monkeypatch):
    run = room.run(settings={**room.run().variant.settings, "validate_interval_updates": 1})

    def diverge():
        terminate()
        raise NotFinite("the loss is nan at update 3; more")

    with monkeypatch.context() as patch:
        stop_at(patch, 3, diverge)
        outcome = perform(run, room.conditions(), say=quiet)
    assert outcome.status == "interrupted" and outcome.summary.diverged
    assert "test_accuracy" not in outcome.summary.metrics and not finished(run, room.store)
    with monkeypatch.context() as patch:
        patch.setattr(f"{__name__}.terminate", lambda: None)
        stop_at(patch, 3, diverge)
        summary = perform(run, room.conditions(), say=quiet).summary
    assert summary.ended and summary.diverged and "test_accuracy" in summary.metrics


def test_a_goal_that_was_reached_is_remembered(room):
    """If the summary is lost but the checkpoints are not, nothing is trained any further."""
    run = room.run(goal=0.0)
    before = perform(run, room.conditions(), say=quiet).summary
    room.store.path(run.variant, 1).unlink()
    after = perform(run, room.conditions(), say=quiet).summary
    assert after.complete and after.updates == before.updates
    assert after.metrics["test_accuracy"] == before.metrics["test_accuracy"]


def test_a_run_that_diverges_is_a_result(room):
    settings = {**room.run().variant.settings, "lr": 1e30, "clip_norm": 0.0}
    run = room.run(settings=settings, optimizer="sgd", arch="nru_tagger")
    outcome = perform(run, room.conditions(), say=quiet)
    assert outcome.status == "done" and outcome.summary.stopped.startswith("diverged")


def test_twice_the_updates_of_another(room):
    first, second = room.run(), room.run(name="lstm-5", arch="lstm_tagger", twice="plstm-5")
    queue = Queue([second, first], room.store)
    assert queue.next() == first and queue.next() is None
    perform(first, room.conditions(epochs=1), say=quiet)
    queue.ended(first)
    assert limits(second, room.conditions(), room.store) == (0, 10, False)
    assert limits(second, room.conditions(epochs=1), room.store) == (1, 10, False)
    assert queue.next() == second
    outcome = perform(second, room.conditions(), say=quiet)
    assert outcome.summary.updates == 10 and not outcome.summary.complete
    perform(first, room.conditions(), say=quiet)
    assert perform(second, room.conditions(), say=quiet).summary.complete


def test_a_limit_of_epochs_before_the_updates_is_no_end(room):
    """A run with an older version of the recipe, which limited the epochs, continues."""
    run = room.run()
    perform(run, room.conditions(), say=quiet)
    summary = room.store.read(run.variant, 1)
    assert summary.ended and finished(run, room.store)
    cut = dataclasses.replace(summary, stopped="--max-epoch 4 is reached", of_updates=10**6)
    room.store.write(run.variant, cut)
    assert cut.complete and not finished(run, room.store)


def test_without_the_other_run_nobody_knows_how_long_it_is(room):
    run = room.run(name="lstm-5", arch="lstm_tagger", twice="plstm-5")
    outcome = perform(run, room.conditions(), say=quiet)
    assert outcome.status == "skipped" and outcome.text == "needs plstm-5 seed 1 first"
    assert room.store.read(run.variant, 1) is None
    perform(room.run(seed=2), room.conditions(), say=quiet)
    assert perform(run, room.conditions(), say=quiet).status == "skipped", "the seeds differ"
    assert perform(run, room.conditions(smoke=True), say=quiet).status == "done"


def test_runs_on_parts_of_the_gpu_are_groups(room, monkeypatch):
    """Each group has as many processes as parts, and the others as many as there are jobs."""
    groups = []

    def record(queue, conditions, jobs, parts, done):
        groups.append(([run.seed for run in queue.waiting], jobs, parts))
        return True

    monkeypatch.setattr(workers, "_in_processes", record)
    runs = [dataclasses.replace(room.run(s), parts=p) for s, p in ((1, 1), (2, 2), (3, 2), (4, 0))]
    assert perform_all(runs, room.conditions(), 4, lambda run, outcome: None)
    assert groups == [([1], 4, 1), ([2, 3], 4, 2), ([4], 4, 0)]


def test_a_timed_run_is_alone():
    timed = [run for run in runs_of(experiments(), None) if run.variant.alone]
    assert timed and all(run.parts == 1 for run in timed)


def test_runs_that_fill_a_gpu_are_alone_on_it():
    words = experiments("ptb-word")
    assert {run.parts for run in runs_of(words, None, gpu=True)} == {1}
    assert {run.parts for run in runs_of(words, None)} == {0}


def test_a_summary_names_the_part_of_a_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "a GPU")
    assert hardware(torch.device("cuda")) == {"device": "a GPU"}
    monkeypatch.setenv(PERCENTAGE, "50")
    assert hardware(torch.device("cuda")) == {"device": "a GPU", "percentage": "50"}


def test_wrong_products_on_a_part_of_a_gpu_are_found(monkeypatch):
    cpu, sizes = torch.device("cpu"), [(16, 24, 500), (9, 8, 40)]
    assert machine.wrong_products(cpu, sizes, torch.float32) == []
    right = torch.matmul
    for wrong in (lambda a, b: right(a, b) * 1.1, lambda a, b: right(a, b) / 0):
        monkeypatch.setattr(torch, "matmul", wrong)
        found = machine.wrong_products(cpu, sizes, torch.float32)
        assert found == ["16 x 500 times 500 x 24", "9 x 40 times 40 x 8"]
    monkeypatch.setattr(machine, "wrong_products", lambda device: found)
    machine.check_part(torch.device("cuda"))  # not a part
    monkeypatch.setenv(PERCENTAGE, "62")
    machine.check_part(cpu)
    with pytest.raises(ValueError, match=r"on 62% of this GPU .*16 x 500 times 500 x 24"):
        machine.check_part(torch.device("cuda"))


def test_data_that_is_not_there_is_said(room):
    run = room.run(data="ptb-char", task="language_modeling", arch="plstm_lm", settings={})
    conditions = dataclasses.replace(
        room.conditions(), data=DataRoom(room.folder / "bin", room.folder)
    )
    outcome = perform(run, conditions, say=quiet)
    assert outcome.status == "skipped" and "ptb-char" in outcome.text and "TSM_DATA" in outcome.text


def test_without_a_folder_of_official_files_the_flag_is_named(room, monkeypatch):
    monkeypatch.delenv("TSM_DATA", raising=False)
    conditions = dataclasses.replace(room.conditions(), data=DataRoom(room.folder / "bin"))
    outcome = hindrance(room.run(data="ptb-char"), conditions)
    assert outcome.status == "skipped" and "--data DIR" in outcome.text


def test_data_is_made_before_the_processes_need_it(room):
    run = room.run(data="ptb-char")
    assert hindrance(run, room.conditions()) is None
    assert (room.folder / "data" / "ptb-char" / "meta.json").is_file()
    broken = dataclasses.replace(room.conditions(), data=DataRoom(room.folder / "x", small=True))
    (room.folder / "x").write_text("a file where a folder is to be")
    assert hindrance(run, broken).status == "failed"


def test_processes_are_given_no_run_without_data(room):
    ended = []
    conditions = dataclasses.replace(
        room.conditions(), data=DataRoom(room.folder / "bin", room.folder)
    )
    runs = [room.run(seed, data="ptb-char") for seed in (1, 2)]
    assert perform_all(runs, conditions, 2, lambda run, o: ended.append(o.status))
    assert ended == ["skipped", "skipped"]


def test_one_bad_run_does_not_end_the_others(room):
    bad = room.run(name="bad", settings={"copy_length": -1})
    good = room.run()
    ended = []
    perform_all(
        [bad, good],
        room.conditions(),
        1,
        lambda run, outcome: ended.append((run.variant.name, outcome.status)),
        quiet,
    )
    assert ended == [("bad", "failed"), ("plstm-5", "done")]


def test_seeds_come_in_rounds_and_shared_runs_once(room):
    v, w = room.run().variant, room.run(name="other").variant
    columns = (Metric("m", "m"),)
    both = Experiment("tiny", "t", "s", "r", (v, w), columns, seeds=2)
    view = Experiment("view", "t", "s", "r", (w,), columns, seeds=3)
    names = [(run.variant.name, run.seed) for run in runs_of([both, view], None)]
    assert names == [("plstm-5", 1), ("other", 1), ("plstm-5", 2), ("other", 2), ("other", 3)]
    names = [(run.variant.name, run.seed) for run in runs_of([both, view], range(2, 3))]
    assert names == [("plstm-5", 2), ("other", 2)]


@pytest.mark.slow
def test_processes_give_what_one_gives(room):
    runs = [room.run(seed) for seed in (1, 2)]
    others = [room.run(seed, home="apart") for seed in (1, 2)]
    ended = []
    assert perform_all(runs, room.conditions(), 2, lambda run, o: ended.append(o.status))
    perform_all(others, room.conditions(), 1, lambda run, o: ended.append(o.status), quiet)
    assert ended == ["done"] * 4
    for a, b in zip(runs, others, strict=True):
        assert_same(weights(room, a)["model"], weights(room, b)["model"])


@pytest.mark.slow
def test_an_idle_worker_outlives_ctrl_c():
    context = multiprocessing.get_context("spawn")
    arguments = (context.Event(), 1, 4, None)
    with (
        StopRequest(),  # as in perform_all; a worker does not inherit it and starts with Python's own handler
        ProcessPoolExecutor(1, context, _start_worker, arguments) as pool,
    ):
        worker = pool.submit(os.getpid).result()
        os.kill(worker, signal.SIGINT)
        time.sleep(0.5)  # an ordinary Ctrl-C would have ended the worker by now
        assert pool.submit(os.getpid).result() == worker
        assert pool.submit(os.getenv, PERCENTAGE).result() == "25"


def test_half_a_line_of_a_killed_run_is_dropped(tmp_path):
    path = tmp_path / "history.jsonl"
    path.write_text('{"update": 1}\n{"update": 2}\n{"upda')
    history = History(path)
    history.begin(5, 0.0)
    assert history.rows == [{"update": 1}, {"update": 2}]
    assert path.read_text() == '{"update": 1}\n{"update": 2}\n'
    path.write_text('{"upda\n{"update": 2}\n')
    with pytest.raises(ValueError, match=r"history\.jsonl: line 1 is damaged"):
        History(path).begin(5, 0.0)


def test_details_may_be_infinite(room, monkeypatch):
    found = ({}, {"rows": [{"ppl": float("inf")}, {"ppl": float("nan")}]})
    monkeypatch.setattr("tsm.plugin.reproduce.runs.runner.measure", lambda names, subject: found)
    run = room.run()
    assert perform(run, room.conditions(epochs=1), say=quiet).status == "stopped"
    assert room.store.read(run.variant, 1).details == {"rows": [{"ppl": None}, {"ppl": None}]}


def test_plain_goes_inside():
    values = {"a": 1 / 3, "b": [float("inf"), (2, "x")], "c": None}
    assert plain(values) == {"a": 0.333333, "b": [None, [2, "x"]], "c": None}


def test_halt_tells_why():
    assert Halt(None).requested is None
    assert Halt(0.0).requested == Halt.BUDGET and Halt(0.0).politely
    assert not Halt(None, lambda: True).politely
    halt = Halt(None)
    halt.requested = "SIGTERM"
    assert not halt.politely


def test_thinning_keeps_both_ends():
    rows = [{"update": i, "accuracy": i / 1000} for i in range(1000)]
    few = thinned(rows, 7)
    assert len(few) == 7 and few[0] == rows[0] and few[-1] == rows[-1]
    assert first_update(rows, "accuracy", 0.5) == 500 and first_update(rows, "accuracy", 2) is None


def test_damaged_summaries_are_refused(room):
    run = room.run()
    perform(run, room.conditions(epochs=1), say=quiet)
    path = room.store.path(run.variant, 1)
    values = json.loads(path.read_text())
    for damaged in ("{", "[]", json.dumps({**values, "format": 9}), json.dumps({"format": 1})):
        path.write_text(damaged)
        with pytest.raises(ValueError, match=r"plstm-5-seed1\.json"):
            room.store.read(run.variant, 1)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="of Linux")
def test_runs_share_the_cores_that_they_may_use():
    allowed = os.sched_getaffinity(0)
    assert threads_each(1) == len(allowed) and threads_each(1000) == 1
    os.sched_setaffinity(0, {min(allowed)})
    try:
        assert threads_each(1) == 1
    finally:
        os.sched_setaffinity(0, allowed)
