"""Dynamic evaluation and the neural cache: their formulas, and their effect on a text with few distinct
words."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch

from small_models import small
from tsm.plugin.cli import eval as eval_command
from tsm.plugin.data import TokenArray
from tsm.plugin.evaluation.adapt import Adaptation, score_adapting
from tsm.plugin.evaluation.score import score_tokens

CPU = torch.device("cpu")


@pytest.fixture
def model():
    torch.manual_seed(0)
    return small("plstm_lm").eval()


def text(model, count: int) -> TokenArray:
    vocab = model.config["vocab_size"]
    return TokenArray(np.random.default_rng(1).integers(0, vocab, count), vocab)


def bits(scores) -> np.ndarray:
    return np.concatenate([s.bits for s in scores], 1)


def test_the_cache_is_grave_s_formula_in_any_segments(model):
    tokens = text(model, 40)
    a = Adaptation(size=7, theta=0.9, share=0.3)
    found = bits(score_adapting(model, tokens, 1, 5, True, CPU, a))[0]
    assert np.allclose(
        found, bits(score_adapting(model, tokens, 1, 39, True, CPU, a))[0], atol=1e-6
    )
    ids = torch.from_numpy(np.array(tokens.read(0, 40), dtype=np.int64))
    with torch.no_grad():
        features = model.features(ids[None, :-1], None, None, None)
        p = model.head(features.dropped)[0].double().softmax(-1).numpy()
    h, y = features.raw[0].double().numpy(), ids[1:].numpy()
    for t in range(39):
        window = range(max(0, t - 7), t)
        wanted = p[t, y[t]]
        if window:
            weight = np.exp([0.9 * h[t] @ h[i] for i in window])
            hits = weight[[y[i] == y[t] for i in window]].sum() / weight.sum()
            wanted = 0.7 * wanted + 0.3 * hits
        assert found[t] == pytest.approx(-math.log2(wanted), abs=1e-5), t


def test_dynamic_evaluation_is_krause_s_rule(model):
    tokens = text(model, 31)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    a = Adaptation(lr=0.5, decay=0.1)
    found = bits(score_adapting(model, tokens, 1, 10, True, CPU, a))
    for name, value in model.state_dict().items():  # only a copy of the model is adapted
        assert torch.equal(value, before[name])
    twin = small("plstm_lm").eval()
    twin.load_state_dict(before)
    start = [p.detach().clone() for p in twin.parameters()]
    ids = torch.from_numpy(np.array(tokens.read(0, 31), dtype=np.int64))[None]
    state, wanted = None, []
    for first in (0, 10, 20):
        x, y = ids[:, first : first + 10], ids[:, first + 1 : first + 11]
        logits, new = twin(x, state=state)
        loss = torch.nn.functional.cross_entropy(logits[0], y[0], reduction="none")
        wanted += [loss.detach().double() / math.log(2)]
        twin.zero_grad()
        loss.mean().backward()
        state = [{name: value.detach() for name, value in layer.items()} for layer in new]
        with torch.no_grad():
            for p, first_value in zip(twin.parameters(), start, strict=True):
                step = 0.1 * (first_value - p)
                p += step if p.grad is None else step - 0.5 * p.grad
    assert np.allclose(found[0], torch.cat(wanted).numpy(), atol=1e-5)
    plain = bits(score_tokens(model, tokens, 1, 10, True, CPU))
    assert np.allclose(found[0, :10], plain[0, :10], atol=1e-6)  # nothing learned yet
    assert not np.allclose(found[0, 10:], plain[0, 10:], atol=1e-3)


def test_both_help_on_a_text_of_few_words(model):
    tokens = TokenArray(np.tile([3, 7, 7], 60), model.config["vocab_size"])
    plain = bits(score_tokens(model, tokens, 2, 10, True, CPU)).mean()
    for a in (Adaptation(lr=1.0), Adaptation(size=50, theta=1.0, share=0.2)):
        assert bits(score_adapting(model, tokens, 2, 10, True, CPU, a)).mean() < plain - 0.5, a


def test_the_command(word, tmp_path, capsys):
    out = tmp_path / "r.json"
    base = [str(word.data), "--path", str(word.path), "--cpu", "--json", str(out)]
    losses = []
    for flags in ("", "--dynamic-lr 0.5", "--cache-size 100", "--dynamic-lr 0.5 --cache-size 100"):
        assert eval_command.main([*base, *flags.split()]) == 0
        losses.append(json.loads(out.read_text())["loss"])
    assert "With dynamic evaluation (lr 0.5, decay 0) and cache of 100" in capsys.readouterr().out
    assert len(set(losses)) == 4 and losses[1] < losses[0]  # it still learns fast


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("--cache-theta 1", "--cache-theta requires --cache-size"),
        ("--dynamic-decay .1", "--dynamic-decay requires --dynamic-lr"),
        ("--dynamic-lr -1", "'-1'; accepted: a number from 0 upwards"),
        ("--cache-size 3 --cache-lambda 2", "'2'; accepted: a number from 0 to 1"),
        ("--cache-size 3 --cache-lambda 1", "--cache-lambda is 1; accepted: above 0 and below 1"),
    ],
)
def test_what_has_no_meaning_is_refused(word, capsys, flags, said):
    assert eval_command.main(["--path", str(word.path), "--cpu", *flags.split()]) == 2
    assert said in capsys.readouterr().err
