"""Analyses whose answer is known in advance."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from tsm.plugin.analysis import timescale_fit
from tsm.plugin.analysis.catalogue import get_analysis
from tsm.plugin.analysis.dyck2_timescales import binned
from tsm.plugin.analysis.findings.base import DoesNotApply
from tsm.plugin.analysis.markov import pair_counts
from tsm.plugin.analysis.probes.ablation import ablated
from tsm.plugin.analysis.probes.decay import forget_factors
from tsm.plugin.analysis.probes.mutual_information import excess_information
from tsm.plugin.analysis.probes.numpy_layer import NumpyLayer, array
from tsm.plugin.analysis.probes.performance import performance
from tsm.plugin.analysis.probes.spread import one_sample, spread
from tsm.plugin.analysis.probes.subject import Subject
from tsm.plugin.analysis.probes.timescale import (
    assigned_timescales,
    bias_timescales,
    gate_timescales,
    measured,
    of_factor,
)
from tsm.plugin.analysis.probes.trace import trace
from tsm.plugin.analysis.probes.waiting import later_reset
from tsm.plugin.analysis.reference_times import reference_times
from tsm.plugin.analysis.routing import bin_bits
from tsm.plugin.analysis.timescales import spearman
from tsm.plugin.analysis.word_ablation import decay
from tsm.plugin.data.datasets.markov import resample
from tsm.plugin.layers import Recurrent
from tsm.plugin.layers.choose import choose
from tsm.plugin.tasks.base import Batch

T, H = 9, 6


def still_layer(cell, gate: str, value: float) -> Recurrent:
    """A layer whose gate is always at `value`."""
    layer = Recurrent(cell.name, 2, H, backend="reference").double()
    with torch.no_grad():
        layer.weight_x.zero_()
        layer.weight_h.zero_()
        at = cell.gates.index(gate) * H
        inverse = cell.gate_bias(gate)
        layer.bias[at : at + H] = inverse(math.log(value / (1 - value)))
    return layer


def gate_cells():
    """Cells whose gate f alone decides how much of the memory is kept."""
    from tsm.plugin.analysis.probes.retention import retention
    from tsm.plugin.cells import get_cell, list_cells

    cells = [get_cell(name) for name in list_cells()]
    return [
        c
        for c in cells
        if c.elementwise and (retention(c).gates, retention(c).vectors) == (("f",), ())
    ]


@pytest.mark.parametrize("gated", gate_cells(), ids=lambda c: c.name)
@pytest.mark.parametrize("timescale", [0.5, 3.0, 80.0])
def test_a_known_gate_gives_its_timescale(gated, timescale):
    layer = still_layer(gated, "f", math.exp(-1 / timescale))
    x = torch.randn(3, T, 2, dtype=torch.float64)
    factors = forget_factors(layer, x)
    there = np.ones((3, T), dtype=bool)
    assert gate_timescales(factors, there) == pytest.approx(timescale, rel=1e-9)
    assert bias_timescales(layer) == pytest.approx(timescale, rel=1e-9)


def test_padding_is_not_counted():
    factors = np.full((2, 4, 1), 0.5)
    factors[1, 2:] = 0.999
    there = np.array([[1, 1, 1, 1], [1, 1, 0, 0]], dtype=bool)
    assert gate_timescales(factors, there) == pytest.approx(1 / math.log(2))


def test_assigned_timescales_are_those_of_the_biases(subject_of):
    for layer in subject_of("mts_lstm_lm").layers:
        given = assigned_timescales(layer)
        if given is not None:
            assert bias_timescales(layer) == pytest.approx(given, rel=1e-4)


def test_rows_are_taken_from_the_whole_split():
    """If 8 rows are taken from ten batches of four, they are the first rows of 8 batches, spread from the first
    batch to the last."""
    batches = [Batch(torch.full((4, 3), i), torch.zeros(4)) for i in range(10)]
    few = spread(batches, 8)
    assert [len(b.x) for b in few] == [1] * 8
    assert [int(b.x[0, 0]) for b in few] == [0, 1, 3, 4, 5, 6, 8, 9]
    assert sum(len(b.x) for b in spread(batches, 37)) == 37
    assert spread(batches, 40) == batches and len(spread(batches, 1)) == 1


def test_rows_of_different_lengths_are_padded():
    short, long = torch.ones(1, 2, dtype=torch.int64), torch.ones(2, 4, dtype=torch.int64)
    ends = [torch.tensor([2]), torch.tensor([4, 3])]
    both = [
        Batch(x, torch.zeros(len(x)), lengths=e) for x, e in zip((short, long), ends, strict=True)
    ]
    found = one_sample(both)
    assert found.x.tolist() == [[1, 1, 0, 0], [1, 1, 1, 1], [1, 1, 1, 1]]
    assert found.lengths.tolist() == [2, 4, 3] and found.dt is None


def test_open_and_shut_gates():
    assert of_factor(np.array([1.0])) == np.inf
    assert of_factor(np.array([0.0])) == 0


@pytest.mark.parametrize("alpha", [0.56, 1.4, 2.5])
def test_the_fit_recovers_alpha(alpha):
    from scipy.stats import invgamma

    drawn = invgamma.rvs(alpha, size=4000, random_state=3)
    found = timescale_fit.fit(drawn)
    assert found.alpha == pytest.approx(alpha, abs=0.1)
    assert found.alpha_statistic < 0.03 < found.mean_statistic


def test_the_fit_recovers_a_single_timescale():
    drawn = np.random.default_rng(4).normal(2.5, 0.1, 2000)
    found = timescale_fit.fit(drawn)
    assert found.mean == pytest.approx(2.5, abs=0.05)
    assert found.mean_statistic < 0.05 < found.alpha_statistic


def test_statistics_are_scipys():
    from scipy.stats import invgamma, kstest, norm

    values = np.random.default_rng(5).exponential(4.0, 300)
    ours = timescale_fit.inverse_gamma_statistics(values, np.array([0.7, 1.5]))
    theirs = [kstest(values, invgamma(a).cdf).statistic for a in (0.7, 1.5)]
    assert ours == pytest.approx(theirs, abs=1e-12)
    ours = timescale_fit.gaussian_statistics(values, np.array([1.0]), 0.3)
    assert ours == pytest.approx([kstest(values, norm(1.0, 0.3).cdf).statistic], abs=1e-12)


def test_resampling_keeps_the_bigrams():
    rng = np.random.default_rng(6)
    text = rng.choice(4, size=400, p=[0.4, 0.3, 0.2, 0.1])
    # Every fifth symbol equals the one four steps later; pairs are counted as if the sequence were periodic.
    text[::5] = text[4::5]
    joined = pair_counts(np.append(text, text[0]), 4)
    count = 200_000
    found = pair_counts(resample(text, count, seed=1), 4)
    assert set(found) <= set(joined)
    for code, times in joined.items():
        p = times / len(text)
        # neighbouring draws are not independent, so 8 sigma of the binomial distribution are allowed, not 4
        assert found.get(code, 0) == pytest.approx(count * p, abs=8 * math.sqrt(count * p) + 1)


def test_resampling_forgets_longer_distances():
    """Two interleaved chains: neighbours are independent, tokens two apart are mostly the same."""
    rng = np.random.default_rng(7)
    text, stays = rng.integers(0, 2, 20_000), rng.random(20_000) < 0.9
    for t in range(2, len(text)):
        text[t] = text[t - 2] if stays[t] else text[t]
    (near, far), noise = excess_information(text, [1, 2])
    (_, walk), other = excess_information(resample(text, len(text), seed=2), [1, 2])
    assert far > 0.5 and abs(near) < 0.01
    assert abs(walk) < 0.01 + noise + other


def test_mutual_information_of_doubled_tokens():
    """In aabbcc... with four symbols, the next token is the same with probability 5/8, and is each of the
    others with probability 1/8."""
    text = np.repeat(np.random.default_rng(8).integers(0, 4, 50_000), 2)
    values, noise = excess_information(text, [1, 7])
    assert values[0] == pytest.approx(
        2 + 5 / 8 * math.log2(5 / 8) + 3 / 8 * math.log2(1 / 8), abs=0.01
    )
    assert abs(values[1]) < 10 * noise + 1e-3


def test_ablating_nothing_changes_nothing(subject_of):
    subject = subject_of("mts_lstm_lm")
    bits, words = bin_bits(subject)
    same, _ = bin_bits(subject, 1, np.array([], dtype=int))
    there = words > 0
    assert np.exp2(same - bits)[there] == pytest.approx(1, abs=0)
    whole = performance(subject)
    with ablated(subject.model, 0, []):
        assert performance(subject) == whole


def test_a_silenced_unit_is_zero_for_all_that_read_it(elementwise_cell):
    """The result equals a numpy run that removes the units' h from U h' and from the output at every step."""
    layer = Recurrent(elementwise_cell.name, 2, H, backend="reference").double()
    x = torch.randn(2, T, 2, dtype=torch.float64)
    run, mask = NumpyLayer(layer), np.ones(H)
    mask[UNITS] = 0
    run.weights = {name: weight * mask for name, weight in run.weights.items()}
    assert silenced(layer, x) == pytest.approx(outputs(run, x) * mask, abs=1e-12)


def test_a_silenced_nru_unit_is_zero_for_all_that_read_it():
    """The result equals a numpy run with the units' pre-activations set to 0, so that relu gives h = 0
    everywhere."""
    layer = Recurrent("nru", 2, H, backend="reference").double()
    x = torch.randn(2, T, 2, dtype=torch.float64)
    run = NumpyLayer(layer)
    for rows in (run.weight_x, run.bias, run.weights["weight_h"], run.weights["weight_m"]):
        rows[UNITS] = 0
    assert silenced(layer, x) == pytest.approx(outputs(run, x), abs=1e-12)


def test_a_unit_may_be_silent_to_the_layer_above_alone(elementwise_cell):
    """The result equals a numpy run with an unchanged recurrence and masked outputs."""
    layer = Recurrent(elementwise_cell.name, 2, H, backend="reference").double()
    x = torch.randn(2, T, 2, dtype=torch.float64)
    mask = np.ones(H)
    mask[UNITS] = 0
    above = silenced(layer, x, recurrence=False)
    assert above == pytest.approx(outputs(NumpyLayer(layer), x) * mask, abs=1e-12)
    assert np.allclose(above, silenced(layer, x)) == (not layer.weights)  # which nothing else reads


UNITS = [0, 3]


def silenced(layer: Recurrent, x: torch.Tensor, recurrence: bool = True) -> np.ndarray:
    """The decoder's input [B,T,H] with UNITS silenced."""
    stack = _Stack(layer)
    with torch.no_grad(), ablated(stack, 0, UNITS, recurrence):
        return array(stack(x))


def outputs(run: NumpyLayer, x: torch.Tensor) -> np.ndarray:
    """h [B,T,H] of every step."""
    state, found = run.zero_state(len(x)), []
    for t in range(x.shape[1]):
        state = run.advance(run.project(array(x[:, t])), state, 1.0)
        found.append(state["h"])
    return np.stack(found, axis=1)


class _Stack(torch.nn.Module):
    """One layer and the decoder that reads it, under the names that `ablated` looks up in a model."""

    def __init__(self, layer: Recurrent) -> None:
        super().__init__()
        self.layers = [layer]
        self.decoder = torch.nn.Identity()

    def forward(self, x):
        return self.decoder(self.layers[0](x)[0])


def test_ablation_puts_the_weights_back(subject_of):
    model = subject_of("nru_lm").model
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(RuntimeError, match="stop"), ablated(model, 0, [1, 2]):
        raise RuntimeError("stop")
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    with (
        pytest.raises(ValueError, match=r"units = \[99\]; accepted: 0 to 11"),
        ablated(model, 0, [99]),
    ):
        pass


def test_silencing_all_units_leaves_the_decoders_bias(subject_of):
    subject = subject_of("lstm_tagger")
    x = subject.sample.x
    with torch.no_grad(), ablated(subject.model, 0, np.arange(12)):
        logits, _ = subject.model(x)
    assert torch.equal(logits, subject.model.decoder.bias.expand_as(logits))


def test_reference_times_by_hand():
    """r = 0, 0, 1, 0: the age is 1, 2, 0, 1, so k = t - age is 0, 0, 3, 3."""
    ages = np.array([1.0, 2.0, 0.0, 1.0])[None, :, None]
    assert reference_times(ages)[0, :, 0].tolist() == [0, 0, 3, 3]


def test_reference_times_are_the_runtimes(power_law_cell):
    """k = time - age, with the ages from the compiled recurrence."""
    if not choose(power_law_cell, torch.float32, torch.device("cpu")).fused:
        pytest.skip("not compiled in")
    layer = Recurrent(power_law_cell.name, 2, H)
    x, state, k = torch.randn(1, T, 2), None, []
    with torch.no_grad():
        for t in range(T):
            _, state = layer(x[:, t : t + 1], state)
            k.append(t + 1 - state["age"][0].numpy())
    from tsm.plugin.analysis.probes.layer_calls import LayerCall

    ages = trace(LayerCall(layer, x), ["age"])["age"]
    assert reference_times(ages)[0] == pytest.approx(np.array(k), abs=1e-4)


def test_units_that_wait_are_found():
    """Two sequences of 2 symbols, with waits of 4 and 6 steps; unit 0 is never reset, unit 1 is reset at every
    step."""
    signal = np.array([6, 8])
    ages = np.zeros((2, 12, 2))
    ages[:, :, 0] = np.arange(1, 13)
    assert later_reset(ages, signal, 2, 0.5).tolist() == [True, False]


def test_a_still_power_law_unit_is_never_reset(subject_of):
    """With the reset gates closed, k stays 0 for every unit, and `later_reset` is true for all of them."""
    subject = subject_of("plstm_tagger", "", decoder_layers=2)
    bias = subject.layers[1].bias
    kept = bias.detach().clone()
    try:
        with torch.no_grad():
            bias[:12] = -60.0
        subject.__dict__.pop("calls", None)
        found = get_analysis("reference-times").run(subject)
    finally:
        with torch.no_grad():
            bias.copy_(kept)
        subject.__dict__.pop("calls", None)
    assert found.later.all() and found.layer == 2
    assert np.abs(found.examples[-1].k).max() < 1e-9


def test_word_decay_is_relative_to_the_word():
    gap = np.array([[[3.0, 4.0], [0.0, 1.0]], [[0.0, 2.0], [2.0, 0.0]], [[0.0, 0.0], [1.0, 0.0]]])
    assert decay(gap) == pytest.approx([1.0, (0.2 + 1.0) / 2])  # the third place told nothing


def test_timescales_over_training_reads_every_checkpoint(subject_of):
    found = get_analysis("timescales-over-training").run(subject_of("lstm_lm"))
    assert found.updates == [2, 5] and found.source == "biases"
    assert found.timescales[0].shape == (2, 12)
    assert get_analysis("timescales-over-training").run(subject_of("plstm_lm")).source == "gates"


def test_timescales_over_training_refuses_another_model(subject_of):
    mine, other = subject_of("lstm_lm"), subject_of("fast_lstm_lm", "", decoder_hidden_size=5)
    mixed = Subject(mine.trained, run=[*mine.run, *other.run])
    with pytest.raises(DoesNotApply, match=r"checkpoint2\.pt holds another model"):
        get_analysis("timescales-over-training").run(mixed)


def test_timescales_over_training_of_frozen_timescales_is_none(subject_of):
    text = get_analysis("timescales-over-training").run(subject_of("mts_lstm_lm")).text()
    assert "Layer 1: no timescale changes." in text and "Layer 2: no timescale changes." in text
    assert "Layer 3: the median goes" in text


def test_dyck_bins():
    reach = np.array([1, 5, 6, 10, 30])
    right = np.array([True, False, True, True, False])
    bins = binned(reach, right, (5, 10))
    assert [(b.label, b.count, b.value) for b in bins] == [
        ("1-5", 2, 0.5),
        ("6-10", 2, 1.0),
        ("over 10", 1, 0.0),
    ]
    with pytest.raises(ValueError, match="increasing"):
        binned(reach, right, (10, 5))


def test_rank_correlation():
    from scipy.stats import spearmanr

    rng = np.random.default_rng(9)
    a, b = rng.integers(0, 5, 40).astype(float), rng.normal(size=40)
    assert spearman(a, b) == pytest.approx(spearmanr(a, b).statistic)
    assert spearman(np.ones(4), np.arange(4.0)) is None


def test_forget_bias_is_needed_exactly_where_states_do_not_matter(elementwise_cell):
    """bias-timescales refuses a cell if and only if its forget factor depends on another state."""
    layer = Recurrent(elementwise_cell.name, 2, H, backend="reference").double()
    x = torch.zeros(1, 1, 2, dtype=torch.float64)
    zero = layer.zero_state(1)
    other = {name: value if name in ("h", "c", "m") else value + 5 for name, value in zero.items()}
    moves = not np.allclose(forget_factors(layer, x, zero), forget_factors(layer, x, other))
    assert (bias_timescales(layer) is None) == moves


def test_measured_timescales_need_units(subject_of):
    with pytest.raises(DoesNotApply, match="timescales does not apply to nru because it is not"):
        get_analysis("timescales").run(subject_of("nru_tagger"))
    assert len(measured(subject_of("janet_lm"))) == 1
