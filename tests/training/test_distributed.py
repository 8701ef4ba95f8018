"""Two processes give the same loss curve and weights as one process, and resume in the same way."""

from __future__ import annotations

import signal

import pytest
import torch

from tsm.plugin.cli.preprocess import main as preprocess
from tsm.plugin.train.distributed import World, share_rows, stack_rows

from .conftest import TINY, shape_of_log
from .processes import finish, start, wait_for

CPU = torch.device("cpu")


def curve(path, event="train"):
    return [e["loss"] for e in shape_of_log(path) if e["event"] == event]


def launch(tmp_path, name, flags, processes, base=TINY):
    log = tmp_path / f"{name}-{processes}.log"
    given = f"{base} {flags} --save-dir {tmp_path / name} --log-format json --log-file {log}"
    code, output = finish(start(given.split(), processes))
    assert code == 0, output
    return log


def test_two_processes_are_one_and_resume_as_one(runs, tmp_path):
    """Losses agree to 1e-5; a stopped run of two processes continues in one process with the same result."""
    flags = "--optimizer sgd --lr 1 --update-freq 2"
    log = tmp_path / "one.log"
    runs("one", f"{flags} --max-epoch 3 --log-format json --log-file {log}")
    first = launch(tmp_path, "two", f"{flags} --max-epoch 0 --max-update 10", 2)
    runs("two", f"{flags} --max-epoch 3 --log-format json --log-file {first}")
    assert len(curve(log)) == 21
    assert curve(first) == pytest.approx(curve(log), abs=1e-5)
    assert curve(first, "valid")[-2:] == pytest.approx(curve(log, "valid")[-2:], abs=1e-5)
    one, two = (runs.checkpoint(n)["model"] for n in ("one", "two"))
    for name, value in one.items():
        torch.testing.assert_close(two[name], value, atol=1e-5, rtol=1e-5, msg=name)


def test_each_process_draws_the_rows_that_start_from_zero(runs, tmp_path):
    """A share of 1 is the same everywhere; otherwise each process has random numbers of its own: if all rows
    read the same text, only those that start from zero can differ."""
    log = tmp_path / "one.log"
    runs("one", f"--reset-share 1 --max-update 4 --log-format json --log-file {log}")
    both = launch(tmp_path, "two", "--reset-share 1 --max-update 4", 2)
    assert curve(both) == pytest.approx(curve(log), abs=1e-5)
    (tmp_path / "text").write_text("a b c d e f\n" * 16 * 30)
    text = ["--trainpref", str(tmp_path / "text"), "--validpref", str(tmp_path / "text")]
    assert preprocess([*text, "--destdir", str(tmp_path / "data")]) == 0
    base = TINY.replace("--generated-tokens 1000", str(tmp_path / "data"))
    for name, share in (("none", 0), ("some", 0.5)):
        flags = f"--reset-share {share} --batch-size 16 --max-update 4"
        launch(tmp_path, name, flags, 2, base)
        first, second = runs.state(name)["carried"][0]["h"].chunk(2)
        assert torch.equal(first, second) == (share == 0)


def test_a_signal_stops_both_after_the_same_update(runs, tmp_path):
    given = [*TINY.split(), "--save-dir", str(tmp_path / "s"), "--max-epoch", "100000"]
    process = start(given, 2)
    wait_for(tmp_path / "s" / "checkpoint1.pt")
    process.send_signal(signal.SIGTERM)
    finish(process)  # torchrun's exit code shows that it was stopped
    state = runs.state("s")
    assert state["update"] >= 13
    assert state["index"] == 0 or state["carried"][0]["h"].shape[0] == 4  # both ranks' rows
    assert runs("s", f"--max-epoch 0 --max-update {state['update'] + 3}") == 0


def test_rows_are_stacked_and_shared_in_order():
    whole = [{"h": torch.arange(12.0).view(6, 2)}, {"c": torch.rand(6, 3)}]
    parts = [share_rows(whole, World(CPU, rank, 3)) for rank in range(3)]
    assert [len(part[0]["h"]) for part in parts] == [2, 2, 2]
    again = stack_rows(parts)
    for a, b in zip(whole, again, strict=True):
        for name in a:
            assert torch.equal(a[name], b[name])
    assert stack_rows([None, None]) is None
