"""Settings from a file, from a recipe and for several seeds: what they change, and which of them take
precedence."""

from __future__ import annotations

import json
import statistics

import pytest
import torch

from tsm.plugin.cli._train_presets import RECIPES, as_words
from tsm.plugin.cli.train import choose, main, parse
from tsm.plugin.reproduce.recipes.catalogue import EXPERIMENTS
from tsm.plugin.reproduce.runs.plan import plan_of
from tsm.plugin.train.plan import CONFIG, Plan, as_flags, write_config

from .conftest import TINY


def plan(*argv: object) -> Plan:
    words = [str(word) for word in argv]
    return parse(words, choose(words))


def test_a_run_s_own_config_repeats_it(runs):
    flags = "--max-update 2 --optimizer sgd --momentum .5 --lr-scheduler cosine --min-lr 1e-9"
    flags += " --no-epoch-checkpoints --dropout .1 --nhid 5,6 --criterion cross_entropy --bptt 11"
    assert runs("c", flags) == 0
    file = runs.root / "c" / CONFIG
    argv = [*TINY.split(), "--save-dir", str(runs.root / "c"), *flags.split()]
    assert plan("--config", file) == plan(*argv)
    assert main(["--config", str(file), "--save-dir", str(runs.root / "again")]) == 0
    first, again = runs.checkpoint("c"), runs.checkpoint("again")
    assert all((again["model"][name] == value).all() for name, value in first["model"].items())


def test_flags_come_before_the_file_and_the_file_before_the_recipe(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("arch: lstm_lm\nlr: 0.5\nmax-update: 7\nbf16: yes\nnhid: [3]\ndata: corpus\n")
    found = plan("--config", file, "--lr", "0.25")
    assert found.arch == "lstm_lm" and found.optimizer_config.lr == 0.25
    assert found.loop.max_update == 7 and found.loop.bf16 and found.task_config.data == "corpus"
    assert plan("other", "--config", file).task_config.data == "other"
    assert not plan("--config", file, "--no-bf16").loop.bf16
    both = plan("--config", file, "--recipe", "awd-ptb")
    assert both.arch == "lstm_lm" and both.optimizer == "nt_asgd" and both.loop.alpha == 2.0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("- 1\n", "is list; accepted: settings, name: value"),
        ("lr: {a: 1}\n", "lr is {'a': 1}; accepted: a number, a text"),
        ("lr: [1\n", "bad.yaml cannot be read"),
        ("lr: &a [1]\nnhid: *a\n", "it has an alias (*name); accepted: values written out"),
        ("arch: lstm_lm\nrecipe: awd-ptb\n", "recipe belongs on the command line"),
        ("arch: lstm_lm\nconfig: more.yaml\n", "config belongs on the command line"),
        ("arch: lstm_lm\ndata: 3\n", "data is 3; accepted: a path"),
        ("learning_rate: 1\narch: lstm_lm\n", "unknown flag '--learning-rate'; did you mean --lr?"),
        ("lr: fast\narch: lstm_lm\n", "argument --lr: invalid float value: 'fast'"),
        ("a: !!python/object/apply:os.getcwd []\n", "cannot be read"),
    ],
)
def test_a_bad_file_is_one_sentence(tmp_path, capsys, text, said):
    (tmp_path / "bad.yaml").write_text(text)
    assert main(["--config", str(tmp_path / "bad.yaml")]) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1
    assert main(["--config", str(tmp_path / "none.yaml")]) == 2
    assert "none.yaml: No such file" in capsys.readouterr().err


def test_a_flag_of_the_file_without_its_value_takes_no_word_of_the_command_line(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.yaml").write_text("arch: lstm_lm\ncsv_file: true\n")
    assert main(["corpus", "--config", "bad.yaml", "--max-update", "1"]) == 2
    assert "--csv-file: expected one argument" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["plain", "ä \u2028", "\N{GRINNING FACE}: #'\"", "\udc80"])
def test_any_path_survives_config_yaml(tmp_path, name):
    made = plan("--arch", "lstm_lm", "--save-dir", tmp_path, "--data", name)
    write_config(made)
    assert plan("--config", tmp_path / CONFIG) == made


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_is_the_experiment_s(name):
    home, variant = RECIPES[name]
    wanted = plan_of(EXPERIMENTS.get(home).variant(variant), 1, "f", "d", cpu=True, bf16=False)
    found = plan("d", "--recipe", name, "--save-dir", "f", "--cpu")
    parts = ("arch", "task", "task_config", "optimizer", "optimizer_config", "model")
    assert all(getattr(found, part) == getattr(wanted, part) for part in parts)
    assert found.loop.max_epoch == wanted.loop.max_epoch and found.loop.clip_norm == 0.25


def test_a_recipe_that_is_not_there(capsys):
    assert main(["--recipe", "awd-ptp"]) == 2
    assert "unknown recipe 'awd-ptp'; did you mean awd-ptb" in capsys.readouterr().err
    assert plan("--recipe", "copy/plstm-200").task == "copy"


def test_seeds_give_mean_and_deviation(runs, capsys):
    assert runs("s", f"--max-update 2 --seeds 2-3 --csv-file {runs.root / 'n.csv'}") == 0
    names = sorted(path.name for path in runs.root.glob("n*.csv"))
    assert names == ["n-seed2.csv", "n-seed3.csv"]
    out = capsys.readouterr().out
    found = json.loads((runs.root / "s" / "seeds.json").read_text())
    alone = [runs.state(f"s/seed{seed}")["best_values"]["loss"] for seed in (2, 3)]
    assert found["seeds"] == [2, 3] and found["loss"]["values"] == alone and alone[0] != alone[1]
    assert found["loss"]["mean"] == pytest.approx(sum(alone) / 2)
    assert found["loss"]["deviation"] == pytest.approx(statistics.stdev(alone))
    assert f"loss  {found['loss']['mean']:.4f} ± {found['loss']['deviation']:.4f}" in out
    assert runs("one", "--max-update 2 --seed 3") == 0  # as without --seeds
    assert runs.state("one")["best_values"] == runs.state("s/seed3")["best_values"]
    assert runs("s", "--max-update 2 --seeds 0") == 2


def test_the_data_seed_is_apart_from_the_seed(runs):
    flags = {"plain": "", "data": "--data-seed 2", "seed": "--seed 2"}
    for name, flag in flags.items():
        assert runs(name, f"--max-update 1 --lr 0 {flag}") == 0
    weights = {name: runs.checkpoint(name)["model"]["decoder.weight"] for name in flags}
    assert torch.equal(weights["plain"], weights["data"])  # --lr 0: as they began
    assert not torch.equal(weights["plain"], weights["seed"])
    loss = {name: runs.state(name)["best_values"]["loss"] for name in flags}
    assert loss["plain"] != loss["data"]


def test_every_setting_becomes_a_word():
    assert as_words({"lr": 0.1, "save": False, "bf16": True, "nhid": (3, 4), "p": None, "x": ""}) == [
        "--lr=0.1", "--no-save", "--bf16", "--nhid=3,4"
    ]  # fmt: skip
    flags = as_flags(plan("--arch", "plstm_lm", "--nhid", "5"))
    assert flags["arch"] == "plstm_lm" and flags["decoder_hidden_size"] == (5,)
