"""--reset-*: what is reset on resuming, and what continues. Also tests averages of checkpoints."""

from __future__ import annotations

import pytest
import torch

from tsm.plugin.cli import eval as eval_command
from tsm.plugin.cli.average import main as average
from tsm.plugin.cli.train import main
from tsm.plugin.train.average import average_checkpoints
from tsm.plugin.train.checkpoint import read_checkpoint, to_bytes

from .conftest import TINY


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run with 13 updates per epoch that was stopped in its third epoch."""
    folder = tmp_path_factory.mktemp("resets") / "run"
    flags = "--max-update 30 --lr-scheduler reduce_lr_on_plateau --lr-shrink .5"
    assert main([*TINY.split(), *flags.split(), "--save-dir", str(folder)]) == 0
    return folder


def go_on(trained, tmp_path, flags: str) -> dict:
    """Continues the run in another folder; returns its last checkpoint."""
    file = trained / "checkpoint_last.pt"
    argv = [*TINY.split(), "--restore-file", str(file), "--save-dir", str(tmp_path), *flags.split()]
    assert main(argv) == 0
    return read_checkpoint(tmp_path / "checkpoint_last.pt")


SAME = "--lr-scheduler reduce_lr_on_plateau --lr-shrink .5"


def test_without_them_all_goes_on(trained, tmp_path):
    state = go_on(trained, tmp_path, f"{SAME} --max-update 31")["train_state"]
    assert (state["update"], state["epoch"], state["index"]) == (31, 3, 5)


def test_reset_optimizer_takes_another_one(trained, tmp_path, capsys):
    file = trained / "checkpoint_last.pt"
    argv = [*TINY.split(), *SAME.split(), "--restore-file", str(file), "--optimizer", "sgd"]
    assert main([*argv, "--save-dir", str(tmp_path / "no")]) == 2
    assert "has optimizer name = 'adam'" in capsys.readouterr().err
    found = go_on(
        trained, tmp_path, f"{SAME} --reset-optimizer --optimizer sgd --max-update 2 --lr 0"
    )
    state, before = found["train_state"], read_checkpoint(file)
    assert (state["update"], state["epoch"], state["index"]) == (2, 3, 6)
    assert found["config"]["optimizer"]["name"] == "sgd"
    for name, value in before["model"].items():  # --lr 0: restored and unchanged
        assert torch.equal(found["model"][name], value)


def test_reset_lr_scheduler_takes_another_one(trained, tmp_path):
    found = go_on(trained, tmp_path, "--reset-lr-scheduler --lr-scheduler fixed --max-update 31")
    assert found["train_state"]["scheduler"] == {} and found["train_state"]["update"] == 31
    assert found["optimizer"]["state"][0]["step"] == 31


def test_reset_dataloader_begins_the_data_anew(trained, tmp_path):
    state = go_on(trained, tmp_path, f"{SAME} --reset-dataloader --max-update 32")["train_state"]
    assert (state["update"], state["epoch"], state["index"]) == (32, 1, 2)
    assert state["epoch_meter"]["steps"] == 2 * 4 * 20


def test_reset_meters_forgets_the_best(trained, tmp_path):
    before = read_checkpoint(trained / "checkpoint_last.pt")["train_state"]
    found = go_on(trained, tmp_path, f"{SAME} --reset-meters --max-update 31 --lr 100")
    state = found["train_state"]
    assert state["best"] > before["best"] and state["best_update"] == 31
    assert state["steps"] == 4 * 20


def test_the_mean_of_checkpoints(trained, tmp_path, capsys):
    files = [trained / f"checkpoint{n}.pt" for n in (1, 2)]
    out = tmp_path / "mean.pt"
    assert average([str(trained), "--last", "2", "--output", str(out)]) == 0
    assert f"the mean of 2 checkpoints ({files[0]}, {files[1]})" in capsys.readouterr().out
    first, second, mean = (read_checkpoint(path)["model"] for path in (*files, out))
    for name in mean:
        wanted = ((first[name].double() + second[name].double()) / 2).to(mean[name].dtype)
        assert torch.equal(mean[name], wanted) and not torch.equal(mean[name], second[name]), name
    assert eval_command.main(["--path", str(out), "--cpu"]) == 0
    flags = f"--finetune-from-model {out} --max-update 1 --save-dir {tmp_path / 'tuned'}"
    assert main([*TINY.split(), *flags.split()]) == 0
    assert average([*map(str, files), "--output", str(files[0])]) == 2
    assert "--output" in capsys.readouterr().err and torch.equal(
        read_checkpoint(files[0])["model"]["decoder.bias"], first["decoder.bias"]
    )
    assert average([str(trained), "--last", "9", "--output", str(out)]) == 2
    assert "--last is 9; " in capsys.readouterr().err


def test_only_checkpoints_of_one_model_have_a_mean(trained, tmp_path):
    flags = f"--max-update 1 --nhid 5 --save-dir {tmp_path}"
    assert main([*TINY.split(), *flags.split()]) == 0
    with pytest.raises(ValueError, match="holds another model: decoder_hidden_size"):
        average_checkpoints([trained / "checkpoint1.pt", tmp_path / "checkpoint_last.pt"])
    flags = f"--max-update 1 --seed 7 --save-dir {tmp_path / 'seed'}"
    assert main([*TINY.split(), *flags.split()]) == 0
    with pytest.raises(
        ValueError,
        match="with --seed 7, the previous one with 1; accepted: checkpoints of one run",
    ):
        average_checkpoints([trained / "checkpoint1.pt", tmp_path / "seed" / "checkpoint_last.pt"])
    with pytest.raises(ValueError, match="accepted: one or more"):
        average_checkpoints([])
    nameless = read_checkpoint(trained / "checkpoint2.pt")
    del nameless["config"]["model"]
    (tmp_path / "nameless.pt").write_bytes(to_bytes(nameless))
    with pytest.raises(ValueError, match=r"config\.model is None; accepted: the settings of"):
        average_checkpoints([trained / "checkpoint1.pt", tmp_path / "nameless.pt"])


@pytest.mark.parametrize(
    "flags, told",
    [
        ("--lr 0.02", True),
        ("--lr 0.02 --reset-lr-scheduler --max-update 90", False),
        ("", False),
    ],
)
def test_a_schedule_that_leaves_little_of_a_new_rate(trained, tmp_path, capsys, flags, told):
    """Of a cosine that ends with this update."""
    cosine = f"--lr-scheduler cosine --max-update 31 --log-format simple {flags}"
    if "--reset-lr-scheduler" not in flags:
        file = tmp_path / "first"
        argv = [*TINY.split(), "--lr-scheduler", "cosine", "--max-update", "30"]
        assert main([*argv, "--save-dir", str(file)]) == 0
        trained = file
    capsys.readouterr()
    go_on(trained, tmp_path / "second", cosine)
    out = capsys.readouterr().out
    assert ("the schedule multiplies lr by 0 now; --reset-lr-scheduler" in out) == told
