"""Every run has its own folder unless another one is given, and reports changed settings."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from tsm.plugin.cli.train import choose, main, parse
from tsm.plugin.train import plan

from .conftest import TINY

BASE = TINY.replace("--log-format none", "--log-format simple") + " --max-update 2"


def folder_of(flags: str) -> str:
    argv = flags.split()
    return parse(argv, choose(argv)).loop.save_dir


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_same_command_goes_on_and_another_one_does_not(here, capsys):
    assert main(BASE.split()) == 0
    (folder,) = here.glob("runs/*")
    assert folder.name.startswith("language_modeling-plstm_lm-")
    assert f"save dir runs/{folder.name}" in capsys.readouterr().out
    assert main([*BASE.split(), "--max-update", "3"]) == 0  # a longer run is still the same run
    assert f"continuing from runs/{folder.name}/checkpoint_last.pt" in capsys.readouterr().out
    assert main([*BASE.split(), "--nhid", "5"]) == 0
    assert "continuing" not in capsys.readouterr().out and len([*here.glob("runs/*")]) == 2


def test_what_trains_is_in_the_name_and_what_does_not_is_not(here):
    base = "--arch plstm_lm --optimizer sgd"
    name = folder_of(base)
    for same in (
        "--patience 3",
        "--max-epoch 3",
        "--device cpu",
        "--log-format json",
        "--lr 0.001",
    ):
        assert folder_of(f"{base} {same}") == name, same
    others = ["--lr 1", "--seed 2", "--momentum .5", "--bf16", "--nhid 9", "--bptt 9", "a", "b/a"]
    others += ["--criterion mse", "--lr-scheduler cosine", "--update-freq 2", "--dropout .1"]
    others += ["--reset-share .5"]
    assert len({name, *(folder_of(f"{base} {other}") for other in others)}) == len(others) + 1
    assert folder_of(f"{base} x/../a") == folder_of(f"{base} a")
    assert folder_of(f"{base} --save-dir mine") == "mine"


def test_a_new_setting_does_not_rename_folders(here, monkeypatch):
    base = "--arch plstm_lm --lr .1 --seed 2"
    name = folder_of(base)
    monkeypatch.setattr(plan, "TRAINS", tuple(n for n in plan.TRAINS if n != "reset_share"))
    assert folder_of(base) == name


def test_a_changed_default_begins_a_new_folder(here):
    """The task of a --user-dir may be edited between two runs."""
    argv = ["--arch", "plstm_lm"]
    made = parse(argv, choose(argv))
    kinds = [
        dataclasses.make_dataclass("Config", [("data", str, ""), ("length", int, length)])
        for length in (20, 9)
    ]
    one, two = (plan.run_folder(dataclasses.replace(made, task_config=kind())) for kind in kinds)
    assert one != two


def test_no_save_restores_nothing(runs, capsys):
    assert runs("r", "--max-update 2") == 0
    before = sorted((path.name, path.stat().st_mtime_ns) for path in (runs.root / "r").iterdir())
    assert runs("r", "--max-update 3 --no-save --log-format simple --nhid 5") == 0
    assert "continuing" not in capsys.readouterr().out
    after = sorted((path.name, path.stat().st_mtime_ns) for path in (runs.root / "r").iterdir())
    assert before == after
    file = runs.root / "r" / "checkpoint_last.pt"  # but a named checkpoint is read
    assert runs("r", f"--max-update 3 --no-save --log-format simple --restore-file {file}") == 0
    assert "continuing" in capsys.readouterr().out


def test_changed_settings_are_said_at_resumption(runs, capsys):
    assert runs("r", "--max-epoch 1") == 0
    assert runs("r", "--max-epoch 1 --log-format simple --patience 9 --cpu") == 0
    assert "differ" not in capsys.readouterr().out
    flags = "--max-epoch 2 --log-format simple --lr 0.5 --dropout .1 --clip-norm 2 --bptt 10"
    assert runs("r", flags) == 0
    said = next(line for line in capsys.readouterr().out.splitlines() if "differ" in line)
    for change in ("lr 0.01 -> 0.5", "dropout 0.0 -> 0.1", "clip_norm 1.0 -> 2.0"):
        assert change in said
    assert "tokens_per_sample 20 -> 10" in said and said.count("->") == 4


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("--device cuda", "--device cuda: "),
        ("--device cuda:7", "--device cuda:7: "),
        ("--device gpu", "--device is gpu; accepted: cpu, cuda, cuda:N"),
        ("--device cuda --cpu", "--cpu and --device cuda were both given; accepted: one of them"),
    ],
)
def test_a_device_that_is_demanded_is_not_replaced(runs, capsys, monkeypatch, flags, said):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert runs("d", flags, TINY.replace("--cpu", "")) == 2
    assert said in capsys.readouterr().err
    assert runs("d", "--device cpu --max-update 1", TINY.replace("--cpu", "")) == 0


def test_of_two_gpus_the_second(monkeypatch):
    from tsm.plugin.common.device import choose_device

    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    assert str(choose_device("cuda:1")) == "cuda:1" and str(choose_device()) == "cuda:0"
    assert str(choose_device("cuda", own=1)) == "cuda:1" and str(choose_device(cpu=True)) == "cpu"
    with pytest.raises(ValueError, match="accepted here are cuda:0 to cuda:1 and cpu"):
        choose_device("cuda:2")
    with pytest.raises(ValueError, match="process 2 of this machine has no GPU of its own"):
        choose_device(own=2)
    with pytest.raises(ValueError, match="for several processes"):
        choose_device("cuda:1", own=0)


def test_a_default_that_is_given_changes_nothing(here):
    """Passing the default that --help shows changes nothing, except for settings that may depend on the
    data."""
    from tsm.plugin.archs import config_class, get_architecture
    from tsm.plugin.cli._train_presets import as_words
    from tsm.plugin.train.plan import OPEN

    for arch in ("plstm_lm", "awd_lstm_lm", "lstm_classifier"):
        usual = {field.name: field.default for field in dataclasses.fields(config_class(arch))}
        usual |= get_architecture(arch).preset({})
        given = {name: value for name, value in usual.items() if name not in OPEN}
        base = f"--arch {arch}"
        for words in (as_words(given), *([word] for word in as_words(given))):
            assert folder_of(f"{base} {' '.join(words)}") == folder_of(base), words
    assert folder_of("--arch plstm_lm --criterion cross_entropy") == folder_of("--arch plstm_lm")
    fixed = "--arch lstm_classifier --fixed-length"  # this makes --read-at default to end
    assert folder_of(f"{fixed} --read-at last") != folder_of(fixed)
