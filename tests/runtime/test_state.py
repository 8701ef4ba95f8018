"""A stream's state: read, saved, loaded, forked, reset; states of other models are refused."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from tsm.runtime import Model, TsmError

TOKENS = np.array([3, 1, 4, 1, 5])


@pytest.fixture
def stream(model):
    made = model.create_stream()
    made.feed(TOKENS, dt=[0.5, 1, 2, 0.25, 1.25])
    return made


def test_names_and_k(model, stream, load):
    state = stream.state()
    assert list(state) == ["h", "c", "age", "k"]
    for name in ("h", "c", "age"):
        assert [a.shape for a in state[name]] == [(12,), (12,)]
        assert {a.dtype for a in state[name]} == {np.dtype(np.float32)}
    for age, k in zip(state["age"], state["k"], strict=True):
        assert k.dtype == np.float64
        assert np.array_equal(k, stream.time - age.astype(float))
    assert stream.time == 5.0
    assert list(load("timeless").create_stream().state()) == ["h", "c"]
    assert "m" in load("nru").create_stream().state()


def test_state_is_a_copy(stream):
    before = stream.save_state()
    stream.state()["c"][0][:] = 99
    assert stream.save_state() == before


def test_starts_at_zero(model):
    stream = model.create_stream()
    assert (stream.position, stream.time) == (0, 0.0)
    assert not any(values.any() for arrays in stream.state().values() for values in arrays)


def test_saved_state_continues(model, stream):
    blob = stream.save_state()
    assert isinstance(blob, bytes)
    for form in (blob, bytearray(blob), memoryview(blob), np.frombuffer(blob, np.uint8)):
        other = model.create_stream()
        other.feed([9, 9])  # load_state replaces this
        other.load_state(form)
        assert (other.position, other.time) == (stream.position, stream.time)
        assert other.save_state() == blob
    assert np.array_equal(other.feed(TOKENS), stream.feed(TOKENS))
    assert np.array_equal(other.generate(5, seed=1), stream.generate(5, seed=1))


def test_blobs_of_a_model_are_of_one_size(model, stream):
    assert len(model.create_stream().save_state()) == len(stream.save_state())


def test_a_state_moves_between_dtypes_and_thread_counts(files, stream):
    for options in (dict(dtype="int8"), dict(dtype="bfloat16"), dict(threads=2)):
        other = Model.load(files["lm"], **options).create_stream()
        other.load_state(stream.save_state())
        assert other.save_state() == stream.save_state()


def test_refused_states(model, stream, load):
    blob = stream.save_state()
    before = model.create_stream()
    before.feed([2])
    kept = before.save_state()
    cases = [b"", b"x", blob[:-1], blob + b"\0", bytes(len(blob))]
    cases += [blob[:i] + bytes([blob[i] ^ 0x10]) + blob[i + 1 :] for i in range(0, len(blob), 7)]
    for name in ("other", "timeless", "classifier"):
        cases.append(load(name).create_stream().save_state())
    for bad in cases:
        with pytest.raises(TsmError) as caught:
            before.load_state(bad)
        assert caught.value.kind == "bad state", bad[:8]
        assert before.save_state() == kept
    with pytest.raises(TypeError):
        before.load_state("text")


def test_fork(model, stream):
    twin = stream.fork()
    assert twin.save_state() == stream.save_state() and twin.model is stream.model
    expected = stream.fork().feed(TOKENS)
    twin.feed([0, 0, 0])
    assert np.array_equal(stream.feed(TOKENS), expected)


def test_reset(model, stream):
    stream.reset()
    assert stream.save_state() == model.create_stream().save_state()
    assert np.array_equal(stream.feed(TOKENS), model.create_stream().feed(TOKENS))


def test_streams_do_not_leak_into_each_other(model):
    """Streams are created, fed in turn with different inputs, and dropped: each behaves as if it were alone."""
    rng = np.random.default_rng(1)
    texts = rng.integers(0, 20, size=(30, 12))
    alone = [model.create_stream().feed(text) for text in texts]
    streams = [model.create_stream() for _ in texts]
    found = [[] for _ in texts]
    for t in range(12):
        for i in rng.permutation(30):
            found[i].append(streams[i].feed(texts[i, t : t + 1]))
        streams[rng.integers(30)].fork().feed(texts[0])
    for rows, expected in zip(found, alone, strict=True):
        assert np.array_equal(np.concatenate(rows), expected)


def test_a_stream_keeps_its_model(files):
    model = Model.load(files["lm"])
    stream = model.create_stream()
    expected = model.create_stream().feed(TOKENS)
    assert stream.model is model
    del model
    gc.collect()
    assert np.array_equal(stream.feed(TOKENS), expected)
    twin = stream.fork()
    del stream
    gc.collect()
    assert twin.position == 5 and twin.model.vocab_size == 20


def test_repr(stream):
    assert "position 5" in repr(stream)
