"""`Trainer`: the command's training, called from Python, its callbacks, and its outputs."""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from tsm.plugin import Trainer, load_checkpoint
from tsm.plugin.cli.preprocess import main as preprocess
from tsm.plugin.train.progress import WandbWriter

from .conftest import TINY

SETTINGS = dict(decoder_embed_dim=6, decoder_hidden_size=7, generated_tokens=1000, batch_size=4)
SETTINGS |= dict(tokens_per_sample=20, log_format="none", log_interval=1, cpu=True, lr=0.01)


@pytest.fixture
def make(tmp_path):
    def make(name: str, **more) -> Trainer:
        return Trainer("plstm_lm", save_dir=str(tmp_path / name), **{**SETTINGS, **more})

    return make


def test_it_is_the_command(make, runs):
    assert runs("command", "--max-update 5", TINY) == 0
    trainer = make("python", max_update=5)
    summary = trainer.fit()
    wanted = runs.checkpoint("command")["model"]
    for name, value in trainer.model.state_dict().items():
        assert torch.equal(value, wanted[name]), name
    assert summary["updates"] == 5
    assert trainer.evaluate("valid")["loss"] == summary["best_valid_loss"]
    assert trainer.evaluate("test")["ppl"] > 1 and (trainer.save_dir / "config.yaml").exists()
    model, _ = load_checkpoint(trainer.save_dir / "checkpoint_last.pt")
    assert torch.equal(model.decoder.bias, trainer.model.decoder.bias)


def test_a_callback_sees_every_report_and_may_stop(make):
    seen = []

    def at_three(trainer, kind, values):
        seen.append(kind)
        if kind == "train" and values["update"] == 3:
            trainer.stop()

    first = make("stop", max_update=5, callbacks=[at_three])
    assert first.fit()["stopped"] == "Trainer.stop() asked to stop"
    assert first.evaluate("test")["loss"] > 1
    assert seen == ["note", "start", "train", "train", "train", "done", "note"]
    assert make("stop", max_update=5).fit()["updates"] == 5  # goes on where it stopped
    whole = make("whole", max_update=5)
    whole.fit()
    again = make("stop", max_update=5)
    again.fit()
    for name, value in whole.model.state_dict().items():
        assert torch.equal(value, again.model.state_dict()[name]), name


def test_what_is_wrong_is_said(make, tmp_path):
    with pytest.raises(ValueError, match="unknown setting 'learning_rat'"):
        make("x", learning_rat=1)
    for name, value in {"lr": "0.1", "max_update": 2.5, "bf16": "no"}.items():
        with pytest.raises(ValueError, match=f"{name} is {value!r}; accepted: "):
            make("x", **{name: value})
    given = make("x", lr=np.float64(0.5), csv_file=Path("n.csv")).plan
    assert (type(given.optimizer_config.lr), given.loop.csv_file) == (float, "n.csv")
    with pytest.raises(ValueError, match="task is missing; plstm_tagger goes with adding"):
        Trainer("plstm_tagger")
    with pytest.raises(ValueError, match="because nowhere does not exist"):
        Trainer("plstm_tagger", "nowhere")
    text, folder = tmp_path / "text", tmp_path / "folder"
    text.write_text("a b a b\n" * 20)
    files = [f"--{split}pref={text}" for split in ("train", "valid", "test")]
    assert preprocess([*files, "--destdir", str(folder)]) == 0
    with pytest.raises(ValueError, match="folder was preprocessed for language_modeling"):
        Trainer("plstm_tagger", str(folder))
    with pytest.raises(ValueError, match="call fit"):
        make("x").evaluate()


def test_numbers_go_to_a_csv_file(runs):
    file = runs.root / "logs" / "numbers.csv"
    for updates in (2, 3):  # the second run appends
        assert runs("c", f"--max-update {updates} --csv-file {file}") == 0
    rows = list(csv.DictReader(file.open()))
    losses = [r for r in rows if (r["event"], r["name"]) == ("train", "loss")]
    assert [r["update"] for r in losses] == ["1", "2", "3"] and float(losses[0]["value"]) > 1
    assert {r["name"] for r in rows if r["event"] == "valid"} >= {"loss", "ppl", "best_loss"}


def test_numbers_go_to_weights_and_biases(runs, monkeypatch, capsys):
    sent, ends = [], []
    run = SimpleNamespace(log=lambda v, step: sent.append((step, v)), finish=lambda: ends.append(1))
    begun = []
    fake = SimpleNamespace(init=lambda **options: begun.append(options) or run)
    monkeypatch.setitem(sys.modules, "wandb", fake)
    assert runs("w", "--max-update 2 --wandb-project mine") == 0
    assert begun[0]["project"] == "mine" and begun[0]["config"]["max_update"] == 2
    assert [step for step, _ in sent] == [1, 2, 2] and ends == [1]
    assert sent[0][1]["train/loss"] > 1 and sent[2][1]["valid/ppl"] > 1
    monkeypatch.setitem(sys.modules, "wandb", None)
    assert runs("v", "--max-update 2 --wandb-project mine") == 2
    assert "--wandb-project needs the package wandb" in capsys.readouterr().err
    with pytest.raises(ValueError, match="pip install wandb"):
        WandbWriter("mine")
