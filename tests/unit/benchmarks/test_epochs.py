"""tsm-bench epoch: a recipe's epochs with tsm's layers and with torch.nn.LSTM."""

from __future__ import annotations

import json

import pytest
import torch

from tsm.benchmarks import cli, train_cuda
from tsm.benchmarks.epoch import LAYERS, RECIPES, goals, table
from tsm.benchmarks.epochs import measure as measurement
from tsm.benchmarks.epochs.measure import measure
from tsm.benchmarks.epochs.nn_lstm import TorchLstm
from tsm.plugin.layers import Recurrent
from tsm.plugin.reproduce.data import DataRoom
from tsm.plugin.train.loop import NotFinite


@pytest.mark.parametrize("layers", LAYERS)
@pytest.mark.parametrize("recipe", RECIPES)
def test_a_tiny_run(tmp_path, recipe, layers):
    home, name, _ = RECIPES[recipe]
    room = DataRoom(tmp_path, small=True)
    row = measure(recipe, home, name, layers, room, 2, cpu=True, smoke=True)
    assert len(row.valid_losses) == 3 and row.updates > 1
    assert row.seconds == pytest.approx(row.training + row.validation + row.saving)
    assert min(row.training, row.validation, row.saving) > 0
    assert recipe in table([row]) and len(goals([row])) == (layers == "tsm")


def test_a_run_that_diverges_does_not_end_the_others(tmp_path, monkeypatch, capsys):
    def measured(recipe, home, name, layers, data, epochs):
        if layers == "nn.LSTM":
            raise NotFinite("the gradient norm is nan")
        return measurement.Row(recipe, layers, 1.5, 1.0, 0.3, 0.2, 10, [3.0])

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(train_cuda, "device_facts", dict)
    monkeypatch.setattr(measurement, "measure", measured)
    file = tmp_path / "epoch.json"
    flags = ["epoch", "--recipes", "ptb-words", "--epochs", "1", "--json", str(file)]
    assert cli.main(flags) == 0
    assert (
        "ptb-words, nn.LSTM: not measured, since the gradient norm is nan"
        in capsys.readouterr().out
    )
    assert [row["layers"] for row in json.loads(file.read_text())["rows"]] == ["tsm"]


def test_the_rival_is_an_lstm():
    layer = Recurrent("lstm", 3, 5)
    rival = TorchLstm(layer)
    x, state = torch.randn(2, 4, 3), {name: torch.rand(2, 5) for name in ("h", "c")}
    y, last = rival(x, state)
    want, (h, c) = rival.lstm(x, (state["h"][None], state["c"][None]))
    assert torch.equal(y, want) and torch.equal(last["h"], h[0]) and torch.equal(last["c"], c[0])
    assert torch.equal(rival(x)[0], rival.lstm(x)[0])
    with pytest.raises(ValueError, match="lengths"):
        rival(x, lengths=[1, 2])


def test_dropped_weights_of_the_rival():
    rival = TorchLstm(Recurrent("lstm", 3, 5, weight_dropout=0.999))
    x = torch.randn(2, 4, 3)
    rival.lstm.weight_hh_l0.data.fill_(1e3)
    assert rival.train()(x)[0].abs().sum() != rival.eval()(x)[0].abs().sum()


def test_no_rival_for_other_cells():
    with pytest.raises(ValueError, match="plstm"):
        TorchLstm(Recurrent("plstm", 3, 5))
