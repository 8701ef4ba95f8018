"""Sampling compared with its definition, and the carried state with a run over the whole text."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tsm.plugin import build_model
from tsm.plugin.generation import Sampling, draw, generate, probabilities


def brute_force(logits, temperature, top_k, top_p):
    """The definition, symbol by symbol, in plain Python."""
    if temperature == 0:
        best = max(range(len(logits)), key=lambda i: (logits[i], -i))
        return [float(i == best) for i in range(len(logits))]
    largest = max(logits)
    weights = [math.exp((z - largest) / temperature) for z in logits]
    ranked = sorted(range(len(logits)), key=lambda i: (-logits[i], i))
    if top_k:
        ranked = ranked[:top_k]
    mass = sum(weights[i] for i in ranked)
    kept, running = [], 0.0
    for i in ranked:
        kept.append(i)
        running += weights[i] / mass
        if top_p < 1 and running >= top_p:
            break
    total = sum(weights[i] for i in kept)
    return [weights[i] / total if i in kept else 0.0 for i in range(len(logits))]


@given(
    st.lists(st.sampled_from([-3.0, -1.0, 0.0, 0.5, 0.5, 2.0, 7.25]), min_size=1, max_size=9),
    st.sampled_from([0.0, 0.3, 1.0, 4.0]),
    st.integers(0, 10),
    st.sampled_from([0.05, 0.33, 0.6, 0.9, 0.999, 1.0]),
)
def test_distribution_is_the_defined_one(logits, temperature, top_k, top_p):
    q = probabilities(np.array(logits), Sampling(temperature, top_k, top_p))
    np.testing.assert_allclose(q, brute_force(logits, temperature, top_k, top_p), atol=1e-12)
    assert q.sum() == pytest.approx(1)


def test_top_p_takes_the_fewest_that_reach_it():
    logits = np.log([0.5, 0.25, 0.125, 0.125])
    for p, kept in ((0.4, 1), (0.5, 1), (0.51, 2), (0.75, 2), (0.76, 3), (0.9, 4), (1.0, 4)):
        assert (probabilities(logits, Sampling(top_p=p - 1e-12)) > 0).sum() == kept, p


def test_top_p_counts_what_top_k_left():
    logits = np.log([0.4, 0.3, 0.2, 0.1])
    q = probabilities(logits, Sampling(top_k=2, top_p=0.55))  # .4 / .7 = .571 is enough
    np.testing.assert_allclose(q, [1, 0, 0, 0])


def test_ties_go_to_the_lower_id():
    q = probabilities(np.array([1.0, 3.0, 3.0, 3.0]), Sampling(top_k=2))
    np.testing.assert_allclose(q, [0, 0.5, 0.5, 0])
    assert probabilities(np.array([1.0, 3.0, 3.0]), Sampling(temperature=0)).tolist() == [0, 1, 0]


def test_extreme_temperatures():
    z = np.array([1.0, 2.0, -5.0])
    assert probabilities(z, Sampling(temperature=1e-300)).tolist() == [0, 1, 0]
    np.testing.assert_allclose(probabilities(z, Sampling(temperature=1e300)), 1 / 3)


def test_draw_is_the_inverse_of_the_running_sum():
    q = np.array([0.0, 0.25, 0.0, 0.5, 0.25, 0.0])
    points = {0.0: 1, 0.2499: 1, 0.25: 3, 0.7499: 3, 0.75: 4, 1 - 2**-53: 4}
    assert {u: draw(q, u) for u in points} == points
    many = [draw(q, u) for u in (np.arange(1000) + 0.5) / 1000]
    assert np.bincount(many, minlength=6).tolist() == [0, 250, 0, 500, 250, 0]


@pytest.mark.parametrize(
    "settings",
    [
        {"temperature": -1},
        {"temperature": math.nan},
        {"temperature": math.inf},
        {"top_k": -1},
        {"top_p": 0},
        {"top_p": 1.1},
        {"top_p": math.nan},
    ],
)
def test_settings_that_mean_nothing(settings):
    with pytest.raises(ValueError, match=f"{next(iter(settings))} is .*accepted"):
        Sampling(**settings)


def test_logits_that_are_no_numbers():
    for bad in (math.nan, math.inf):
        with pytest.raises(ValueError, match="largest logit"):
            probabilities(np.array([0.0, bad]), Sampling())


@pytest.fixture
def model():
    torch.manual_seed(0)
    built = build_model("plstm_lm", vocab_size=11, decoder_hidden_size=9, decoder_layers=2)
    with torch.no_grad():  # a model with distinct probabilities
        built.embed.weight.mul_(20)
        built.decoder.weight.mul_(8)
    return built.eval()


def test_state_is_carried(model):
    """Greedy tokens equal those of a single run over prompt and generated text."""
    prompt = [int(i) for i in torch.randint(11, (600,))]
    made = list(generate(model, prompt, 30, Sampling(temperature=0)))
    with torch.no_grad():
        logits, _ = model(torch.tensor([prompt + made]))
    assert made == logits[0, 599:-1].argmax(-1).tolist()
    assert len(set(made)) > 1


def test_seeds(model):
    def text(seed, n=25):
        return list(generate(model, [1], n, seed=seed))

    assert text(3) == text(3)
    assert text(3)[:10] == text(3, 10)
    assert len({tuple(text(seed)) for seed in range(8)}) == 8
    assert list(generate(model, [1], 0)) == []


def test_frequencies_are_the_probabilities(model):
    with torch.no_grad():
        logits, _ = model(torch.tensor([[4, 2]]))
    p = torch.softmax(logits[0, -1].double(), -1).numpy()
    first = [next(generate(model, [4, 2], 1, seed=s)) for s in range(1000)]
    share = np.bincount(first, minlength=11) / 1000
    assert (np.abs(share - p) < 4.5 * np.sqrt(p * (1 - p) / 1000) + 1e-9).all()


def test_bad_arguments(model):
    with pytest.raises(ValueError, match="prompt is empty"):
        list(generate(model, [], 3))
    with pytest.raises(ValueError, match="length is -1"):
        list(generate(model, [1], -1))
    with pytest.raises(ValueError, match="seed is -1"):
        list(generate(model, [1], 1, seed=-1))
