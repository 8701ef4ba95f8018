"""Checkpoints are written atomically, loading executes nothing, and mismatches are reported in one sentence."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
from typing import NamedTuple

import pytest
import torch

from tsm.plugin import load_checkpoint
from tsm.plugin.common import atomic
from tsm.plugin.data.vocab import Vocab
from tsm.plugin.train import lock, saver
from tsm.plugin.train.checkpoint import (
    FREE,
    FREE_AT_START,
    check_model,
    read_checkpoint,
    to_bytes,
    write_checkpoint,
)
from tsm.plugin.train.loop import NotFinite, Trainer
from tsm.plugin.train.settings import LoopConfig

from .conftest import TINY, assert_same, without_time
from .processes import environment, finish, start, wait_for


def test_load_checkpoint_rebuilds_the_model(runs, tmp_path):
    runs("a", "--max-epoch 1 --decoder-layers 2 --share-decoder-input-output-embed")
    path = tmp_path / "a" / "checkpoint_best.pt"
    model, config = load_checkpoint(path)
    assert not model.training
    assert config["model"]["arch"] == "plstm_lm" and config["task"]["name"] == "language_modeling"
    saved = torch.load(path, weights_only=True)
    assert {"model", "config", "optimizer", "train_state"} <= set(saved)
    for name, value in model.state_dict().items():
        assert torch.equal(value, saved["model"][name])
    logits, _ = model(torch.zeros(1, 3, dtype=torch.int64))
    assert logits.shape == (1, 3, config["model"]["vocab_size"])
    dictionary = Vocab.loads(bytes(saved["assets"]["dict.txt"].tolist()))
    assert len(dictionary) == config["model"]["vocab_size"]


def test_files_and_how_long_they_are_kept(runs, tmp_path):
    def names(run):
        assert (tmp_path / run / "config.yaml").is_file()
        return sorted(path.name for path in (tmp_path / run).glob("*.pt"))

    both = ["checkpoint_best.pt", "checkpoint_last.pt"]
    runs("all", "--max-epoch 3")
    assert names("all") == [f"checkpoint{n}.pt" for n in (1, 2, 3)] + both
    runs("two", "--max-epoch 4 --keep-last-epochs 2")
    assert names("two") == ["checkpoint3.pt", "checkpoint4.pt", *both]
    runs("none", "--max-epoch 2 --no-epoch-checkpoints")
    assert names("none") == both
    runs("every", "--max-epoch 4 --save-interval 2")
    assert names("every") == ["checkpoint2.pt", "checkpoint4.pt", *both]
    assert runs("unsaved", "--max-epoch 1 --no-save") == 0
    assert not (tmp_path / "unsaved").exists()


@pytest.mark.parametrize("step", ["write", "fsync", "replace"])
def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch, step):
    path = tmp_path / "checkpoint_last.pt"
    write_checkpoint(b"old", path)

    def full(*arguments):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    if step == "write":
        data = type("Data", (), {"__len__": lambda self: full()})()  # not bytes: write() fails
        with pytest.raises((OSError, TypeError)):
            write_checkpoint(data, path)
    else:
        monkeypatch.setattr(atomic.os, step, full)
        with pytest.raises(OSError, match="not written, and the previous one is unchanged"):
            write_checkpoint(b"new", path)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["checkpoint_last.pt"]


def test_a_folder_that_cannot_be_synced_is_not_an_unwritten_file(tmp_path, monkeypatch):
    path = tmp_path / "checkpoint_last.pt"
    write_checkpoint(b"old", path)

    def fails(folder):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(atomic, "sync_folder", fails)
    with pytest.raises(
        OSError, match="Input/output error; the checkpoint was written, but a crash"
    ):
        write_checkpoint(b"new", path)
    assert path.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["checkpoint_last.pt"]


def test_disk_full_is_one_sentence_and_loses_nothing(runs, tmp_path):
    """The process may not write files larger than 20 kB, which acts like a full disk."""
    runs("d", "--max-epoch 1")
    last = tmp_path / "d" / "checkpoint_last.pt"
    before = last.read_bytes()
    assert len(before) > 20_000
    flags = [*TINY.split(), "--save-dir", str(last.parent), "--max-epoch", "2"]

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

    done = subprocess.run(
        [sys.executable, "-m", "tsm.plugin.cli.train", *flags],
        env=environment(),
        preexec_fn=limit,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1 and "the previous one is unchanged" in done.stderr
    assert last.read_bytes() == before
    assert not list(last.parent.glob("*.tmp"))


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("--decoder-hidden-size 9", "--decoder-hidden-size = [7] ([9] here)"),
        ("--freeze-recurrent", "--freeze-recurrent = False (True here)"),
        ("--arch lstm_lm", "arch = 'plstm_lm' ('lstm_lm' here)"),
        ("--optimizer sgd", "optimizer name = 'adam', this run has 'sgd'"),
        ("--lr-scheduler cosine", "lr_scheduler name = 'fixed', this run has 'cosine'"),
        ("--batch-size 5", "task --batch-size = 4, this run has 5"),
        ("--restore-file nowhere.pt", "nowhere.pt exists"),
    ],
)
def test_a_checkpoint_that_does_not_fit(runs, capsys, flags, said):
    runs("m", "--max-update 4")
    capsys.readouterr()
    settings = (runs.root / "m" / "config.yaml").read_bytes()
    assert runs("m", flags) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1
    assert (runs.root / "m" / "config.yaml").read_bytes() == settings  # those of the checkpoint


def test_another_dictionary(runs, tmp_path, capsys):
    runs("v", "--max-update 2")
    path = tmp_path / "v" / "checkpoint_last.pt"
    checkpoint = read_checkpoint(path)
    checkpoint["config"]["text"]["dictionary"] = "0" * 64
    write_checkpoint(to_bytes(checkpoint), path)
    assert runs("v") == 2
    assert "a dictionary other than" in capsys.readouterr().err


def test_dropout_may_change_and_weights_may_start_a_new_run(runs, tmp_path):
    runs("a", "--max-epoch 1")
    assert runs("a", "--max-epoch 2 --dropout .5") == 0
    best = tmp_path / "a" / "checkpoint_best.pt"
    flags = f"--optimizer sgd --lr 0 --max-update 1 --freeze-recurrent --finetune-from-model {best}"
    assert runs("b", flags) == 0
    a, b = runs.checkpoint("a", "checkpoint_best.pt"), runs.checkpoint("b")
    assert all(torch.equal(a["model"][k], b["model"][k]) for k in a["model"])
    assert b["train_state"]["update"] == 1


@pytest.mark.parametrize(
    "damage", ["cut", "text", "pickle", "other", "empty", "directory", "bzip2"]
)
def test_damaged_files(tmp_path, damage):
    path = tmp_path / "x.pt"
    good = to_bytes({"model": {}, "config": {}, "optimizer": {}, "train_state": {}})
    marker = tmp_path / "executed"

    class Evil:
        def __reduce__(self):
            return (open, (str(marker), "w"))

    start = good.index(b"PK\6\6") + 48  # the stated start of the central directory
    astray = good[:start] + b"\xff\xff\xff\x7f" + good[start + 4 :]
    entry = good.index(b"PK\1\2") + 10  # the stated compression of the first file
    packed = good[:entry] + b"\x0c\x00" + good[entry + 2 :]
    bad = {"cut": good[:-100], "text": b"hello", "empty": b"", "directory": astray, "bzip2": packed}
    path.write_bytes(bad.get(damage, b""))
    if damage == "pickle":
        torch.save({"model": Evil()}, path)
    if damage == "other":
        torch.save({"model": {}}, path)
    with pytest.raises(ValueError, match=r"x\.pt is not a tsm checkpoint"):
        load_checkpoint(path)
    assert not marker.exists()


def test_a_flipped_bit_is_noticed(tmp_path):
    path = tmp_path / "x.pt"
    weights = torch.linspace(1, 2, 5000)
    parts = {"config": {}, "optimizer": {}, "train_state": {}}
    good = to_bytes({"model": {"w": weights}, **parts})
    start = good.index(weights.numpy().tobytes())
    for place in (start, start + 9999, start + 4 * 5000 - 1):
        bad = bytearray(good)
        bad[place] ^= 1
        path.write_bytes(bad)
        with pytest.raises(ValueError, match=r"x\.pt .*is damaged .*checksum"):
            read_checkpoint(path)
    path.write_bytes(good)
    assert torch.equal(read_checkpoint(path)["model"]["w"], weights)


def test_a_disk_that_fails_is_not_a_damaged_file(runs, monkeypatch, capsys):
    runs("io", "--max-update 1")

    def fails(*arguments, **options):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(torch, "load", fails)
    assert runs("io") == 2
    assert capsys.readouterr().err.endswith("checkpoint_last.pt: Input/output error\n")


def test_a_damaged_last_checkpoint_names_the_best(runs, tmp_path, capsys):
    assert runs("cut", "--max-update 1") == 0
    (last,) = tmp_path.rglob("checkpoint_last.pt")
    last.write_bytes(last.read_bytes()[:-100])
    assert runs("cut", "--max-update 2") == 2
    advice = "--restore-file checkpoint_best.pt"
    assert f"; {advice} continues from the best one\n" in capsys.readouterr().err
    assert runs("cut", f"--max-update 2 {advice}") == 0
    assert runs.checkpoint("cut")["train_state"]["update"] == 2


def test_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="does not exist"):
        load_checkpoint(tmp_path / "no.pt")


def test_checkpoints_are_held_and_written_at_the_end(runs, monkeypatch):
    """There are fewer writes, but the same files: the best checkpoint holds the state at its own update, not at
    the end."""
    written = []
    original = saver.write_checkpoint

    def write(data, path):
        written.append(path.name)
        original(data, path)

    monkeypatch.setattr(saver, "write_checkpoint", write)
    flags = "--max-epoch 4 --no-epoch-checkpoints --lr 0.5"
    runs("each", flags)
    often, written[:] = len(written), []
    runs("held", f"{flags} --hold-checkpoints-seconds 3600")
    assert len(written) <= 4 < often
    for name in ("checkpoint_best.pt", "checkpoint_last.pt"):
        a, b = (without_time(runs.checkpoint(run, name)) for run in ("each", "held"))
        assert_same(a, b)
    best, last = (
        runs.checkpoint("held", f"checkpoint_{n}.pt")["train_state"] for n in ("best", "last")
    )
    assert best["update"] < last["update"]


def test_a_folder_is_one_run_s(runs, tmp_path, capsys):
    """A second run reports the lock and changes nothing; it works once the first has ended, however it
    ended."""
    with saver.Saver(LoopConfig(save_dir=str(tmp_path / "other"))):
        assert runs("shared", "--max-update 3") == 0  # the other's folder is another
    half_written = tmp_path / "shared" / ".checkpoint_last.pt.x.tmp"
    half_written.touch()
    holder = lock.lock_folder(tmp_path / "shared")
    capsys.readouterr()
    assert runs("shared", "--max-update 4") == 2
    error = capsys.readouterr().err
    assert f"--save-dir {tmp_path / 'shared'} is in use by another run" in error
    assert error.count("\n") == 1 and half_written.exists()
    assert runs.state("shared")["update"] == 3
    assert runs("shared", "--max-update 4 --no-save") == 0
    holder.close()
    assert runs("shared", "--decoder-hidden-size 9") == 2  # fails, and lets go
    assert runs("shared", "--max-update 4") == 0
    assert runs.state("shared")["update"] == 4 and not half_written.exists()


def test_a_lock_ends_with_its_process(runs, tmp_path):
    process = start([*TINY.split(), "--save-dir", str(tmp_path / "k"), "--max-epoch", "100000"])
    wait_for(tmp_path / "k" / "checkpoint_last.pt")
    assert runs("k", "--max-epoch 1") == 2
    process.kill()
    finish(process)
    assert runs("k", "--max-epoch 1") == 0


def test_a_file_system_without_locks(runs, tmp_path, monkeypatch):
    """The run works without a lock; files that may belong to another run are kept."""

    def none_here(*arguments):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(lock.fcntl, "flock", none_here)
    (tmp_path / "n").mkdir()
    another_s = tmp_path / "n" / ".checkpoint_last.pt.x.tmp"
    another_s.touch()
    assert runs("n", "--max-update 1") == 0
    assert runs.state("n")["update"] == 1 and another_s.exists()


@pytest.mark.parametrize("keep, held", [(2, [3, 4]), (-1, []), (0, [])])
def test_numbered_checkpoints_do_not_pile_up(tmp_path, keep, held):
    config = LoopConfig(
        save_dir=str(tmp_path), hold_checkpoints_seconds=3600, keep_last_epochs=keep
    )
    s = saver.Saver(config)
    for epoch in range(1, 5):
        s.write({"epoch": epoch}, s.names(best=False, finished_epoch=epoch))
    assert [n for n in range(1, 5) if f"checkpoint{n}.pt" in s.held] == held
    s.flush()
    there = [n for n in range(1, 5) if (tmp_path / f"checkpoint{n}.pt").is_file()]
    assert there == {2: [3, 4], -1: [1, 2, 3, 4], 0: []}[keep]


def test_what_is_held_is_a_copy(tmp_path):
    class Pair(NamedTuple):
        a: torch.Tensor
        b: int

    s = saver.Saver(LoopConfig(save_dir=str(tmp_path), hold_checkpoints_seconds=3600))
    weights = torch.zeros(2, requires_grad=True)
    s.write({"pair": Pair(weights, 1), "list": [weights]}, [saver.LAST])
    with torch.no_grad():
        weights += 1
    held = s.held[saver.LAST]
    assert isinstance(held["pair"], Pair) and held["pair"].b == 1
    for copy in (held["pair"].a, held["list"][0]):
        assert copy.tolist() == [0, 0] and not copy.requires_grad and copy.device.type == "cpu"
    assert held["list"][0] is held["pair"].a  # tied weights are held, and written, once


def test_a_training_that_fails_writes_what_was_held(runs, monkeypatch):
    original = Trainer.backward

    def backward(trainer, batch):
        if trainer.state.update == 7:
            raise NotFinite("the loss is nan")
        return original(trainer, batch)

    monkeypatch.setattr(Trainer, "backward", backward)
    flags = "--max-epoch 40 --validate-interval-updates 1 --save-interval-seconds 3600"
    assert runs("wild", flags) == 1
    assert runs.state("wild")["update"] == 7


def test_what_a_failed_write_leaves_is_written_at_the_end(runs, monkeypatch):
    """A disk that fails once ends the training, but loses none of the checkpoints that were held."""
    original, failures = saver.write_checkpoint, [OSError(errno.EIO, "Input/output error")]

    def write(data, path):
        if failures:
            raise failures.pop()
        original(data, path)

    updates: list[int] = []
    save = Trainer.save

    def counted(trainer, names):
        updates.append(trainer.state.update)
        trainer.saver.wrote = -1e9 if len(updates) == 5 else trainer.saver.wrote
        save(trainer, names)

    monkeypatch.setattr(saver, "write_checkpoint", write)
    monkeypatch.setattr(Trainer, "save", counted)
    flags = "--max-epoch 40 --validate-interval-updates 1 --save-interval-seconds 3600"
    assert runs("once", flags) == 2
    assert runs.state("once")["update"] == updates[-1] == 5


def test_a_second_try_writes_what_the_first_did(tmp_path, monkeypatch):
    """Even if training has changed the weights since."""
    s, weights = saver.Saver(LoopConfig(save_dir=str(tmp_path))), torch.zeros(2)

    def fails(data, path):
        raise OSError(errno.EIO, "Input/output error")

    parts = {"config": {}, "optimizer": {}, "train_state": {}}
    with monkeypatch.context() as broken, pytest.raises(OSError, match="Input/output error"):
        broken.setattr(saver, "write_checkpoint", fails)
        s.write({"model": {"w": weights}, **parts}, s.names(best=True))
    weights += 1
    s.flush()
    for name in (saver.BEST, saver.LAST):
        assert read_checkpoint(tmp_path / name)["model"]["w"].tolist() == [0, 0]
    assert not s.held


@pytest.mark.parametrize(
    "free, advice", [(FREE, "another --save-dir"), (FREE_AT_START, "--config config.yaml")]
)
def test_another_model_is_refused_with_advice(free, advice):
    there = {"config": {"model": {"vocab_size": 5, "nhid": 2}, "text": {"dictionary": "a"}}}
    with pytest.raises(ValueError, match=f"nhid = 2 .3 here.; give .*{advice}") as error:
        check_model(there, {"vocab_size": 5, "nhid": 3}, "a.pt", free)
    assert "--srcdict" not in str(error.value)
    with pytest.raises(ValueError, match=f"{advice}.* --srcdict"):
        check_model(there, {"vocab_size": 6, "nhid": 2}, "a.pt", free)
