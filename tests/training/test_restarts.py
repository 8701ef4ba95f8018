"""--reset-share: where the state is carried, a share of the rows starts a segment from a zero state."""

from __future__ import annotations

import math

import pytest
import torch

from tsm.plugin.cli.train import main
from tsm.plugin.layers import Recurrent
from tsm.plugin.train import loop
from tsm.plugin.train.loop import Trainer
from tsm.plugin.train.objective import restart
from tsm.plugin.train.resume import changed_settings

from .conftest import TINY, assert_same, shape_of_log

ROWS, SHARE = 10_000, 0.3


@pytest.fixture
def given(monkeypatch) -> list[tuple]:
    """(carried state, state from which the row starts) of every batch."""
    found = []
    original = loop.objective

    def objective(model, criterion, batch, state, *rest):
        found[-1] += (state,)
        return original(model, criterion, batch, state, *rest)

    backward = Trainer.backward

    def spy(self, batch):
        found.append((self.carried,))
        return backward(self, batch)

    monkeypatch.setattr(loop, "objective", objective)
    monkeypatch.setattr(Trainer, "backward", spy)
    return found


def stacked(cell, value: float) -> list[dict]:
    """States of two layers with this value everywhere."""
    layers = [Recurrent(cell.name, 2, size) for size in (3, 4)]
    zeros = [layer.zero_state(ROWS) for layer in layers]
    return [{name: torch.full_like(v, value) for name, v in state.items()} for state in zeros]


def columns(state: list[dict]) -> torch.Tensor:
    """All states of all layers, [B, widths]."""
    return torch.cat([value for layer in state for value in layer.values()], 1)


@pytest.mark.parametrize("value", [1.5, math.nan, math.inf])
def test_whole_rows_start_from_zero(cell, value):
    """A row is zero in all states of all layers or keeps its bits, and the share is the one asked for."""
    before = stacked(cell, value)
    after = restart(before, SHARE)
    assert [list(layer) for layer in after] == [list(layer) for layer in before]
    zero = columns(after) == 0
    rows = zero.all(1)
    assert torch.equal(zero.any(1), rows)
    assert_same(columns(after)[~rows], columns(before)[~rows])
    deviation = math.sqrt(SHARE * (1 - SHARE) / ROWS)
    assert abs(rows.double().mean() - SHARE) < 5 * deviation
    assert (columns(restart(before, 1.0)) == 0).all()
    assert columns(before).ne(0).all()  # what was given is unchanged


def test_rows_are_drawn_anew_every_time(cell):
    state = stacked(cell, 1.0)
    drawn = [columns(restart(state, 0.5))[:, 0] for _ in range(2)]
    assert not torch.equal(*drawn)


def test_nothing_is_drawn_without_need(cell):
    """A share of 0, or no state: the random numbers of dropout stay the same."""
    state, before = stacked(cell, 1.0), torch.get_rng_state()
    assert restart(state, 0.0) is state
    assert restart(None, SHARE) is None
    assert torch.equal(torch.get_rng_state(), before)
    restart(state, SHARE)
    assert not torch.equal(torch.get_rng_state(), before)


def losses(runs, name, flags):
    log = runs.root / f"{name}.log"
    assert runs(name, f"{flags} --log-format json --log-file {log}") == 0
    return [e["loss"] for e in shape_of_log(log) if e["event"] == "train"]


def test_a_share_of_1_trains_like_reset_state(runs, cell):
    flags = f"--arch lstm_lm --cell {cell.name} --decoder-layers 2 --max-update 5"
    carried = losses(runs, "carried", flags)
    reset = losses(runs, "reset", f"{flags} --reset-state")
    assert losses(runs, "all", f"{flags} --reset-share 1") == reset != carried
    for part in ("model", "optimizer"):
        assert_same(runs.checkpoint("all")[part], runs.checkpoint("reset")[part])


def test_a_share_of_0_is_the_default(runs):
    flags = "--max-update 16 --decoder-layers 2 --dropout .2 --wdrop .3"
    assert losses(runs, "zero", f"{flags} --reset-share 0") == losses(runs, "default", flags)
    zero, default = (runs.state(name)["generators"] for name in ("zero", "default"))
    assert_same(zero, default)


def test_training_sees_both_kinds_of_rows(runs, given):
    """The state is carried from batch to batch, also within an update, and some rows of it start from zero."""
    assert runs("some", "--max-epoch 2 --decoder-layers 2 --update-freq 2 --reset-share .3") == 0
    assert [carried is None for carried, _ in given] == [i % 13 == 0 for i in range(26)]
    zeros = []
    for carried, start in given:
        if carried is not None:
            old, new = columns(carried), columns(start)
            zero = (new == 0).all(1)
            assert_same(new[~zero], old[~zero])
            zeros += zero.tolist()
        else:
            assert start is None
    assert len(zeros) == 4 * 24 and 0.1 < sum(zeros) / len(zeros) < 0.5


@pytest.mark.parametrize(("share", "code"), [("1", 0), ("0", 1)])
def test_a_carried_state_that_is_not_finite_ends_with_its_row(runs, monkeypatch, share, code):
    original = Trainer.backward

    def backward(self, batch):
        for i, layer in enumerate(self.carried or []):
            for value in layer.values():
                value.fill_((math.nan, math.inf)[i])
        return original(self, batch)

    flags = "--decoder-layers 2 --max-update 5"
    assert runs("reset", f"{flags} --reset-state") == 0
    monkeypatch.setattr(Trainer, "backward", backward)
    assert runs("broken", f"{flags} --reset-share {share}") == code
    if code == 0:
        assert_same(runs.checkpoint("broken")["model"], runs.checkpoint("reset")["model"])


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (f"{TINY} --reset-state", "--reset-state starts every segment from a zero state"),
        (
            "--arch lstm_tagger --task copy --copy-train 40 --copy-valid 20 --cpu",
            "task 'copy' carries no state from one batch to the next",
        ),
    ],
    ids=["reset", "rows"],
)
def test_where_no_state_is_carried_it_is_refused(tmp_path, capsys, flags, why):
    folder = tmp_path / "run"
    argv = [*flags.split(), "--max-update", "1", "--save-dir", str(folder)]
    assert main([*argv, "--reset-share", "0.3"]) == 2
    error = capsys.readouterr().err
    assert error == f"tsm-train: error: --reset-share is 0.3; accepted: 0, because {why}\n"
    assert not folder.exists()
    assert main([*argv, "--reset-share", "0"]) == 0


def test_another_share_is_named_on_resuming(runs, capsys):
    assert runs("r", "--max-update 2") == 0
    assert runs("r", "--max-update 3 --reset-share .5 --log-format simple") == 0
    assert "reset_share 0.0 -> 0.5" in capsys.readouterr().out
    there = {part: {} for part in ("model", "task", "optimizer", "lr_scheduler", "loop")}
    here = {**there, "loop": {"reset_share": 0.5, "seed": 1}}
    assert changed_settings(there, here) == ["reset_share 0.0 -> 0.5"], "an older checkpoint"
