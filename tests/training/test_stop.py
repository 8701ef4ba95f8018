"""Training processes that are asked to stop, or are killed."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import random
import resource
import signal
import termios
import time

import pytest

from tsm.plugin.train.saver import Saver
from tsm.plugin.train.signals import REPEATED, URGENT

from .conftest import TINY, assert_same, without_time
from .processes import finish, start, started, wait_for


def wait_for_savings(path, count, seconds=60):
    """Waits until the file has been replaced `count` times."""
    end = time.monotonic() + seconds
    seen = path.stat().st_ino if path.exists() else None
    while count:
        assert time.monotonic() < end, f"{path} was not written in {seconds} s"
        time.sleep(0.001)
        now = path.stat().st_ino if path.exists() else None
        count -= now != seen
        seen = now


@pytest.mark.parametrize("number", [*URGENT, *REPEATED], ids=str)
def test_signal_saves_and_says_so(runs, tmp_path, number):
    flags = TINY.replace("--log-format none", "--log-format simple --log-interval 1000000")
    process = start([*flags.split(), "--save-dir", str(tmp_path / "s"), "--max-epoch", "100000"])
    wait_for(tmp_path / "s" / "checkpoint1.pt")
    process.send_signal(number)
    code, output = finish(process)
    assert code == 130, output  # not 0, so that `tsm-train ... && tsm-export ...` stops here
    assert f"is saved in {tmp_path / 's' / 'checkpoint_last.pt'}: the same command" in output
    state = runs.state("s")
    assert state["update"] >= 13
    runs("whole", f"--max-epoch 0 --max-update {state['update']}")
    assert_same(runs.checkpoint("s")["model"], runs.checkpoint("whole")["model"])


def test_a_signal_after_the_end_changes_nothing(runs, tmp_path, monkeypatch):
    """After a signal during the last save, the training is complete, and says so."""
    flush = Saver.flush

    def late(saver):
        monkeypatch.setattr(Saver, "flush", flush)  # once
        flush(saver)
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(Saver, "flush", late)
    assert runs("s", "--max-epoch 0 --max-update 5") == 0


def start_long_epoch(folder, log, **options):
    """A run in its first epoch, which has 20,000 updates, so that it only saves when stopped."""
    flags = TINY.replace("--generated-tokens 1000", "--generated-tokens 100000")
    flags = flags.replace("--batch-size 4 --bptt 20", "--batch-size 1 --bptt 5")
    flags = flags.replace("--log-format none", f"--log-format simple --log-file {log}")
    process = start([*flags.split(), "--save-dir", str(folder), "--max-epoch", "1"], **options)
    wait_for(log)
    while "train |" not in log.read_text():
        assert process.poll() is None
        time.sleep(0.01)
    return process


def test_a_signal_that_comes_again_and_again(runs, tmp_path):
    """The kernel repeats SIGXCPU, for example; the save that the first signal started must still finish."""
    process = start_long_epoch(tmp_path / "s", tmp_path / "log")
    while not (tmp_path / "s" / "checkpoint_last.pt").exists() and process.poll() is None:
        process.send_signal(signal.SIGUSR1)
        time.sleep(0.01)
    code, output = finish(process)
    assert code == 130 and "SIGUSR1 asked to stop" in output, output
    assert runs.state("s")["update"] > 0


def test_the_limit_of_cpu_time(runs, tmp_path):
    process = start_long_epoch(tmp_path / "s", tmp_path / "log")
    resource.prlimit(process.pid, resource.RLIMIT_CPU, (1, resource.RLIM_INFINITY))
    code, output = finish(process)
    assert code == 130 and "SIGXCPU asked to stop" in output, output
    assert runs.state("s")["update"] > 0


def test_nohup(runs, tmp_path):
    """A signal that was ignored at the start stays ignored."""

    def ignore():
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    flags = [*TINY.split(), "--log-format", "simple", "--max-epoch", "100000"]
    process = start([*flags, "--save-dir", str(tmp_path / "s")], preexec_fn=ignore)
    last = tmp_path / "s" / "checkpoint_last.pt"
    wait_for(last)
    process.send_signal(signal.SIGHUP)
    wait_for_savings(last, 3)
    process.send_signal(signal.SIGTERM)
    code, output = finish(process)
    assert code == 130 and "SIGTERM asked to stop" in output, output


def test_a_terminal_that_hangs_up(runs, tmp_path):
    """After the terminal hangs up, all output fails, but the training is saved."""
    ours, theirs = pty.openpty()

    def own_terminal():
        os.setsid()
        fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)

    theirs_alone = {"stdin": theirs, "stdout": theirs, "stderr": theirs}
    process = start_long_epoch(
        tmp_path / "s", tmp_path / "log", preexec_fn=own_terminal, **theirs_alone
    )
    os.close(theirs)
    os.close(ours)
    code, _ = finish(process)
    assert code == 130
    assert runs.state("s")["update"] > 0
    assert "asked to stop" in (tmp_path / "log").read_text()


def test_a_reader_of_the_output_that_ends(runs, tmp_path):
    """tsm-train | head: the training is saved, not lost."""
    process = start_long_epoch(tmp_path / "s", tmp_path / "log")
    process.stdout.close()
    process.stdout = None
    code, output = finish(process)
    assert (code, output) == (130, "")
    assert runs.state("s")["update"] > 0
    assert "the end of the output asked to stop" in (tmp_path / "log").read_text()


@pytest.mark.parametrize("kills", [5, pytest.param(100, marks=pytest.mark.nightly)])
def test_kills(runs, tmp_path, kills):
    """SIGKILL at random moments during start and training: the final weights, optimizer and best checkpoint are
    identical to those of an uninterrupted run."""
    flags = f"{TINY} --dropout .3 --max-epoch {3 * kills + 10} --keep-last-epochs 2"
    flags += " --save-interval-updates 5"
    assert runs("whole", "", flags) == 0
    chance = random.Random(1)
    last = tmp_path / "killed" / "checkpoint_last.pt"
    command = json.dumps([*flags.split(), "--save-dir", str(last.parent)]) + "\n"
    with started("forks.py") as starter:

        def begin():
            starter.stdin.write(command)
            starter.stdin.flush()
            return int(starter.stdout.readline())

        for kill in range(kills):
            number = begin()
            if kill % 5:
                wait_for_savings(last, chance.randint(1, 6))
            time.sleep((0.03 if kill % 5 else 0.3) * chance.random())
            os.kill(number, signal.SIGKILL)
            assert int(starter.stdout.readline()) == -signal.SIGKILL, f"train longer: {kill} kills"
        begin()
        assert int(starter.stdout.readline()) == 0
    for file in ("checkpoint_last.pt", "checkpoint_best.pt"):
        killed, whole = (without_time(runs.checkpoint(run, file)) for run in ("killed", "whole"))
        assert_same(killed, whole)
    assert not list(last.parent.glob(".*.tmp"))  # nothing half-written
