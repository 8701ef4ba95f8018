"""NT-ASGD's trigger and averages, learning-rate schedules, weight-decay groups."""

from __future__ import annotations

import math

import pytest
import torch

from tsm.plugin import build_model
from tsm.plugin.train.nt_asgd import NonMonotonicASGD
from tsm.plugin.train.optim import OPTIMIZERS, AdamConfig, make_optimizer, parameter_groups
from tsm.plugin.train.schedules import LR_SCHEDULERS
from tsm.plugin.train.settings import LoopConfig

from .conftest import shape_of_log


def descend(optimizer, w, gradients):
    for gradient in gradients:
        w.grad = torch.tensor([gradient])
        optimizer.step()


def test_average_of_the_iterates_since_the_trigger():
    w = torch.nn.Parameter(torch.zeros(1))
    optimizer = NonMonotonicASGD([w], lr=1.0, start_update=2)
    descend(optimizer, w, [1.0, 2.0, 4.0, 8.0])
    assert w.item() == -15
    with optimizer.evaluation_weights():
        assert w.item() == (-7 - 15) / 2
    assert w.item() == -15


def test_the_step_of_weights_that_are_not_contiguous():
    """A transposed gradient, a weight that is a part of a larger array, and two types at once."""
    torch.manual_seed(1)
    whole = torch.randn(3, 8)
    others = whole[:, 4:].clone()
    weights = [torch.randn(3, 4), whole[:, :4], torch.randn(5).double()]
    gradients = [torch.randn(4, 3).t(), torch.randn(3, 4), torch.randn(5).double()]
    for pick in ([0], [1], [0, 1, 2]):
        trained = [torch.nn.Parameter(weights[i]) for i in pick]
        expected = [
            w.detach() - 0.5 * (gradients[i] + 0.1 * w.detach())
            for i, w in zip(pick, trained, strict=True)
        ]
        for i, w in zip(pick, trained, strict=True):
            w.grad = gradients[i]
        NonMonotonicASGD([{"params": trained, "weight_decay": 0.1}], lr=0.5).step()
        torch.testing.assert_close([w.detach() for w in trained], expected)
    assert torch.equal(whole[:, 4:], others)


def test_trigger_is_the_published_one():
    """Averaging begins when more than n losses are recorded and the new one is above the smallest of all but
    the last n."""
    losses = [9, 8, 7, 6, 5.5, 5.4, 5.3, 5.2, 6, 6, 6, 6, 6, 6]
    w = torch.nn.Parameter(torch.zeros(1))
    optimizer = NonMonotonicASGD([w], nonmono=5)
    begun = [optimizer.on_validation(loss) for loss in losses]
    record: list[float] = []
    expected = None
    for i, loss in enumerate(losses):
        if expected is None and len(record) > 5 and loss > min(record[:-5]):
            expected = i
        record.append(loss)
    assert begun.index(True) == expected and begun.count(True) == 1


def test_switch_in_training_and_evaluation_by_the_average(runs):
    log = runs.root / "log"
    flags = (
        f"--optimizer nt_asgd --lr 8 --nonmono 1 --max-epoch 25 --log-format json --log-file {log}"
    )
    runs("s", flags)
    notes = [e["text"] for e in shape_of_log(log) if e["event"] == "note"]
    assert any("NT-ASGD starts averaging" in text for text in notes)
    assert runs.checkpoint("s")["optimizer"]["nt_asgd"]["averaged"] > 0


def schedule(name, base=1.0, total=None, **settings):
    cls = LR_SCHEDULERS.get(name)
    return cls(cls.Config(**settings), base, total)


def test_schedules():
    assert [schedule("fixed", warmup_updates=4).factor(u) for u in (1, 2, 4, 9)] == [
        0.25,
        0.5,
        1,
        1,
    ]
    cosine = schedule("cosine", total=110, warmup_updates=10, min_lr=0.1)
    assert cosine.factor(5) == 0.5 and cosine.factor(10) == 1
    assert cosine.factor(60) == pytest.approx(0.55) and cosine.factor(110) == pytest.approx(0.1)
    assert cosine.factor(500) == pytest.approx(0.1)
    root = schedule("inverse_sqrt", warmup_updates=100)
    assert root.factor(50) == 0.5 and root.factor(400) == 0.5
    with pytest.raises(ValueError, match="lr_period_updates is 0"):
        schedule("cosine")
    with pytest.raises(ValueError, match="lr_period_updates is -5; accepted: 0 or more"):
        schedule("cosine", lr_period_updates=-5)


def test_plateau_and_its_state():
    plateau = schedule("reduce_lr_on_plateau", lr_shrink=0.5, lr_patience=1)
    seen = []
    for loss in [3.0, 2.0, 2.0, 2.5, 1.0, 1.0, 1.0, 1.0, 1.0]:
        plateau.on_validation(loss)
        seen.append(plateau.factor(1))
    assert seen == [1, 1, 1, 0.5, 0.5, 0.5, 0.25, 0.25, 0.125]
    other = schedule("reduce_lr_on_plateau", lr_shrink=0.5, lr_patience=1)
    other.load_state_dict(plateau.state_dict())
    assert other.factor(1) == 0.125
    for threshold in (-0.1, 1.0, float("nan")):
        with pytest.raises(ValueError, match=r"lr_threshold is .*; accepted: 0 or more, below 1"):
            schedule("reduce_lr_on_plateau", lr_threshold=threshold)


def test_frozen_biases_have_no_weight_decay():
    model = build_model("mts_lstm_lm", vocab_size=9, decoder_hidden_size=4)
    decayed, apart = parameter_groups(model, 0.1)
    assert decayed["weight_decay"] == 0.1 and apart["weight_decay"] == 0
    frozen = [layer.bias for layer in model.layers if "frozen" in layer._buffers]
    assert [id(p) for p in apart["params"]] == [id(p) for p in frozen] and frozen
    everything = sum(p.numel() for g in (decayed, apart) for p in g["params"])
    assert everything == sum(p.numel() for p in model.parameters())


def test_every_optimizer_lowers_a_loss():
    for name in OPTIMIZERS:
        model = build_model("lstm_lm", vocab_size=5, decoder_hidden_size=4)
        settings = OPTIMIZERS.get(name).config(lr=0.02)
        optimizer = make_optimizer(name, model, settings)
        x = torch.arange(20).view(2, 10) % 5
        losses = []
        for _ in range(30):
            logits, _ = model(x[:, :-1])
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), x[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert losses[-1] < losses[0] and math.isfinite(losses[-1]), name


def test_adamw_decays_the_weights_apart_from_the_gradient():
    """If the gradient is 0, Adam's L2 penalty gives a step of lr, and AdamW's decay gives one of lr x decay x
    weight."""
    for name, step in (("adam", 0.1), ("adamw", 0.1 * 0.5 * 4.0)):
        w = torch.nn.Linear(1, 1, bias=False)
        torch.nn.init.constant_(w.weight, 4.0)
        optimizer = make_optimizer(name, w, OPTIMIZERS.get(name).config(lr=0.1, weight_decay=0.5))
        w.weight.grad = torch.zeros(1, 1)
        optimizer.step()
        assert w.weight.item() == pytest.approx(4.0 - step), name


def test_adamw_by_its_flags(runs):
    """One update with decay d equals one without decay, minus lr x d x the initial weights."""
    flags = {"start": "--lr 0", "plain": "--weight-decay 0", "decayed": "--weight-decay .5"}
    for name, more in flags.items():
        assert runs(name, f"--optimizer adamw --max-update 1 {more}") == 0
    start, plain, decayed = (runs.checkpoint(name)["model"] for name in flags)
    for name, first in start.items():
        assert torch.allclose(decayed[name], plain[name] - 0.01 * 0.5 * first, atol=1e-7), name
    assert any((decayed[name] - plain[name]).abs().max() > 1e-4 for name in start)


def test_adam_betas():
    model = build_model("lstm_lm", vocab_size=5, decoder_hidden_size=4)
    optimizer = make_optimizer("adam", model, AdamConfig(adam_betas="(0.8, 0.9)"))
    assert optimizer.param_groups[0]["betas"] == (0.8, 0.9)
    with pytest.raises(ValueError, match="adam_betas is '1'"):
        make_optimizer("adam", model, AdamConfig(adam_betas="1"))


def test_max_update_alone_sets_no_limit_of_epochs():
    assert LoopConfig().max_epoch == 10
    assert LoopConfig(max_update=12_000).max_epoch == 0
    assert LoopConfig(max_update=12_000, max_epoch=3).max_epoch == 3
