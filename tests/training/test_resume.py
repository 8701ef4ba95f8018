"""Stop anywhere and resume: the final checkpoint has the same bits as that of an uninterrupted run."""

from __future__ import annotations

import dataclasses
import os
import signal

import pytest
import torch

from tsm.plugin.tasks.language_modeling import LanguageModelingTask
from tsm.plugin.train.checkpoint import to_bytes
from tsm.plugin.train.optim import OPTIMIZERS
from tsm.plugin.train.resume import KERNELS, _keep_settings

from .conftest import assert_same, shape_of_log, without_time

# 13 batches per epoch (250 tokens per stream, 20 per batch)
REGULARISED = "--dropout .2 --dropouth .2 --dropouti .2 --dropoute .1 --wdrop .3 --alpha 2 --beta 1"
RECIPES = {
    "adam": "--max-epoch 3",
    "dropout": f"--max-epoch 3 --decoder-layers 2 {REGULARISED}",
    "awd": f"--max-epoch 3 --optimizer nt_asgd --lr 2 --random-bptt --asgd-start 9 {REGULARISED}",
    "accumulate": "--max-epoch 3 --update-freq 2 --optimizer sgd --momentum .9 --dropout .2",
    "restarts": "--max-epoch 3 --decoder-layers 2 --reset-share .3 --dropout .2",
    "plateau": "--max-epoch 4 --optimizer rmsprop --lr-scheduler reduce_lr_on_plateau --lr .3",
    "between": "--max-epoch 2 --validate-interval-updates 5 --save-interval-updates 3",
    "cosine": "--max-epoch 2 --lr-scheduler cosine --warmup-updates 5 --reset-state",
}


def losses(path):
    return [(e["update"], e["loss"]) for e in shape_of_log(path) if e["event"] == "train"]


def logged(runs, name):
    return f"--log-format json --log-file {runs.root / name}.log"


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("stops", [(1, 13), (4, 5, 20)], ids=str)
def test_stop_and_resume_is_bitwise(runs, recipe, stops, capsys):
    flags = RECIPES[recipe]
    runs("whole", f"{flags} {logged(runs, 'whole')}")
    whole = without_time(runs.checkpoint("whole"))
    last = whole["train_state"]["update"]
    for stop in stops:
        if stop < last:
            runs.stop_after(stop, "broken", f"{flags} {logged(runs, 'broken')}")
    runs("broken", f"{flags} {logged(runs, 'broken')}")
    assert_same(without_time(runs.checkpoint("broken")), whole)
    assert losses(runs.root / "broken.log") == losses(runs.root / "whole.log")
    best = [without_time(runs.checkpoint(n, "checkpoint_best.pt")) for n in ("broken", "whole")]
    assert_same(*best)


def test_max_update_can_be_raised(runs):
    """A run that --max-update ended continues as if it had never ended."""
    flags = "--optimizer nt_asgd --nonmono 1 --lr 20 --dropout .2 --max-epoch 0"
    runs("whole", f"{flags} --max-update 40")
    runs("broken", f"{flags} --max-update 7")
    runs("broken", f"{flags} --max-update 40")
    whole, broken = (without_time(runs.checkpoint(n)) for n in ("whole", "broken"))
    assert_same(broken["model"], whole["model"])
    assert_same(broken["optimizer"], whole["optimizer"])


def test_a_validation_that_was_cut_short_is_made_up_for(runs, monkeypatch):
    flags = "--max-epoch 2 --lr-scheduler reduce_lr_on_plateau --validate-interval-updates 4"
    runs("whole", flags)
    original = LanguageModelingTask.eval_batches
    calls = []

    def eval_batches(self, split):
        calls.append(split)
        for i, batch in enumerate(original(self, split)):
            if i == 0 and len(calls) in (1, 4):
                os.kill(os.getpid(), signal.SIGTERM)
            yield batch

    monkeypatch.setattr(LanguageModelingTask, "eval_batches", eval_batches)
    stopped_at = []
    for _ in range(3):
        code = runs("broken", flags)
        stopped_at.append((code, runs.state("broken")["update"]))
    assert stopped_at == [(130, 4), (130, 12), (0, 26)]
    assert_same(without_time(runs.checkpoint("broken")), without_time(runs.checkpoint("whole")))


def test_patience_and_best_survive(runs):
    """--patience keeps counting after a stop, and the best value stays the best (fairseq #3531)."""
    flags = "--optimizer sgd --lr 0 --max-epoch 9 --patience 4"
    runs.stop_after(30, "p", flags)
    state = runs.state("p")
    assert (state["epoch"], state["stale"]) == (3, 1)
    runs("p", flags)
    after = runs.state("p")
    assert (after["epoch"], after["stale"], after["best"]) == (6, 4, state["best"])
    assert after["best_update"] == 13
    runs("p", flags)  # it stays stopped
    assert runs.state("p")["update"] == after["update"]


@pytest.mark.parametrize(
    "flags",
    [
        "--best-checkpoint-metric right",
        "--best-checkpoint-metric right --maximize-best-checkpoint-metric",
        "--maximize-best-checkpoint-metric",
        "--criterion sigmoid_mse",
    ],
)
def test_what_cannot_be_compared_is_forgotten(runs, flags, capsys):
    """If the metric, its direction or the criterion changes, the next validation counts as the best so far."""
    base = "--cpu --task adding --arch lstm_tagger --adding-length 9 --adding-updates 4 "
    base += "--adding-valid 20 --batch-size 10 --decoder-hidden-size 6 --optimizer sgd --lr 0"
    runs("f", "--max-epoch 3 --log-format none", base)
    before = runs.state("f")
    assert before["best_update"] < before["update"] and before["stale"] == 2
    capsys.readouterr()
    assert runs("f", f"--max-epoch 4 {flags} --log-format simple", base) == 0
    after = runs.state("f")
    assert "the best value so far is discarded" in capsys.readouterr().out
    assert (after["best_update"], after["stale"]) == (after["update"], 0)
    name = "right" if "right" in flags else "loss"
    assert after["best"] == after["best_values"][name]
    assert runs.checkpoint("f", "checkpoint_best.pt")["train_state"]["update"] == after["update"]


def test_a_finished_run_does_nothing_more(runs):
    runs("done", "--max-epoch 1")
    before = (runs.root / "done" / "checkpoint_last.pt").read_bytes()
    assert runs("done", "--max-epoch 1") == 0
    assert (runs.root / "done" / "checkpoint_last.pt").read_bytes() == before


def test_a_checkpoint_of_another_machine_takes_this_one_s_kernels(runs):
    """A run saved where Adam is fused (on a GPU) and continued where it is not gives the same results as one
    saved here."""
    for name in ("here", "elsewhere"):
        runs(name, "--max-epoch 1")
    path = runs.root / "elsewhere" / "checkpoint_last.pt"
    checkpoint = runs.checkpoint("elsewhere")
    for group in checkpoint["optimizer"]["param_groups"]:
        group["fused"] = True
    path.write_bytes(to_bytes(checkpoint))
    for name in ("here", "elsewhere"):
        runs(name, "--max-epoch 2")
    assert_same(*(without_time(runs.checkpoint(name)) for name in ("here", "elsewhere")))


# type of a setting -> another value for it
CHANGED = {float: lambda v: v / 2 + 0.01, int: lambda v: v + 1, str: lambda v: v.replace("9", "8")}


@pytest.mark.parametrize("name", OPTIMIZERS.names())
def test_settings_of_the_optimizer_are_this_run_s(runs, name):
    """A resumed run uses the settings it was given, and its checkpoint records them."""
    settings = dataclasses.asdict(OPTIMIZERS.get(name).config())
    flags = " ".join(
        f"--{field.replace('_', '-')} {CHANGED[type(value)](value)}"
        for field, value in settings.items()
    )
    runs("a", f"--optimizer {name} --max-update 3")
    before = runs.checkpoint("a")["optimizer"]["param_groups"]
    assert runs("a", f"--optimizer {name} --max-update 6 {flags}") == 0
    runs("fresh", f"--optimizer {name} --max-update 6 {flags}")
    after, fresh = (runs.checkpoint(n)["optimizer"]["param_groups"] for n in ("a", "fresh"))
    assert after == fresh != before


def test_progress_in_an_optimizer_s_groups_goes_on():
    """Step counts that optimizers keep in their parameter groups are restored. The choice of kernels (foreach,
    fused) is not, because it depends on the machine."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0, foreach=False)
    optimizer.param_groups[0]["progress"] = 0
    saved = {"param_groups": [{"params": [0], "lr": 2.0, "progress": 7, "foreach": True}]}
    _keep_settings(saved, optimizer, KERNELS)
    assert saved["param_groups"] == [
        {"params": [0], "lr": 2.0, "progress": 7, "foreach": False} | {"fused": None}
    ]
    _keep_settings(saved, optimizer, None)
    assert saved["param_groups"][0]["progress"] == 0 and saved["param_groups"][0]["lr"] == 2.0
