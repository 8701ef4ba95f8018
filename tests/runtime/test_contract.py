"""What feed, score, generate and feed_many return: shapes, dtypes, and that they agree with each other."""

from __future__ import annotations

import numpy as np
import pytest

TOKENS = np.array([3, 1, 4, 1, 5, 9, 2, 6, 5, 3])


def inputs(model, T=10):
    if model.takes_tokens:
        return np.resize(TOKENS, T)
    values = np.random.default_rng(0).normal(size=(T, model.input_size))
    return values.astype(np.float32)


def same_state(a, b) -> bool:
    left, right = a.state(), b.state()
    assert left.keys() == right.keys()
    return all(
        np.array_equal(x, y) for name in left for x, y in zip(left[name], right[name], strict=True)
    )


@pytest.fixture(params=["lm", "timeless", "nru", "classifier", "tagger"])
def any_model(request, load):
    return load(request.param)


def test_facts(load, files):
    lm = load("lm", dtype="bfloat16", threads=2)
    assert (lm.family, lm.takes_tokens, lm.takes_dt) == ("lm", True, True)
    assert (lm.vocab_size, lm.input_size, lm.output_size) == (20, 0, 20)
    assert (lm.device, lm.dtype, lm.threads) == ("cpu", "bfloat16", 2)
    assert lm.shortest_dt > 0
    assert [layer.cell for layer in lm.layers] == ["plstm", "plstm"]
    assert [layer.input_size for layer in lm.layers] == [8, 12]
    assert lm.layers[0].states == {"h": 12, "c": 12, "age": 12}
    assert not lm.layers[0].interpreted
    assert lm.config["family"] == "lm" and lm.config["fingerprint"] == lm.fingerprint
    assert lm.asset("text.dict") is None
    assert "plstm" in repr(lm) and "bfloat16" in repr(lm)
    tagger = load("tagger")
    assert (tagger.family, tagger.takes_tokens) == ("tagger", False)
    assert (tagger.vocab_size, tagger.input_size, tagger.output_size) == (0, 5, 4)
    assert load("classifier").output_size == 3
    timeless = load("timeless")
    assert (timeless.takes_dt, timeless.shortest_dt) == (False, 0)
    assert load("lm").fingerprint != load("other").fingerprint
    assert load("lm").fingerprint == load("lm", dtype="int8").fingerprint


def test_shapes(any_model):
    stream, V = any_model.create_stream(), any_model.output_size
    for T in (1, 7, 0):
        logits = stream.feed(inputs(any_model, T))
        assert (logits.shape, logits.dtype) == ((T, V), np.float32)
    assert stream.feed(inputs(any_model, 2), last_only=True).shape == (V,)
    assert stream.position == 10 and stream.time == 10.0


def test_chunks_and_last_only(any_model):
    x = inputs(any_model)
    whole = any_model.create_stream()
    expected = whole.feed(x)
    parts = any_model.create_stream()
    found = [parts.feed(x[:3]), parts.feed(x[3:3]), parts.feed(x[3:4]), parts.feed(x[4:])]
    assert np.array_equal(np.concatenate(found), expected)
    assert same_state(whole, parts)
    last = any_model.create_stream()
    assert np.array_equal(last.feed(x, last_only=True), expected[-1])
    assert same_state(whole, last)
    # With T = 0, feed returns the outputs of the current state, which does not change.
    assert np.array_equal(last.feed(x[:0], last_only=True), expected[-1])
    assert last.position == 10 and same_state(whole, last)


def test_out(any_model):
    x, V = inputs(any_model), any_model.output_size
    expected = any_model.create_stream().feed(x)
    rows, row = np.empty((10, V), np.float32), np.empty(V, np.float32)
    assert any_model.create_stream().feed(x, out=rows) is rows
    assert np.array_equal(rows, expected)
    assert any_model.create_stream().feed(x, last_only=True, out=row) is row
    assert np.array_equal(row, expected[-1])


@pytest.mark.parametrize(
    "form",
    [
        lambda x: x.astype(np.int32),
        lambda x: x.astype(np.uint16),
        lambda x: np.repeat(x.astype(np.uint16), 2)[::2],
        lambda x: np.repeat(x, 3)[::3],
        lambda x: np.repeat(x.astype(np.int32), 2)[::2],
        lambda x: x[::-1].copy()[::-1],
        lambda x: x.tolist(),
        tuple,
        lambda x: np.frombuffer(b"?" + x.tobytes(), np.uint8)[1:].view(np.int64),  # not aligned
    ],
)
def test_any_form_of_tokens(model, form):
    expected = model.create_stream().feed(TOKENS)
    assert np.array_equal(model.create_stream().feed(form(TOKENS)), expected)
    assert np.array_equal(
        model.create_stream().score(form(TOKENS)), model.create_stream().score(TOKENS)
    )


@pytest.mark.parametrize(
    "form", [np.asfortranarray, lambda x: np.repeat(x, 2, axis=1)[:, ::2], lambda x: x.tolist()]
)
def test_any_form_of_values(load, form):
    tagger = load("tagger")
    x = inputs(tagger)
    assert np.array_equal(tagger.create_stream().feed(form(x)), tagger.create_stream().feed(x))


def test_arrays_are_not_written_to(model):
    x, dt = TOKENS.copy(), np.full(10, 0.5, np.float32)
    x.flags.writeable = dt.flags.writeable = False
    model.create_stream().feed(x, dt)
    assert np.array_equal(x, TOKENS) and (dt == 0.5).all()


def test_dt(model):
    dt = np.linspace(0.5, 2, 10)
    expected = model.create_stream().feed(TOKENS, dt)
    for form in (dt.astype(np.float32), np.repeat(dt, 2)[::2], dt.tolist()):
        stream = model.create_stream()
        assert np.array_equal(stream.feed(TOKENS, form), expected)
        assert stream.time == dt.astype(np.float32).astype(float).sum()
    assert not np.array_equal(model.create_stream().feed(TOKENS), expected)
    halves = model.create_stream().feed(TOKENS, np.full(10, 0.5, np.float32))
    for one in (0.5, np.float32(0.5), np.array(0.5)):
        assert np.array_equal(model.create_stream().feed(TOKENS, one), halves)
    ones = model.create_stream().feed(TOKENS, 1)
    assert np.array_equal(ones, model.create_stream().feed(TOKENS))


def test_score_is_the_log_softmax_of_the_step_before(model):
    logits = model.create_stream().feed(TOKENS).astype(float)
    first = model.create_stream().feed([], last_only=True).astype(float)
    before = np.concatenate([first[None], logits[:-1]])
    log_probs = before - np.log(np.exp(before).sum(axis=1, keepdims=True))
    scores = model.create_stream().score(TOKENS)
    assert (scores.shape, scores.dtype) == ((10,), np.float32)
    assert np.allclose(scores, log_probs[np.arange(10), TOKENS], rtol=1e-5, atol=1e-6)
    stream = model.create_stream()
    parts = [stream.score(TOKENS[:4]), stream.score(TOKENS[4:4]), stream.score(TOKENS[4:])]
    assert np.array_equal(np.concatenate(parts), scores)
    assert stream.position == 10


def test_generate(model):
    stream = model.create_stream()
    stream.feed(TOKENS)
    a, b = stream.fork(), stream.fork()
    drawn = a.generate(12, temperature=0.9, top_k=15, top_p=0.95, seed=2**64 - 1)
    assert (drawn.shape, drawn.dtype) == ((12,), np.int64)
    assert ((drawn >= 0) & (drawn < 20)).all()
    b.feed(drawn)
    assert a.position == b.position == 22 and same_state(a, b)
    again, other = stream.fork(), stream.fork()
    two = [again.generate(n, temperature=0.9, top_k=15, top_p=0.95, seed=2**64 - 1) for n in (5, 7)]
    assert np.array_equal(np.concatenate(two), drawn)
    assert not np.array_equal(other.generate(12, seed=3), drawn)
    assert stream.generate(0).shape == (0,) and stream.position == 10


def test_greedy_is_the_argmax(model):
    stream, by_hand = model.create_stream(), model.create_stream()
    token, expected = int(by_hand.feed(TOKENS, last_only=True).argmax()), []
    for _ in range(6):
        expected.append(token)
        token = int(by_hand.feed([token], last_only=True).argmax())
    stream.feed(TOKENS)
    assert stream.generate(6, temperature=0, seed=np.int64(4)).tolist() == expected


def test_generated_steps_last_dt(model):
    a, b = model.create_stream(), model.create_stream()
    b.feed(a.generate(3, dt=0.5), 0.5)
    assert a.time == b.time == 1.5 and same_state(a, b)


def test_feed_many_is_feed(any_model):
    lengths = [4, 0, 1, 10, 1]
    chunks = [inputs(any_model, T) for T in lengths]
    alone = [any_model.create_stream() for _ in lengths]
    many = [any_model.create_stream() for _ in lengths]
    for last_only in (False, True):
        expected = [s.feed(x, last_only=last_only) for s, x in zip(alone, chunks, strict=True)]
        found = any_model.feed_many(many, chunks, last_only=last_only)
        assert len(found) == 5
        for a, b in zip(expected, found, strict=True):
            assert a.shape == b.shape and np.array_equal(a, b)
        assert all(same_state(a, b) for a, b in zip(alone, many, strict=True))
    assert [s.position for s in many] == [2 * T for T in lengths]
    assert any_model.feed_many([], []) == []


def test_feed_many_with_dt_and_out(model):
    chunks = [TOKENS[:3], TOKENS[:5]]
    out = [np.empty((3, 20), np.float32), None]
    streams = tuple(model.create_stream() for _ in range(2))
    found = model.feed_many(streams, chunks, dts=[None, 0.5], out=out)
    assert found[0] is out[0]
    assert np.array_equal(found[0], model.create_stream().feed(chunks[0]))
    assert np.array_equal(found[1], model.create_stream().feed(chunks[1], 0.5))
    assert [s.time for s in streams] == [3.0, 2.5]
