"""Processes that are asked to stop, or killed."""

from __future__ import annotations

import random
import signal
import time

import pytest

from tsm.plugin.train.saver import Saver

from .conftest import TINY, assert_same, without_time
from .processes import finish, start, wait_for


def wait_for_savings(path, count, seconds=60):
    """Until the file has been replaced `count` times."""
    end = time.monotonic() + seconds
    seen = path.stat().st_ino if path.exists() else None
    while count:
        assert time.monotonic() < end, f"{path} was not written in {seconds} s"
        time.sleep(0.001)
        now = path.stat().st_ino if path.exists() else None
        count -= now != seen
        seen = now


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=str)
def test_signal_saves_and_says_so(runs, tmp_path, number):
    flags = TINY.replace("--log-format none", "--log-format simple --log-interval 1000000")
    process = start([*flags.split(), "--save-dir", str(tmp_path / "s"), "--max-epoch", "100000"])
    wait_for(tmp_path / "s" / "checkpoint1.pt")
    process.send_signal(number)
    code, output = finish(process)
    assert code == 130, output  # `tsm-train ... && tsm-export ...` exports no half-trained model
    assert f"is saved in {tmp_path / 's' / 'checkpoint_last.pt'}: the same command" in output
    state = runs.state("s")
    assert state["update"] >= 13
    runs("whole", f"--max-epoch 0 --max-update {state['update']}")
    assert_same(runs.checkpoint("s")["model"], runs.checkpoint("whole")["model"])


def test_a_signal_after_the_end_changes_nothing(runs, tmp_path, monkeypatch):
    """One that comes during the last save: the training is complete, and says so."""
    flush = Saver.flush

    def late(saver):
        monkeypatch.setattr(Saver, "flush", flush)  # once
        flush(saver)
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(Saver, "flush", late)
    assert runs("s", "--max-epoch 0 --max-update 5") == 0


@pytest.mark.slow
def test_ten_kills(runs, tmp_path):
    """SIGKILL at ten random moments: the final weights have the bytes of an unbroken run's."""
    flags = f"{TINY} --dropout .3 --max-epoch 60 --keep-last-epochs 2 --save-interval-updates 5"
    runs("whole", "", flags)
    chance = random.Random(1)
    last = tmp_path / "killed" / "checkpoint_last.pt"
    for kill in range(10):
        process = start([*flags.split(), "--save-dir", str(last.parent)])
        wait_for_savings(last, chance.randint(1, 6))
        time.sleep(0.03 * chance.random())
        assert process.poll() is None, f"finished after {kill} kills: train longer"
        process.kill()
        finish(process)
    code, output = finish(start([*flags.split(), "--save-dir", str(last.parent)]))
    assert code == 0, output
    assert_same(without_time(runs.checkpoint("killed")), without_time(runs.checkpoint("whole")))
    assert not list(last.parent.glob("*.tmp"))  # nothing half-written
