"""Calls on many streams: log-probabilities, settings per stream, errors that only affect their own chunk."""

from __future__ import annotations

import numpy as np
import pytest

from tsm.runtime import TsmError

RNG = np.random.default_rng(7)
TEXTS = [RNG.integers(0, 20, size=T) for T in (4, 0, 1, 10, 7)]


def streams_of(model, count=5):
    """At different places."""
    made = [model.create_stream() for _ in range(count)]
    for i, stream in enumerate(made):
        stream.feed(np.arange(i) % 20)
    return made


def test_log_probs_are_those_of_score(model):
    many, alone = streams_of(model), streams_of(model)
    found = model.feed_many(many, TEXTS, log_probs=True)
    for text, log_probs, a, b in zip(TEXTS, found, many, alone, strict=True):
        assert (log_probs.shape, log_probs.dtype) == ((len(text),), np.float32)
        assert np.array_equal(log_probs, b.score(text))
        assert a.save_state() == b.save_state()


def test_each_stream_chooses_its_outputs(model):
    many, alone = streams_of(model), streams_of(model)
    last_only = [True, True, False, False, False]
    log_probs = np.array([False, False, True, False, True])
    room = np.empty(7, np.float32)
    found = model.feed_many(
        many, TEXTS, last_only=last_only, log_probs=log_probs, out=[None] * 4 + [room]
    )
    assert found[4] is room
    for i, (text, stream) in enumerate(zip(TEXTS, alone, strict=True)):
        expected = stream.score(text) if log_probs[i] else stream.feed(text, last_only=last_only[i])
        assert np.array_equal(found[i], expected) and found[i].shape == expected.shape


BAD = {
    "token": dict(chunk=[20], message="token 20 at step 0"),
    "dtype": dict(chunk=np.array([1.5]), message="dtype float64"),
    "shape": dict(chunk=np.zeros((1, 2), int), message=r"shape \(1, 2\)"),
    "dt": dict(dt=-1.0, message="dt is -1"),
    "out": dict(out=np.empty(3, np.float32), message=r"out\[2\] has shape"),
    "both": dict(last_only=True, log_probs=True, message="last_only and log_probs"),
    "stream": dict(stream="me", message=r"streams\[2\] is a str"),
    "twice": dict(stream=0, message="twice"),
    "foreign": dict(stream="other", message="another model"),
}


@pytest.mark.parametrize("errors", ["raise", "return"])
@pytest.mark.parametrize("name", BAD)
def test_one_bad_chunk(model, load, name, errors):
    bad = BAD[name]
    streams, alone = streams_of(model), streams_of(model)
    fed, chunks = list(streams), list(TEXTS)
    dts, outs = [None] * 5, [None] * 5
    last_only, log_probs = [False] * 5, [False] * 5
    if "stream" in bad:
        fed[2] = {0: fed[0], "me": "me", "other": load("other").create_stream()}[bad["stream"]]
    chunks[2] = bad.get("chunk", chunks[2])
    dts[2], outs[2] = bad.get("dt"), bad.get("out")
    last_only[2], log_probs[2] = bad.get("last_only", False), bad.get("log_probs", False)
    before = [s.save_state() for s in streams]
    settings = dict(dts=dts, out=outs, last_only=last_only, log_probs=log_probs, errors=errors)
    if errors == "raise":
        with pytest.raises(TsmError, match=bad["message"]) as caught:
            model.feed_many(fed, chunks, **settings)
        assert caught.value.chunk == 2 and caught.value.kind == "invalid argument"
        assert [s.save_state() for s in streams] == before
        return
    found = model.feed_many(fed, chunks, **settings)
    error = found[2]
    assert isinstance(error, TsmError) and (error.chunk, error.kind) == (2, "invalid argument")
    with pytest.raises(TsmError, match=bad["message"]):
        raise error
    assert streams[2].save_state() == before[2]
    for i in (0, 1, 3, 4):
        assert np.array_equal(found[i], alone[i].feed(TEXTS[i]))
        assert streams[i].save_state() == alone[i].save_state()


def test_every_bad_chunk_is_told(model):
    streams = streams_of(model)
    chunks = [[99], TEXTS[1], [-1], np.array([0.5]), TEXTS[4]]
    found = model.feed_many(streams, chunks, errors="return")
    assert [getattr(f, "chunk", None) for f in found] == [0, None, 2, 3, None]
    assert [s.position for s in streams] == [0, 1, 2, 3, 4 + 7]
    room = np.empty((10, 20), np.float32)
    found = model.feed_many(
        streams[:3], [[1, 2]] * 3, out=[room[:2], room[1:3], room[2:4]], errors="return"
    )
    assert [isinstance(f, TsmError) for f in found] == [False, True, False]
    assert "overlap" in str(found[1])


def test_a_state_that_is_lost_is_one_streams_own(load):
    """The states of nru are not bounded: some streams exceed the range of float32, and only those are
    refused."""
    tagger = load("exploding")
    streams = [tagger.create_stream() for _ in range(5)]
    chunks = [np.full((3, 5), 1e-3, np.float32) for _ in streams]
    for bad in (1, 3):
        chunks[bad] = np.full((3, 5), 3e38, np.float32)
    before = streams[0].save_state()
    with pytest.raises(TsmError, match="no longer finite") as caught:
        tagger.feed_many(streams, chunks)
    assert (caught.value.kind, caught.value.chunk) == ("bad state", 1)
    assert all(s.save_state() == before for s in streams)
    found = tagger.feed_many(streams, chunks, errors="return")
    for i, stream in enumerate(streams):
        if i in (1, 3):
            assert (found[i].kind, found[i].chunk) == ("bad state", i)
            assert stream.save_state() == before
        else:
            assert np.array_equal(found[i], tagger.create_stream().feed(chunks[i]))
            assert stream.position == 3


def test_errors_of_the_whole_call(model):
    streams = streams_of(model)
    for arguments, message in [
        (dict(errors="ignore"), "errors = 'ignore'; accepted: raise, return"),
        (dict(last_only=[True]), "last_only has 1 entries; accepted: one per stream, 5"),
        (dict(log_probs=[True] * 6), "log_probs has 6 entries"),
        (dict(last_only="yes"), "last_only is a str; accepted: a bool, or one per stream"),
        (dict(log_probs=[1] * 5), r"log_probs\[0\] is a int; accepted: a bool"),
    ]:
        with pytest.raises(TsmError, match=message):
            model.feed_many(streams, TEXTS, **arguments)
    assert [s.position for s in streams] == [0, 1, 2, 3, 4]


def test_a_stream_that_knows_no_log_probs(load):
    tagger = load("tagger")
    with pytest.raises(TsmError, match="language model"):
        tagger.feed_many([tagger.create_stream()], [np.zeros((1, 5), np.float32)], log_probs=True)


# ---- generate_many

SETTINGS = dict(
    n=[5, 0, 12, 3, 12],
    temperature=[1.0, 1.0, 0.0, 0.7, 1.3],
    top_k=[0, 3, 0, 4, 15],
    top_p=[1.0, 0.5, 1.0, 0.9, 0.95],
    seed=[1, 2, 3, 2**64 - 1, 1],
    dt=[1.0, 1.0, 0.5, 1.0, 2.0],
)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
def test_generate_many_is_generate(load, dtype, threads):
    model = load("lm", dtype=dtype, threads=threads)
    many, alone = streams_of(model), streams_of(model)
    found = model.generate_many(many, **SETTINGS)
    for i, stream in enumerate(alone):
        own = {name: values[i] for name, values in SETTINGS.items()}
        expected = stream.generate(**own)
        assert found[i].dtype == np.int64 and np.array_equal(found[i], expected)
        assert many[i].save_state() == stream.save_state()


def test_generate_many_streams_with_one_setting(model):
    """More than are computed together."""
    many, alone = streams_of(model, 150), streams_of(model, 150)
    found = model.generate_many(many, 6, temperature=0.9, seed=range(150))
    for i, stream in enumerate(alone):
        assert np.array_equal(found[i], stream.generate(6, temperature=0.9, seed=i))
        assert many[i].save_state() == stream.save_state()
    assert model.generate_many([], 5) == []


@pytest.mark.parametrize(
    "setting, message",
    [
        (dict(n=[1, 1, -1, 1, 1]), "n = -1"),
        (dict(temperature=[1, 1, -1, 1, 1]), r"^generations\[2\]: temperature = -1"),
        (dict(top_k=[0, 0, -2, 0, 0]), "top_k = -2"),
        (dict(top_p=[1, 1, 0, 1, 1]), "top_p = 0"),
        (dict(n=[1, 1, 2**62, 1, 1]), "n = 4611686018427387904; accepted: as many as"),
        (dict(n=[1, 1, 2**45, 1, 1]), "n = 35184372088832; accepted: as many as"),
        (dict(seed=[0, 0, -1, 0, 0]), "seed = -1"),
        (dict(seed=[0, 0, 0.5, 0, 0]), "seed is a float; accepted: an integer"),
        (dict(seed=[0, 0, None, 0, 0]), "seed is a NoneType"),
        (dict(dt=[1, 1, -1, 1, 1]), r"^generations\[2\]: dt is -1"),
        (dict(temperature=[1, 1, "hot", 1, 1]), r"temperature\[2\] is a str"),
        (dict(top_k=[1, 1, 1.5, 1, 1]), r"top_k\[2\] is a float"),
    ],
)
def test_one_bad_generation(model, setting, message):
    arguments = dict(n=4, seed=5) | setting
    streams = streams_of(model)
    before = [s.save_state() for s in streams]
    with pytest.raises(TsmError, match=message) as caught:
        model.generate_many(streams, **arguments)
    assert caught.value.chunk == 2
    assert [s.save_state() for s in streams] == before
    found = model.generate_many(streams, **arguments, errors="return")
    assert [isinstance(f, TsmError) for f in found] == [False, False, True, False, False]
    assert found[2].chunk == 2 and streams[2].save_state() == before[2]
    alone = streams_of(model)
    for i in (0, 1, 3, 4):
        own = {k: v[i] if isinstance(v, list) else v for k, v in arguments.items()}
        assert np.array_equal(found[i], alone[i].generate(**own))


def test_a_setting_may_be_an_array_without_dimensions(model):
    expected = model.generate_many(streams_of(model), 4, temperature=0.5, seed=5)
    found = model.generate_many(
        streams_of(model), np.array(4), temperature=np.array(0.5), seed=np.array(5)
    )
    assert all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True))


def test_generations_of_the_whole_call(model, load):
    streams = streams_of(model)
    with pytest.raises(TsmError, match="n has 2 entries; accepted: one per stream, 5"):
        model.generate_many(streams, [1, 2])
    with pytest.raises(TsmError, match=r"^generations\[2\]: its stream occurs twice") as caught:
        model.generate_many([streams[0], streams[1], streams[0]], 3)
    assert caught.value.chunk == 2
    classifier = load("classifier")
    with pytest.raises(TsmError, match="language model"):
        classifier.generate_many([classifier.create_stream()], 1)
