"""Reports: valid JSON, readable lines and tables, a bar, TensorBoard."""

from __future__ import annotations

import io
import json
import math

import pytest
import torch

from tsm.plugin.layers import Recurrent
from tsm.plugin.layers.choose import Route
from tsm.plugin.train import progress, run
from tsm.plugin.train.progress import BarWriter, JsonWriter, as_text, duration

from .conftest import TINY

ADDING = "--task adding --arch lstm_tagger --adding-length 9 --adding-updates 12 --adding-valid 8"
ADDING += " --decoder-hidden-size 5 --clip-norm 0 --log-interval 1 --cpu"


def test_json_lines_parse(runs, capsys):
    assert runs("j", "--max-epoch 1 --log-format json --log-interval 4") == 0
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    kinds = [event["event"] for event in events]
    assert kinds == ["note", "start", "train", "train", "train", "valid", "epoch", "done"]
    train = events[2]
    assert train["update"] == 4 and train["lr"] == 0.01
    assert train["ppl"] == pytest.approx(2 ** train["loss"])
    assert train["tokens_per_s"] > 0 and train["left"] > 0 and train["gnorm"] > 0
    assert events[1]["backend"] == "layer_cpu"
    assert events[-1]["updates"] == 13 and events[-1]["best_valid_loss"] == events[5]["loss"]


@pytest.mark.parametrize(("updates", "epochs"), [(5, 0.385), (13, 1), (16, 1.231)])
def test_a_share_of_an_epoch_counts(runs, capsys, updates, epochs):
    """An epoch has 13 updates."""
    assert runs("e", f"--max-update {updates} --max-epoch 9 --log-format json") == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["epochs"] == epochs


@pytest.mark.parametrize("base", [TINY, ADDING])
def test_a_run_that_diverges_says_so(runs, capsys, base):
    """Classes: the loss is compared with that of guessing. Numbers: with the first one."""
    for rate, diverges in ((1e3, True), (1e-3, False)):
        flags = (
            f"--max-update 12 --log-format simple --lr {rate} --save-dir {runs.root / str(rate)}"
        )
        assert runs("d", flags, base=base) == 0
        out = capsys.readouterr().out
        assert ("training has diverged: its loss is " in out) == diverges, out
        assert ("A smaller --lr" in out) == diverges


def test_the_backend_is_the_implementation_that_runs(monkeypatch):
    """The two implementations on a GPU are not both called "fused"."""
    layers = torch.nn.ModuleList([Recurrent("lstm", 2, 3), Recurrent("nru", 3, 8)])
    cpu = torch.device("cpu")
    assert run.backend(layers[0], cpu, False) == "layer_cpu"
    monkeypatch.setattr(layers[0], "route", lambda *_: Route("layer_cuda", "3 units do not fit"))
    assert run.backend(layers, cpu, False) == (
        "1 x layer_cuda (3 units do not fit), 1 x reference (cell 'nru' is not element-wise)"
    )


def test_json_has_no_infinity():
    stream = io.StringIO()
    JsonWriter(stream).event("train", {"ppl": math.inf, "loss": 1.5})
    assert json.loads(stream.getvalue()) == {"event": "train", "ppl": None, "loss": 1.5}


def test_log_file_is_appended_to(runs, capsys):
    log = runs.root / "logs" / "log.txt"
    for epochs in (1, 2):
        runs("f", f"--max-epoch {epochs} --log-file {log}")
    text = log.read_text()
    assert text.count("is reached") == 2 and "continuing from" in text
    assert capsys.readouterr().out == ""  # --log-format none


def test_pace_after_a_stop_counts_this_run_alone(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    clock = progress.Clock(total=40, done=8, before=50.0, steps=700.0)  # 700 steps unreported
    now[0] += 2.0
    values = clock.look(10, 900.0)
    assert values == {"tokens_per_s": 100.0, "left": 30.0}
    now[0] += 4.0
    assert clock.look(20, 1000.0)["tokens_per_s"] == 250.0
    assert clock.seconds() == 56.0


def test_the_first_update_is_reported_then_time_decides(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    clock = progress.Clock(total=None, done=7)
    due = []
    for update in range(8, 20):
        now[0] += 3.0
        due.append(clock.due(update, 0, 10.0))
    assert [i for i, is_due in enumerate(due) if is_due] == [0, 4, 8]
    assert [clock.due(update, 4, 10.0) for update in range(1, 9)] == [0, 0, 0, 1, 0, 0, 0, 1]


def test_the_first_update_is_reported_before_the_second_runs(runs, capsys):
    base = TINY.replace("--log-interval 1", "").replace("none", "json")
    assert runs("t", "--max-update 3 --log-seconds 1000", base) == 0
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [e["update"] for e in events if e["event"] == "train"] == [1]


def test_texts():
    values = {"epoch": 3, "update": 1200, "loss": 1.23456, "lr": 1e-4, "left": 75.0}
    line = as_text("train", {**values, "tokens_per_s": 45678.9})
    assert (
        line
        == "train | epoch 3 | update 1,200 | loss 1.235 | lr 0.0001 | left 1:15 | 45,679 tokens/s"
    )
    assert duration(3725) == "1:02:05"
    table = as_text("done", {"arch": "plstm_lm", "best_valid_ppl": 58.98})
    assert "best valid ppl  58.98" in table


def test_bar(runs):
    stream = io.StringIO()
    bar = BarWriter(stream)
    bar.begin(2, 3, 10)
    bar.tick({"loss": 1.5, "ppl": 2.83})
    bar.event("valid", {"loss": 1.25})
    bar.close()
    shown = stream.getvalue()
    assert "epoch 2" in shown and "3/10" in shown and "valid | loss 1.25" in shown
    assert runs("b", "--max-epoch 1 --log-format tqdm") == 0


def test_tensorboard(runs):
    pytest.importorskip("tensorboard")
    folder = runs.root / "tb"
    assert runs("t", f"--max-epoch 1 --tensorboard-logdir {folder}") == 0
    assert list(folder.glob("events.*"))
