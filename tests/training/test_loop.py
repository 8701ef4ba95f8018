"""Training updates: compared with a plain torch loop, accumulated over several batches, and with all options
on."""

from __future__ import annotations

import dataclasses
import gc
import math
import weakref

import pytest
import torch
from torch import nn

from tsm.plugin.criterions import CRITERIONS
from tsm.plugin.tasks.base import Batch
from tsm.plugin.tasks.language_modeling import LanguageModelingConfig, LanguageModelingTask
from tsm.plugin.train.graphs import old_objects_at_rest
from tsm.plugin.train.loop import Trainer
from tsm.plugin.train.nt_asgd import NonMonotonicASGD
from tsm.plugin.train.objective import objective
from tsm.plugin.train.state import TrainState

from .conftest import TINY, assert_same, shape_of_log, without_time


def curve(runs, name, flags, base=TINY, event="train"):
    log = runs.root / f"{name}.log"
    assert runs(name, f"{flags} --log-format json --log-file {log}", base) == 0
    return [e["loss"] for e in shape_of_log(log) if e["event"] == event]


class PlainLM(nn.Module):
    """Embedding, nn.LSTM, decoder; one bias vector per gate, as in tsm."""

    def __init__(self, weights, config):
        super().__init__()
        V, E, H = (
            config["vocab_size"],
            config["decoder_embed_dim"],
            config["decoder_hidden_size"][0],
        )
        self.embed = nn.Embedding.from_pretrained(weights["stack.embed.weight"], freeze=False)
        self.lstm = nn.LSTM(E, H, num_layers=2, batch_first=True)
        self.decoder = nn.Linear(H, V)
        with torch.no_grad():
            for i in range(2):
                layer = f"stack.layers.{i}."
                getattr(self.lstm, f"weight_ih_l{i}").copy_(weights[layer + "weight_x"])
                getattr(self.lstm, f"weight_hh_l{i}").copy_(weights[layer + "weight_h"])
                getattr(self.lstm, f"bias_ih_l{i}").copy_(weights[layer + "bias"])
                getattr(self.lstm, f"bias_hh_l{i}").zero_().requires_grad_(False)
            self.decoder.weight.copy_(weights["decoder.weight"])
            self.decoder.bias.copy_(weights["decoder.bias"])

    def forward(self, x, state):
        y, state = self.lstm(self.embed(x), state)
        return self.decoder(y), tuple(s.detach() for s in state)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_same_losses_as_a_plain_torch_loop(runs, optimizer):
    """After 50 updates with carried state, clipping and random lengths, losses agree to 1e-4."""
    lr = {"sgd": 2.0, "adam": 0.01}[optimizer]
    flags = f"--arch lstm_lm --decoder-layers 2 --optimizer {optimizer} --lr {lr} --clip .25 "
    flags += "--random-bptt --generated-tokens 4000"
    runs("start", f"{flags} --lr 0 --max-update 1")
    start = runs.checkpoint("start")
    losses = curve(runs, "tsm", f"{flags} --max-update 50")

    model = PlainLM(start["model"], start["config"]["model"])
    trained = [p for p in model.parameters() if p.requires_grad]
    make = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[optimizer]
    steps = make(trained, lr=lr)
    settings = start["config"]["task"]
    fields = {f.name for f in dataclasses.fields(LanguageModelingConfig)}
    task = LanguageModelingTask(
        LanguageModelingConfig(**{k: v for k, v in settings.items() if k in fields})
    )
    plain, epoch = [], 1
    while len(plain) < 50:
        state = None
        for batch in task.train_batches(epoch):
            logits, state = model(batch.x, state)
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), batch.target.flatten())
            steps.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(trained, 0.25)
            steps.param_groups[0]["lr"] = lr * batch.lr_scale
            steps.step()
            plain.append(loss.item() / math.log(2))
        epoch += 1
    assert plain[:50] == pytest.approx(losses, abs=1e-4)
    assert losses[-1] < losses[0]


def test_accumulated_batches_are_one_large_batch(runs):
    """With two batches per update, the loss is the mean over all their tokens, even if the batches differ in
    size."""
    flags = "--optimizer sgd --lr 1 --max-epoch 2 --reset-state --update-freq"
    a = curve(runs, "a", f"{flags} 2")
    assert len(a) == 14  # two epochs of 13 batches: 6 pairs and a single one
    task = LanguageModelingTask(
        LanguageModelingConfig(generated_tokens=1000, batch_size=4, tokens_per_sample=20)
    )
    sizes = [batch.target.numel() for batch in task.train_batches(1)]
    singles = curve(runs, "b", "--optimizer sgd --lr 0 --max-epoch 1 --reset-state")
    pair = (singles[0] * sizes[0] + singles[1] * sizes[1]) / (sizes[0] + sizes[1])
    assert a[0] == pytest.approx(pair, abs=1e-6)


def test_ar_and_tar_by_hand():
    torch.manual_seed(0)
    from tsm.plugin import build_model

    model = build_model("lstm_lm", vocab_size=5, decoder_hidden_size=4, dropout=0.5)
    batch = Batch(torch.randint(5, (3, 6)), torch.randint(5, (3, 6)))
    criterion = CRITERIONS.get("cross_entropy")()
    torch.manual_seed(1)
    found = objective(model, criterion, batch, None, alpha=2.0, beta=3.0)
    found.backward()
    ours = [p.grad / found.count for p in model.parameters()]
    torch.manual_seed(1)
    features = model.features(batch.x)
    assert not torch.equal(features.raw, features.dropped)
    ar = 2 * (features.dropped**2).mean()
    tar = 3 * ((features.raw[:, 1:] - features.raw[:, :-1]) ** 2).mean()
    ce = nn.functional.cross_entropy(
        model.head(features.dropped).flatten(0, 1), batch.target.flatten()
    )
    torch.testing.assert_close(ours, torch.autograd.grad(ce + ar + tar, [*model.parameters()]))
    torch.testing.assert_close(found.loss / found.count, ce)
    single = Batch(batch.x[:, :1], batch.target[:, :1])
    model.zero_grad()
    objective(model, criterion, single, None, beta=1.0).backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters())


def test_a_count_on_another_device_is_refused():
    """A CUDA graph would keep a count on the host as it was during the capture."""
    from tsm.plugin import build_model

    model = build_model("lstm_lm", vocab_size=5, decoder_hidden_size=4)
    batch = Batch(torch.randint(5, (3, 6)), torch.randint(5, (3, 6)))

    def criterion(logits, batch):
        return logits.sum(), torch.ones((), device="meta")

    with pytest.raises(ValueError, match="count is on meta"):
        objective(model, criterion, batch, None)


def test_state_is_carried_and_reset(runs, monkeypatch):
    given = []
    original = Trainer.backward

    def backward(self, batch):
        given.append(self.carried)
        out = original(self, batch)
        assert self.carried is None or not any(v.requires_grad for v in self.carried[0].values())
        return out

    monkeypatch.setattr(Trainer, "backward", backward)
    runs("carried", "--max-epoch 2")
    assert [state is None for state in given] == [i % 13 == 0 for i in range(26)]
    given.clear()
    runs("reset", "--max-epoch 1 --reset-state")
    assert all(state is None for state in given)


def test_nan_stops_with_its_place_and_leaves_the_checkpoint(runs, monkeypatch, capsys):
    original = Trainer.backward

    def backward(self, batch):
        if self.state.update == 17:
            next(self.model.parameters()).data.fill_(math.nan)
        return original(self, batch)

    monkeypatch.setattr(Trainer, "backward", backward)
    assert runs("n", "--max-epoch 3") == 1
    error = capsys.readouterr().err
    assert "the loss is nan at update 18 (epoch 2, batch 5)" in error
    assert f"last good checkpoint: {runs.root / 'n' / 'checkpoint_last.pt'}" in error
    saved = runs.checkpoint("n")
    assert saved["train_state"]["update"] == 13
    assert_finite(saved)


def break_weights(monkeypatch, update):
    """Makes the update leave a weight that is not finite, although its loss and gradient are finite."""
    original = Trainer.update

    def broken(self, batches):
        original(self, batches)
        if self.state.update == update:
            self.parameters[0].data[0].fill_(math.inf)

    monkeypatch.setattr(Trainer, "update", broken)


def assert_finite(checkpoint):
    assert all(torch.isfinite(value).all() for value in checkpoint["model"].values())


@pytest.mark.parametrize(
    ("update", "flags"),
    [
        (26, "--max-epoch 3"),
        (20, "--max-epoch 3 --validate-interval-updates 20"),
        (20, "--max-update 20"),
    ],
    ids=["end of an epoch", "between", "the last one"],
)
def test_a_validation_of_nan_is_neither_judged_nor_saved(runs, monkeypatch, capsys, update, flags):
    break_weights(monkeypatch, update)
    log = runs.root / "v.log"
    assert runs("v", f"{flags} --log-format json --log-file {log}") == 1
    error = capsys.readouterr().err
    assert f"the validation loss is nan after update {update} (epoch 2); last good" in error
    assert f"checkpoint: {runs.root / 'v' / 'checkpoint_last.pt'}. A smaller --lr" in error
    assert [e["update"] for e in shape_of_log(log) if e["event"] == "valid"] == [13]
    for name in ("last", "best"):
        saved = runs.checkpoint("v", f"checkpoint_{name}.pt")
        assert saved["train_state"]["update"] == 13
        assert_finite(saved)


@pytest.mark.parametrize(
    ("update", "flags"),
    [(10, "--save-interval-updates 5"), (26, "--validate-interval 3")],
    ids=["between", "end of an epoch"],
)
def test_broken_weights_are_not_saved(runs, monkeypatch, capsys, update, flags):
    """Where nothing is validated before."""
    break_weights(monkeypatch, update)
    assert runs("w", f"--max-epoch 4 {flags}") == 1
    error = capsys.readouterr().err
    assert f"the weights are not finite after update {update} (epoch" in error
    saved = runs.checkpoint("w")
    assert 0 < saved["train_state"]["update"] < update
    assert_finite(saved)


def test_broken_weights_are_not_saved_after_a_signal(runs, monkeypatch, capsys):
    break_weights(monkeypatch, 15)
    monkeypatch.setattr(Trainer, "asked_to_stop", property(lambda self: self.state.update == 15))
    assert runs("s", "--max-epoch 4") == 1
    assert "the weights are not finite after update 15" in capsys.readouterr().err
    assert runs.state("s")["update"] == 13


@pytest.mark.parametrize(("clip", "hint"), [("1", "--lr or --clip-norm"), ("0", "--lr")])
def test_no_limit_is_not_to_be_made_smaller(runs, monkeypatch, capsys, clip, hint):
    break_weights(monkeypatch, 5)
    assert runs("h", f"--max-epoch 3 --clip-norm {clip}") == 1
    assert capsys.readouterr().err.endswith(f". A smaller {hint} may help\n")


@pytest.mark.parametrize(
    ("flags", "hint"), [("", "--reset-state may"), ("--reset-state", "A smaller --lr")]
)
def test_a_carried_memory_without_bounds_should_be_reset(runs, monkeypatch, capsys, flags, hint):
    break_weights(monkeypatch, 2)
    assert runs("n", f"--arch nru_lm --max-update 3 {flags}") == 1
    assert hint in capsys.readouterr().err


def test_a_metric_of_nan_is_never_the_best():
    state = TrainState(update=5)
    assert not state.judge(math.nan, False, {"m": math.nan}) and state.best is None
    assert state.judge(2.0, False, {"m": 2.0}) and not state.judge(math.nan, True, {"m": math.nan})
    assert (state.best, state.best_values) == (2.0, {"m": 2.0})


def test_infinite_gradient_stops_too(runs, monkeypatch, capsys):
    from tsm.plugin.train.distributed import World

    def share_gradients(self, parameters):
        for p in parameters:
            p.grad = torch.full_like(p, math.inf)

    monkeypatch.setattr(World, "share_gradients", share_gradients)
    assert runs("i", "--max-epoch 3 --update-freq 2") == 1
    error = capsys.readouterr().err
    assert "the gradient norm is" in error and "update 1 (epoch 1, batches 1 to 2)" in error
    assert "none has been written yet" in error


AWD = "--arch {} --emsize 10 --nhid 12 --nlayers 3 --optimizer nt_asgd --lr 5 --clip .25 "
AWD += "--weight-decay 1.2e-6 --random-bptt --alpha 2 --beta 1 --dropout .4 --dropouth .25 "
AWD += "--dropouti .4 --dropoute .1 --wdrop .5"


@pytest.mark.parametrize("flags", ["", "--update-freq 2", "--clip 0"])
def test_an_optimizer_that_multiplies_the_gradients_itself(runs, monkeypatch, flags):
    """The same training whether the loop or the step multiplies; without clipping the loop always does."""
    flags = f"{AWD.format('awd_lstm_lm')} --max-update 12 --asgd-start 4 {flags}"
    assert runs("loop", flags) == 0
    monkeypatch.setattr(NonMonotonicASGD, "takes_factor", True)
    factors = []
    step = NonMonotonicASGD._step

    def spy(self, trained, lr, decay, factor):
        factors.append(factor)
        return step(self, trained, lr, decay, factor)

    monkeypatch.setattr(NonMonotonicASGD, "_step", spy)
    assert runs("step", flags) == 0
    assert len(factors) == 12 and all((f is None) == ("--clip 0" in flags) for f in factors)
    assert_same(without_time(runs.checkpoint("step")), without_time(runs.checkpoint("loop")))


def test_awd_recipe_with_every_regulariser(runs):
    losses = curve(runs, "awd", f"{AWD.format('awd_lstm_lm')} --max-epoch 6 --asgd-start 40")
    assert len(losses) > 60 and losses[-1] < losses[0]
    saved = runs.checkpoint("awd")
    assert saved["optimizer"]["nt_asgd"]["averaging"]
    # the model in the file is the average; the weights being trained are kept beside it
    trained = saved["train_state"]["trained_weights"]
    name = "stack.layers.1.weight_h"
    assert not torch.equal(trained[name], saved["model"][name])
    averages = [s["average"] for s in saved["optimizer"]["state"].values()]
    assert any(
        torch.equal(saved["model"][name], average) for average in averages if average.dim() == 2
    )


def test_frozen_biases_keep_their_bits(runs):
    """With weight decay and momentum, the values frozen by multi-timescale init stay the same, and the others
    change."""
    flags = AWD.format("mts_lstm_lm").replace("nt_asgd", "sgd --momentum .9")
    flags = flags.replace("1.2e-6", "1e-2")
    runs("start", f"{flags} --lr 0 --momentum 0 --max-update 1")
    runs("mts", f"{flags} --max-epoch 2")
    before, after = (runs.checkpoint(n)["model"] for n in ("start", "mts"))
    frozen = [name for name in after if name.endswith(".frozen")]
    assert len(frozen) == 2  # the third layer is free
    for name in frozen:
        bias = name.replace("frozen", "bias")
        mask = after[name]
        assert mask.any() and not mask.all()
        assert_same(after[bias][mask], before[bias][mask])
        assert not torch.equal(after[bias][~mask], before[bias][~mask])


def test_bf16_trains(runs):
    full = curve(runs, "f32", "--max-update 20")
    half = curve(runs, "bf16", "--max-update 20 --bf16")
    assert half != full
    assert half == pytest.approx(full, abs=0.05)
    dtypes = {value.dtype for value in runs.checkpoint("bf16")["model"].values()}
    assert dtypes == {torch.float32}


@pytest.mark.parametrize(
    "flags",
    [
        "--task copy --arch plstm_tagger --copy-length 5 --copy-train 40 --copy-valid 20",
        "--task adding --arch lstm_tagger --adding-length 9 --adding-updates 3 --adding-valid 20",
        "--task frequency --arch plstm_classifier --frequency-train 40 --frequency-valid 20 --eps 1e-5",
        "--task frequency --arch lstm_classifier --frequency-train 40 --frequency-valid 20",
        "--task dyck2 --arch mts_lstm_tagger --dyck-train 40 --dyck-valid 20 --dyck-test 20",
    ],
    ids=lambda flags: "-".join(flags.split()[1:4:2]),
)
def test_other_tasks_through_the_same_command(runs, flags):
    base = "--cpu --batch-size 10 --decoder-hidden-size 6 --max-epoch 2 --log-format none"
    metric = "right" if "adding" in flags else "accuracy"
    flags += f" --best-checkpoint-metric {metric} --maximize-best-checkpoint-metric"
    assert runs("t", flags, base) == 0
    state = runs.state("t")
    assert 0 <= state["best"] <= 1 and state["best"] == state["best_values"][metric]
    assert math.isfinite(state["best_values"]["loss"])


def test_criterions_by_hand():
    logits, weight = torch.randn(2, 3, 4), torch.tensor([[1.0, 0, 2], [0, 1, 1]])
    target = torch.randint(4, (2, 3))
    total, count = CRITERIONS.get("cross_entropy")()(logits, Batch(logits, target, weight=weight))
    picked = -logits.log_softmax(-1).gather(-1, target[..., None])[..., 0]
    torch.testing.assert_close(total, (picked * weight).sum())
    assert count == 5
    wanted = torch.rand(2, 3, 4)
    total, count = CRITERIONS.get("sigmoid_mse")()(logits, Batch(logits, wanted))
    torch.testing.assert_close(total, ((logits.sigmoid() - wanted) ** 2).mean(-1).sum())
    assert count == 6
    with pytest.raises(ValueError, match=r"target has shape \(2, 3\); accepted"):
        CRITERIONS.get("mse")()(logits, Batch(logits, target))


class Cycle:
    def __init__(self):
        self.itself = self


def test_the_collector_leaves_old_objects_alone():
    gone: list[str] = []
    garbage, kept = Cycle(), Cycle()
    for name, cycle in (("garbage", garbage), ("kept", kept)):
        weakref.finalize(cycle, gone.append, name)
    del garbage
    with old_objects_at_rest():
        assert gone == ["garbage"]
        weakref.finalize(Cycle(), gone.append, "new")
        del kept, cycle
        gc.collect()
        assert gone == ["garbage", "new"]
        with old_objects_at_rest():  # a run within another one
            pass
        assert gc.get_freeze_count() > 0
    assert gc.get_freeze_count() == 0
    gc.collect()
    assert gone == ["garbage", "new", "kept"]
