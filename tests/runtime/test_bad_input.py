"""Errors say what is wrong, name the field, say what is accepted, and leave the stream unchanged."""

from __future__ import annotations

import os

import numpy as np
import pytest

from tsm.runtime import Model, TsmError, cuda_devices

TOKENS = np.array([3, 1, 4])
ROOM = np.empty((3, 20), np.float32)

FEED = [
    (dict(x=TOKENS.astype(float)), "x has dtype float64; accepted: uint16, int32 or int64"),
    (dict(x=TOKENS.astype(np.uint8)), "x has dtype uint8"),
    (dict(x=TOKENS.astype(">i8")), "x has dtype >i8"),
    (dict(x=np.array([True])), "x has dtype bool"),
    (dict(x=[1.5]), "x has dtype float64"),
    (dict(x=["a"]), "x has dtype <U1"),
    (dict(x=TOKENS[None]), r"x has shape \(1, 3\); accepted: .*\[T\]"),
    (dict(x=5), r"x has shape \(\)"),
    (dict(x=None), "x has shape|x has dtype"),
    (dict(x=[[1], [2, 3]]), "x of type list is not an array"),
    (dict(x=[1, 20]), "token 20 at step 1; accepted: 0 to 19"),
    (dict(x=[-1]), "token -1 at step 0"),
    (dict(x=[2**62]), "token 4611686018427387904"),
    (dict(x=TOKENS, dt=0.0), "dt is 0"),
    (dict(x=TOKENS, dt=[1, -1, 1]), "dt is -1.* at step 1"),
    (dict(x=TOKENS, dt=float("nan")), "dt is nan"),
    (dict(x=TOKENS, dt=float("inf")), "dt is inf"),
    (dict(x=TOKENS, dt=1e300), "dt is inf"),
    (dict(x=TOKENS, dt=[1.0, 1.0]), r"dt has shape \(2,\); accepted: .* T = 3"),
    (dict(x=TOKENS, dt=np.ones((3, 1))), r"dt has shape \(3, 1\)"),
    (dict(x=TOKENS, dt=np.ones(3, np.int64)), "dt has dtype int64"),
    (dict(x=TOKENS, dt="soon"), "dt has dtype"),
    (dict(x=TOKENS, out=ROOM[:2]), r"out has shape \(2, 20\); accepted: .*\[3, 20\]"),
    (dict(x=TOKENS, out=ROOM[0]), r"out has shape \(20,\)"),
    (dict(x=TOKENS, out=ROOM, last_only=True), r"out has shape \(3, 20\); accepted: .*\[20\]"),
    (dict(x=TOKENS, out=ROOM.astype(float)), "out has dtype float64"),
    (dict(x=TOKENS, out=np.asfortranarray(ROOM)), "out is not contiguous"),
    (dict(x=TOKENS, out=ROOM.tolist()), "out is a list"),
    (dict(x=TOKENS, out=np.broadcast_to(ROOM[:1, :1], (3, 20))), "out is not contiguous"),
]


@pytest.fixture
def started(model):
    stream = model.create_stream()
    stream.feed([7, 7, 7])
    return stream


NO_CALL = [
    ((), {}, "missing its argument x"),
    ((), dict(out=ROOM), "missing its argument x"),
    ((TOKENS,), dict(x=TOKENS), "repeated argument 'x'"),
    ((TOKENS,), dict(dts=1.0), "unknown or repeated argument 'dts'"),
    ((TOKENS, None, False, ROOM, None), {}, "at most 4 positional"),
    ((TOKENS, None, "yes"), {}, "last_only is a str; accepted: a bool"),
    ((TOKENS,), dict(cancel=1), "cancel is a int; accepted: a Cancel or None"),
]


@pytest.mark.parametrize("arguments, named, message", NO_CALL)
def test_arguments_of_feed(started, arguments, named, message):
    before = started.save_state()
    with pytest.raises(TypeError, match=message):
        started.feed(*arguments, **named)
    assert started.save_state() == before


def test_feed_by_position_and_by_name(started):
    expected = started.fork().feed(TOKENS, dt=[2.0, 1.0, 1.0])
    room = ROOM.copy()
    assert started.fork().feed(TOKENS, [2.0, 1.0, 1.0], False, room) is room
    assert np.array_equal(room, expected)
    last = started.fork().feed(last_only=True, cancel=None, dt=[2.0, 1.0, 1.0], x=TOKENS)
    assert np.array_equal(last, expected[-1])


@pytest.mark.parametrize("arguments, message", FEED)
def test_feed(started, arguments, message):
    before = started.save_state()
    with pytest.raises(TsmError, match=message) as caught:
        started.feed(**arguments)
    assert caught.value.kind == "invalid argument"
    assert started.save_state() == before
    started.feed(TOKENS)


def test_read_only_out(started):
    room = ROOM.copy()
    room.flags.writeable = False
    with pytest.raises(TsmError, match="out is read-only"):
        started.feed(TOKENS, out=room)


@pytest.mark.parametrize("arguments, message", [f for f in FEED if "out" not in f[0]])
def test_feed_many(model, started, arguments, message):
    """If one chunk is bad, no stream is fed."""
    good = model.create_stream()
    dts = [None, arguments["dt"]] if "dt" in arguments else None
    before = started.save_state()
    named = message.replace("x ", r"chunks\[1\] ").replace("dt has", r"dts\[1\] has")
    if named == message:
        named = rf"chunks\[1\]: {message}"
    with pytest.raises(TsmError, match=named):
        model.feed_many([good, started], [TOKENS, arguments["x"]], dts)
    assert good.position == 0 and started.save_state() == before


def test_feed_many_lists(model, load, started):
    other = model.create_stream()
    for streams, chunks, options, message in [
        ([started, started], [TOKENS, TOKENS], {}, "twice"),
        ([started], [TOKENS, TOKENS], {}, "chunks has 2 entries; accepted: .* 1"),
        ([started, other], [TOKENS], {}, "chunks has 1 entries"),
        ([started], [TOKENS], dict(dts=[]), "dts has 0 entries"),
        ([started], [TOKENS], dict(out=[None, None]), "out has 2 entries"),
        ([started, "me"], [TOKENS, TOKENS], {}, r"streams\[1\] is a str; accepted: Stream"),
        (started, [TOKENS], {}, "streams is a .*Stream; accepted: a sequence"),
        ("x", [TOKENS], {}, "streams is a str"),
        ([load("other").create_stream()], [TOKENS], {}, "another model"),
        ([load("lm").create_stream()], [TOKENS], {}, "another model"),  # loaded a second time
    ]:
        with pytest.raises(TsmError, match=message):
            model.feed_many(streams, chunks, **options)
    assert started.position == 3 and other.position == 0


def test_feed_many_into_memory_that_overlaps(model, started):
    other, third = model.create_stream(), model.create_stream()
    rows = np.empty((6, 20), np.float32)
    before = started.save_state()
    for out, message in [
        (
            [rows[:3], None, rows[:3]],
            r"chunks\[2\]: its outputs overlap those of chunks\[0\]; accepted: memory of its own",
        ),
        ([rows[3:], rows[:3], rows[2:5]], r"chunks\[2\]: its outputs overlap those of chunks\[1\]"),
        ([rows[1:4], rows[:3], None], r"chunks\[1\]: its outputs overlap those of chunks\[0\]"),
    ]:
        with pytest.raises(TsmError, match=message) as caught:
            model.feed_many([started, other, third], [TOKENS] * 3, out=out)
        assert caught.value.kind == "invalid argument"
    assert started.save_state() == before and other.position == third.position == 0
    model.feed_many([other, third], [TOKENS] * 2, out=[rows[3:], rows[:3]])  # side by side
    assert np.array_equal(rows[3:], rows[:3])
    model.feed_many([other, third], [[], TOKENS], out=[rows[1:1], rows[:3]])  # nothing is written


def test_outputs_in_what_is_fed(load):
    stream = load("tagger").create_stream()
    room = np.zeros(200, np.float32)
    x, dt = room[:15].reshape(3, 5), room[15:18]
    width = stream.feed(x.copy()).shape[1]
    before = stream.save_state()
    for first in (0, 14):
        with pytest.raises(TsmError, match="an output overlaps what is fed; accepted: memory"):
            stream.feed(x, out=room[first : first + 3 * width].reshape(3, width))
    assert stream.save_state() == before
    stream.feed(room[1:1].reshape(0, 5), last_only=True, out=room[:width])  # of nothing: allowed
    assert stream.save_state() == before
    beside = room[15 : 15 + 3 * width].reshape(3, width)
    stream.feed(x, out=beside)
    dt[:] = 1
    with pytest.raises(TsmError, match="an output overlaps what is fed"):
        stream.feed(x, dt=dt, out=beside)


def test_a_sequence_that_fails(model, started):
    class Broken:
        def __len__(self):
            return 1

        def __getitem__(self, index):
            raise RuntimeError("no such thing")

    for streams, chunks in ((Broken(), [TOKENS]), ([started], Broken())):
        with pytest.raises(RuntimeError, match="no such thing"):
            model.feed_many(streams, chunks)


def test_values(load):
    stream = load("tagger").create_stream()
    x = np.zeros((3, 5), np.float32)
    x[1, 2] = np.nan
    for bad, message in [
        (x[:, :4], r"x has shape \(3, 4\); accepted: float32 \[T, 5\]"),
        (x[0], r"x has shape \(5,\)"),
        (x.astype(float), "x has dtype float64"),
        (x.astype(np.float16), "x has dtype float16"),
        (x, "nan at step 1, column 2"),
        ([1, 2], r"x has shape \(2,\)"),
    ]:
        with pytest.raises(TsmError, match=message):
            stream.feed(bad)
    assert stream.position == 0 and not any(h.any() for h in stream.state()["h"])


def test_what_a_model_cannot(load):
    with pytest.raises(TsmError, match="dt was given; accepted: none"):
        load("timeless").create_stream().feed(TOKENS, 1.0)
    for tokens in (TOKENS, []):
        with pytest.raises(TsmError, match="dt was given; accepted: none"):
            load("timeless").create_stream().score(tokens, 1.0)
    for name in ("classifier", "tagger"):
        with pytest.raises(TsmError, match="language model"):
            load(name).create_stream().score(TOKENS)
        with pytest.raises(TsmError, match="language model"):
            load(name).create_stream().generate(3)


@pytest.mark.parametrize(
    "arguments, message",
    [
        (dict(n=-1), "n = -1; accepted: 0 or more"),
        (dict(n=1, temperature=-0.1), "temperature"),
        (dict(n=1, temperature=float("nan")), "temperature"),
        (dict(n=1, top_k=-1), "top_k"),
        (dict(n=1, top_p=0.0), "top_p"),
        (dict(n=1, top_p=1.5), "top_p"),
        (dict(n=1, seed=-1), "seed = -1; accepted: an integer, 0 to"),
        (dict(n=1, seed=2**64), "seed = 18446744073709551616"),
        (dict(n=1, seed=0.5), "seed is a float; accepted: an integer, 0 to"),
        (dict(n=2**62), "n = 4611686018427387904; accepted: as many as there is memory for"),
        (dict(n=1, dt=-1.0), "dt"),
    ],
)
def test_generate(started, arguments, message):
    before = started.save_state()
    with pytest.raises(TsmError, match=message):
        started.generate(**arguments)
    assert started.save_state() == before


def test_score(started):
    before = started.save_state()
    for tokens, dt, message in [
        (TOKENS.astype(float), None, "tokens has dtype float64"),
        (TOKENS[None], None, r"tokens has shape \(1, 3\)"),
        ([20], None, "token 20"),
        (TOKENS, 0.0, "dt is 0"),
    ]:
        with pytest.raises(TsmError, match=message):
            started.score(tokens, dt)
    assert started.save_state() == before


@pytest.mark.parametrize(
    "options, message",
    [
        (dict(device="tpu"), "device = 'tpu'; accepted: cpu, cuda"),
        (dict(dtype="float16"), "dtype = 'float16'; accepted: float32, bfloat16, int8"),
        (dict(threads=-1), "threads = -1; accepted: 0 to 1024"),
        (dict(threads=1025), "threads = 1025; accepted: 0 to 1024"),
    ],
)
def test_load_options(files, options, message):
    with pytest.raises(TsmError, match=message):
        Model.load(files["lm"], **options)


def test_no_gpu(files):
    if cuda_devices() > 0:
        pytest.skip("there is a GPU")
    with pytest.raises(TsmError, match=r"device = 'cuda': .*CUDA.*; accepted: cpu"):
        Model.load(files["lm"], device="cuda")


def test_load_paths(tmp_path, files):
    with pytest.raises(FileNotFoundError, match=r"nowhere\.tsm"):
        Model.load(tmp_path / "nowhere.tsm")
    broken = tmp_path / "broken.tsm"
    broken.write_bytes(files["lm"].read_bytes()[:500])
    with pytest.raises(TsmError, match=r"broken\.tsm") as caught:
        Model.load(broken)
    assert caught.value.kind == "bad file"
    with pytest.raises(TsmError):
        Model.load(tmp_path)  # a folder
    with pytest.raises(TypeError):
        Model.load(5)
    for name in ("Mödel.tsm".encode(), b"\xff.tsm"):  # whatever the locale's encoding is
        strange = tmp_path / os.fsdecode(name)
        with pytest.raises(FileNotFoundError):
            Model.load(strange)
        strange.write_bytes(files["lm"].read_bytes())
        for form in (strange, str(strange), os.fsencode(strange)):
            assert Model.load(form).family == "lm"


def test_tsm_error_is_a_value_error():
    assert issubclass(TsmError, ValueError)
    assert TsmError.__module__ == "tsm.runtime"


def test_objects_come_from_their_makers():
    from tsm.runtime import Stream

    for made in (Model, Stream):
        with pytest.raises(TypeError):
            made()
