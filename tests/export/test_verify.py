"""verify finds what is wrong with an exported model: each kind of fault is found by the check designed for
it."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from small_models import small
from tsm.export.common.runner import feed, in_chunks
from tsm.export.verify.data import Text
from tsm.export.verify.quality import LIMIT
from tsm.export.verify.reference import Reference
from tsm.export.verify.report import compare, plot_drift
from tsm.export.verify.verify import verify

STEPS = 400


class Good:
    """The model in float64, with rounded inputs and outputs: a correct export."""

    name = "good"
    chunk_size: int | None = None

    def __init__(self, model):
        self.inner = Reference(model)

    def run(self, x, state=None, dt=None, lengths=None):
        assert self.chunk_size in (None, x.shape[1])
        logits, new = self.inner.run(x, state, dt, lengths)
        return logits.astype(np.float32), _rounded(new)


def _rounded(state):
    return [{n: v.astype(np.float32) for n, v in layer.items()} for layer in state]


class ForgetsState(Good):
    def run(self, x, state=None, dt=None, lengths=None):
        return super().run(x, None, dt, lengths)


class IgnoresLengths(Good):
    def run(self, x, state=None, dt=None, lengths=None):
        return super().run(x, state, dt)


class IgnoresDt(Good):
    def run(self, x, state=None, dt=None, lengths=None):
        return super().run(x, state, None, lengths)


class SwapsStates(Good):
    """Swaps h and c, which have the same shape and differ only in their values."""

    def run(self, x, state=None, dt=None, lengths=None):
        logits, new = super().run(x, state, dt, lengths)
        return logits, [{**layer, "h": layer["c"], "c": layer["h"]} for layer in new]


class MixesStreams(Good):
    """The state of one stream leaks into the others."""

    def run(self, x, state=None, dt=None, lengths=None):
        if state is not None:
            state = [{n: 0 * v + v.mean(axis=0) for n, v in layer.items()} for layer in state]
        return super().run(x, state, dt, lengths)


class OldAge(Good):
    """Correct for some fifty steps, then wrong forever: short checks cannot see it."""

    def run(self, x, state=None, dt=None, lengths=None):
        logits, new = super().run(x, state, dt, lengths)
        for layer in new:
            layer["age"] = np.minimum(layer["age"], 60)
        return logits, new


class NotANumber(Good):
    def run(self, x, state=None, dt=None, lengths=None):
        logits, new = super().run(x, state, dt, lengths)
        return np.where(np.arange(logits.shape[-1]) == 1, np.nan, logits), new


class Leans(Good):
    """Gives token 0 a probability that is slightly too high."""

    def run(self, x, state=None, dt=None, lengths=None):
        logits, new = super().run(x, state, dt, lengths)
        return logits + 0.2 * (np.arange(logits.shape[-1]) == 0), new


class FixedTime(Good):
    """Raises for any T other than the one it was made with."""

    def run(self, x, state=None, dt=None, lengths=None):
        if x.shape[1] != 23:
            raise RuntimeError(f"T is {x.shape[1]}, not 23")
        return super().run(x, state, dt, lengths)


class OneStepShort(Good):
    def run(self, x, state=None, dt=None, lengths=None):
        logits, new = super().run(x, state, dt, lengths)
        return logits[:, 1:], new


@pytest.fixture(scope="module")
def model():
    return small("plstm_lm", p=0.02)  # memory lasts long enough for the ages to matter


@pytest.fixture(scope="module")
def loud():
    """A model with large weights: streams reach different states, and their logits show it."""
    model = small("plstm_lm", p=0.3)
    with torch.no_grad():
        model.embed.weight.mul_(5)
        model.decoder.weight.mul_(10)
        for layer in model.layers:
            layer.weight_x.mul_(4)
            layer.weight_h.mul_(2)
    return model


def failed(model, runner, steps=0, dtype="float32"):
    report = verify(model, [runner], dtype, steps=steps)
    assert report.checks
    return {check.what for check in report.checks if not check.passed}, report


def test_nothing_wrong(model):
    what, report = failed(model, Good(model), steps=STEPS)
    assert not what, str(report)
    assert report.passed
    assert all(line.startswith("-[✓] good: ") for line in report.lines())


@pytest.mark.parametrize(
    "fault, noticed",
    [
        (ForgetsState, {"chunks of 1, primes, whole", "state round trip", "other N and T"}),
        (IgnoresLengths, {"ragged lengths", "time steps dt"}),
        (IgnoresDt, {"time steps dt"}),
        (SwapsStates, {"chunks of 1, primes, whole", "state round trip"}),
        (MixesStreams, {"chunks of 1, primes, whole", "state round trip", "ragged lengths"}),
        (NotANumber, {"other N and T"}),
        (FixedTime, {"other N and T", "chunks of 1, primes, whole"}),
        (OneStepShort, {"other N and T"}),
    ],
)
def test_fault_is_noticed(model, fault, noticed):
    what, report = failed(model, fault(model))
    assert noticed <= what, str(report)
    assert not report.passed
    assert any(line.startswith("-[x] ") for line in report.lines())


@pytest.mark.parametrize(
    "fault", [ForgetsState, IgnoresLengths, SwapsStates, MixesStreams, NotANumber, OneStepShort]
)
def test_structure_is_judged_below_float32(loud, fault):
    """Single numbers are not compared; a wrong state or length changes results more than rounding does."""
    what, report = failed(loud, fault(loud), dtype="int8")
    assert what - {report.checks[-1].what}, str(report)


def test_quality_is_judged_below_float32(loud):
    """By default, quality is measured on text that the model generates; the caller sets the limit."""
    assert verify(loud, [Good(loud)], "int8", steps=30).passed
    report = verify(loud, [Leans(loud)], "int8", steps=30, limit=1e-4)
    assert [c.what for c in report.checks if not c.passed] == ["2,048 tokens that it generated"]
    found = report.criterion
    assert found["name"] == "perplexity" and found["found"] > found["limit"] == 1e-4
    assert verify(loud, [Leans(loud)], "int8", steps=30).criterion["limit"] == LIMIT
    assert verify(loud, [Leans(loud)], "int8", steps=30, limit=2 * found["found"]).passed
    assert not verify(loud, [Leans(loud)], "float32", steps=0).passed, (
        "float32 is judged by numbers"
    )


@pytest.mark.parametrize(
    "arch, criterion", [("lstm_classifier", "divergence"), ("lstm_tagger", "divergence")]
)
def test_quality_of_other_families(arch, criterion):
    model = small(arch)
    report = verify(model, [Good(model)], "int8", steps=0)
    assert report.passed and report.criterion["name"] == criterion
    assert not verify(model, [Leans(model)], "int8", steps=0, limit=1e-4).passed
    numbers = verify(model, [Leans(model)], "int8", steps=0, limit=1e-4, classes=False)
    assert numbers.criterion["name"] == "squared error" and not numbers.passed


def test_the_tolerance_is_that_of_the_models_own_rounding(model):
    """An error that a fixed limit of 1e-4 would accept, although float32 itself is off by only about 1e-7."""

    class Off(Good):
        def run(self, x, state=None, dt=None, lengths=None):
            logits, new = super().run(x, state, dt, lengths)
            return logits + 9e-5, new

    what, report = failed(model, Off(model))
    assert "other N and T" in what and not report.passed
    allowed = [check.outputs["logits"].allowed for check in report.checks]
    assert max(allowed) < 9e-5


def test_a_stream_that_is_not_bounded_is_compared_as_far_as_it_goes():
    model = small("nru_lm")
    what, report = failed(model, Good(model), steps=2000)
    assert not what, str(report)
    note = report.checks[-1].note
    assert "compared up to step" in note and "diverges from float64" in note, note
    _, report = failed(model, NotANumber(model), steps=2000)
    assert not report.checks[-1].passed


def test_only_a_long_stream_shows_old_age():
    model = small("plstm_lm", p=0.02)
    for layer in model.layers:
        layer.bias.data[: layer.hidden_size] = -6.0  # gate r hardly ever resets, so ages grow
    what, report = failed(model, OldAge(model), steps=STEPS)
    assert what == {f"stream of {STEPS} steps"}, str(report)
    drift = report.drift["good"]
    assert drift.steps[-1] == STEPS and drift.growth() > 10


def test_a_line_says_where(model):
    _, report = failed(model, SwapsStates(model))
    line = next(check.line() for check in report.checks if not check.passed)
    assert "state_" in line and "expected" in line and "allowed" in line


def test_report_is_json_and_a_picture(model, tmp_path):
    report = verify(model, [Good(model), NotANumber(model)], steps=60)
    found = json.loads(report.json())
    assert found["passed"] is False
    assert found["criterion"]["name"] == "rounding"
    first = found["checks"][0]["outputs"]["logits"]
    assert set(first) == {
        "absolute", "relative", "where", "found", "expected", "allowed", "passed",
    }  # fmt: skip
    assert found["drift"]["good"]["steps"][-1] == 60
    plot_drift(report, tmp_path / "drift.png")
    assert (tmp_path / "drift.png").read_bytes().startswith(b"\x89PNG")


def test_text(model):
    text = Text(np.random.default_rng(0).integers(0, 11, 300))
    report = verify(model, [Good(model)], steps=0, data=text)
    assert report.passed and report.checks[-1].what == "data"
    assert report.text["good"]["perplexity"] == pytest.approx(report.text["float64"]["perplexity"])
    bad = verify(model, [Leans(model)], steps=0, data=text)
    assert not bad.checks[-1].passed, bad.checks[-1].line()


def test_fixed_chunks_are_filled_up(model):
    """A runner with a fixed T gets any stream in pieces of T steps, the last one padded and with lengths."""
    runner, rng = Good(model), np.random.default_rng(1)
    x, dt = rng.integers(0, 11, (3, 13)), rng.uniform(0.1, 2, (3, 13)).astype(np.float32)
    whole = feed(runner, x, None, dt, np.array([13, 0, 6]))
    runner.chunk_size = 4
    pieces = feed(runner, x, None, dt, np.array([13, 0, 6]))
    cut = in_chunks(runner, [6, 7], x, None, dt)
    assert np.allclose(pieces[0], whole[0], atol=1e-6)
    assert np.allclose(cut[0][0], whole[0][0], atol=1e-6)
    for found, expected in zip(pieces[1], whole[1], strict=True):
        for name in expected:
            assert np.allclose(found[name], expected[name], atol=1e-5)


def test_compare_says_how_far_and_where():
    expected = np.array([[0.0, 100.0], [1.0, -2.0]])
    found = expected + np.array([[0.0, 0.001], [0.5, 0.0]])
    difference = compare(found, expected, 1e-4)
    assert not difference.passed
    assert difference.where == (1, 0) and difference.absolute == 0.5
    assert difference.relative == 0.5
    assert compare(expected + 1e-6, expected, 1e-4).passed
    with pytest.raises(ValueError, match="shape"):
        compare(expected[0], expected, 1e-4)
