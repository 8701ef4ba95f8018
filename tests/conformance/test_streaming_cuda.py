"""The runtime gives the same results on a GPU as on the CPU: every compiled cell, few and many streams, any
split into chunks."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from tolerances import assert_close
from tsm.export.contract.streams import DTYPES, KINDS, B, StreamedModel, T
from tsm.export.tsm.package import package
from tsm.plugin import build_model
from tsm.plugin.cells import get_cell
from tsm.runtime import Model, TsmError, _core

pytestmark = pytest.mark.gpu
MANY = 100  # streams; more than a single launch can take through all steps


@pytest.fixture(autouse=True)
def built_with_cuda():
    assert _core.with_cuda, "a GPU is here, but the core was built without CUDA"


def on_gpu(made: StreamedModel, dtype: str = "float32") -> Model:
    model = Model.load(made.path, device="cuda", dtype=dtype)
    assert (model.device, model.dtype) == ("cuda", dtype)
    return model


def assert_same_state(found: dict, expected: dict, dtype: str) -> None:
    assert found.keys() == expected.keys()
    for name, layers in expected.items():
        for number, value in enumerate(layers):
            assert_close(found[name][number], value, "stream", dtype, f"{name} of layer {number}")


@pytest.mark.parametrize("kind", KINDS)
def test_equals_the_model_in_torch(compiled_cell, kind, tmp_path):
    made = StreamedModel(compiled_cell, kind, tmp_path)
    model = on_gpu(made)
    streams = [model.create_stream() for _ in range(B)]
    logits = np.stack([s.feed(*made.chunk(row)) for row, s in enumerate(streams)])
    expected, states = made.expected()
    assert_close(logits, expected, "stream", "float32", "logits")
    for row, stream in enumerate(streams):
        assert stream.position == T
        found = stream.state()
        for number, layer in enumerate(states):
            for name, value in layer.items():
                what = f"{name} of layer {number}"
                assert_close(found[name][number], value[row], "stream", "float32", what)


@pytest.mark.parametrize("dtype", DTYPES)
def test_chunks_and_ragged_batches(compiled_cell, dtype, tmp_path):
    """Any split into chunks and batches gives the same results as one chunk, and agrees with the model in
    float64."""
    made = StreamedModel(compiled_cell, "lm tokens", tmp_path)
    model, expected = on_gpu(made, dtype), made.expected()[0]
    whole = [model.create_stream() for _ in range(B)]
    logits = [s.feed(*made.chunk(row)) for row, s in enumerate(whole)]
    assert_close(np.stack(logits), expected, "stream", dtype, "logits")
    generator = np.random.default_rng(1)
    cuts = [[0, *sorted(generator.integers(0, T + 1, size=3)), T] for _ in range(B)]
    streams, pieces = [model.create_stream() for _ in range(B)], [[] for _ in range(B)]
    for i in range(4):
        chunks = [made.chunk(row, cuts[row][i], cuts[row][i + 1]) for row in range(B)]
        dts = None if made.dt is None else [dt for _, dt in chunks]
        for row, found in enumerate(model.feed_many(streams, [x for x, _ in chunks], dts)):
            pieces[row].append(found)
    for row, stream in enumerate(streams):
        assert_close(np.concatenate(pieces[row]), logits[row], "stream", dtype, "logits of pieces")
        assert stream.position == whole[row].position
        assert stream.time == pytest.approx(whole[row].time, rel=1e-12)
        assert_same_state(stream.state(), whole[row].state(), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["lm tokens", "lm one-hot", "tagger values"])
def test_many_streams(compiled_cell, kind, dtype, tmp_path):
    """Twice feeds chunks of 0 to 9 steps to more streams than a single launch can take through all steps."""
    made = StreamedModel(compiled_cell, kind, tmp_path)
    here, there = Model.load(made.path), on_gpu(made, dtype)
    generator = np.random.default_rng(2)
    ours = [here.create_stream() for _ in range(MANY)]
    theirs = [there.create_stream() for _ in range(MANY)]
    for turn in range(2):
        lengths = generator.integers(0, 10, size=MANY)
        chunks = [made.chunk(i % B, turn, turn + n) for i, n in enumerate(lengths)]
        xs, dts = [x for x, _ in chunks], None
        if made.dt is not None:
            dts = [dt if i % 3 else None for i, (_, dt) in enumerate(chunks)]
        last_only = turn == 1
        expected = here.feed_many(ours, xs, dts, last_only=last_only)
        found = there.feed_many(theirs, xs, dts, last_only=last_only)
        for i in range(MANY):
            assert_close(found[i], expected[i], "stream", dtype, f"logits of stream {i}")
            assert theirs[i].position == ours[i].position
    for i in range(0, MANY, 7):
        assert_same_state(theirs[i].state(), ours[i].state(), dtype)


@pytest.mark.parametrize("count", [129, 300, 700])
@pytest.mark.parametrize("embed", [0, 40])
def test_the_same_bits_in_any_company(count, embed, tmp_path):
    """In bfloat16, with more streams than a block takes: the bits do not depend on the chunks, on other streams
    or on their order."""
    torch.manual_seed(4)
    sizes = dict(vocab_size=50, decoder_embed_dim=embed, decoder_hidden_size=100)
    package(build_model("plstm_lm", **sizes, decoder_layers=2), tmp_path / "m.tsm")
    here = Model.load(tmp_path / "m.tsm")
    there = Model.load(tmp_path / "m.tsm", device="cuda", dtype="bfloat16")
    generator = np.random.default_rng(count)
    chunks = [generator.integers(0, 50, size=n) for n in generator.integers(0, 12, size=count)]
    ours = [here.create_stream() for _ in chunks]
    whole, cut = ([there.create_stream() for _ in chunks] for _ in range(2))
    expected = here.feed_many(ours, chunks)
    found = there.feed_many(whole, chunks)
    for i in range(count):
        assert_close(found[i], expected[i], "stream", "bfloat16", f"logits of stream {i}")
    for i in range(0, count, 7):
        assert_same_state(whole[i].state(), ours[i].state(), "bfloat16")
    cuts = [generator.integers(0, len(chunk) + 1) for chunk in chunks]
    there.feed_many(cut[::-1], [chunk[:n] for chunk, n in zip(chunks, cuts, strict=True)][::-1])
    there.feed_many(cut, [chunk[n:] for chunk, n in zip(chunks, cuts, strict=True)])
    blobs = [[stream.save_state() for stream in streams] for streams in (whole, cut)]
    assert blobs[0] == blobs[1]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("hidden", [1, 7, 154, 828, 1150])
@pytest.mark.parametrize("count", [1, 3, 20, 65])
def test_odd_sizes(hidden, count, dtype, tmp_path):
    torch.manual_seed(3)
    sizes = dict(vocab_size=50, decoder_embed_dim=33, decoder_hidden_size=hidden)
    package(build_model("plstm_lm", **sizes, decoder_layers=2), tmp_path / "m.tsm")
    here = Model.load(tmp_path / "m.tsm")
    there = Model.load(tmp_path / "m.tsm", device="cuda", dtype=dtype)
    generator = np.random.default_rng(count)
    chunks = [generator.integers(0, 50, size=n) for n in generator.integers(1, 7, size=count)]
    expected = here.feed_many([here.create_stream() for _ in chunks], chunks)
    found = there.feed_many([there.create_stream() for _ in chunks], chunks)
    for i in range(count):
        assert_close(found[i], expected[i], "stream", dtype, f"logits of stream {i}")


@pytest.mark.parametrize("hidden", [16, 300])
def test_long_chunks(hidden, tmp_path):
    """A chunk with more rows than one slice takes."""
    torch.manual_seed(3)
    package(build_model("plstm_lm", vocab_size=20, decoder_hidden_size=hidden), tmp_path / "m.tsm")
    text = np.random.default_rng(0).integers(0, 20, size=40_000)
    here = Model.load(tmp_path / "m.tsm").create_stream()
    there = Model.load(tmp_path / "m.tsm", device="cuda").create_stream()
    expected, found = here.score(text), there.score(text)
    assert_close(found, expected, "stream", "float32", "log-probabilities")
    assert_same_state(there.state(), here.state(), "float32")


def test_states_move_between_cpu_and_gpu(compiled_cell, tmp_path):
    made = StreamedModel(compiled_cell, "lm tokens", tmp_path)
    here, there = Model.load(made.path), on_gpu(made)
    assert here.fingerprint == there.fingerprint
    expected = here.create_stream().feed(*made.chunk(0))
    stream = here.create_stream()
    pieces = [stream.feed(*made.chunk(0, 0, 5))]
    for i, model in enumerate([there, here, there]):
        blob = stream.save_state()
        stream = model.create_stream()
        stream.load_state(blob)
        assert stream.save_state() == blob, "the states are the same bits"
        pieces.append(stream.feed(*made.chunk(0, 5 + 6 * i, 11 + 6 * i)))
    assert_close(np.concatenate(pieces), expected, "stream", "float32", "logits")
    assert stream.position == T


def test_fork_reset_and_scores(compiled_cell, tmp_path):
    made = StreamedModel(compiled_cell, "lm tokens", tmp_path)
    here, there = Model.load(made.path), on_gpu(made)
    x, dt = made.chunk(0)
    ours, theirs = here.create_stream(), there.create_stream()
    assert_close(theirs.score(x, dt), ours.score(x, dt), "stream", "float32", "scores")
    empty = np.zeros(0, dtype=np.int64)
    expected = ours.feed(empty, last_only=True)
    assert_close(theirs.feed(empty, last_only=True), expected, "stream", "float32", "now")
    twin = theirs.fork()
    before = theirs.save_state()
    twin.feed(x, dt)
    assert theirs.save_state() == before and twin.position == 2 * T
    theirs.reset()
    assert theirs.position == 0 and theirs.time == 0
    assert theirs.save_state() == there.create_stream().save_state()
    del twin
    fresh = there.create_stream()  # reuses the twin's memory: nothing of it may remain
    assert fresh.save_state() == theirs.save_state()


def test_generation(compiled_cell, tmp_path):
    made = StreamedModel(compiled_cell, "lm tokens", tmp_path)
    here, there = Model.load(made.path), on_gpu(made)
    once, twice = there.create_stream(), there.create_stream()
    drawn = once.generate(12, seed=3)
    assert np.array_equal(
        drawn, np.concatenate([twice.generate(5, seed=3), twice.generate(7, seed=3)])
    )
    fed = here.create_stream()
    fed.feed(drawn)
    assert_same_state(once.state(), fed.state(), "float32")


def test_what_is_refused_changes_nothing(tmp_path):
    made = StreamedModel(get_cell("lstm_softsign"), "tagger values", tmp_path)
    # Inputs near the largest float make z infinite, and softsign of infinity is NaN.
    with torch.no_grad():
        made.torch.layers[0].weight_x.mul_(100)
    package(made.torch, made.path)
    model = on_gpu(made)
    good, bad = model.create_stream(), model.create_stream()
    for stream in (good, bad):
        stream.feed(*made.chunk(0))
    before = [s.save_state() for s in (good, bad)]
    x = made.chunk(1)[0]
    for wrong, message in [
        (np.full((3, 5), 3e38, dtype=np.float32), "no longer finite"),
        (np.full((3, 5), np.nan, dtype=np.float32), "x has nan"),
    ]:
        with pytest.raises(TsmError, match=message):
            model.feed_many([good, bad], [x, wrong])
        assert [s.save_state() for s in (good, bad)] == before
        assert (good.position, bad.position) == (T, T)
    assert np.array_equal(good.feed(x), bad.feed(x))


def test_many_threads(tmp_path):
    made = StreamedModel(get_cell("plstm"), "lm tokens", tmp_path)
    model = on_gpu(made)
    expected = model.create_stream().feed(*made.chunk(0))

    def serve(width: int) -> None:
        for _ in range(5):
            stream, rows = model.create_stream(), []
            for start in range(0, T, width):
                rows.append(stream.feed(*made.chunk(0, start, min(T, start + width))))
            assert_close(np.concatenate(rows), expected, "stream", "float32", "logits")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(serve, [1, 2, 3, 4, 5, 7, 11, 23]))


def test_many_threads_with_many_streams(tmp_path):
    """The launches, whose blocks wait for each other, do not all fit on the device at once."""
    torch.manual_seed(5)
    sizes = dict(vocab_size=20, decoder_embed_dim=64, decoder_hidden_size=1024)
    package(build_model("plstm_lm", **sizes), tmp_path / "m.tsm")
    model = Model.load(tmp_path / "m.tsm", device="cuda", dtype="bfloat16")
    generator = np.random.default_rng(6)
    chunks = [generator.integers(0, 20, size=n) for n in generator.integers(1, 9, size=300)]

    def serve(_: int) -> np.ndarray:
        streams = [model.create_stream() for _ in chunks]
        return np.stack([model.feed_many(streams, chunks, last_only=True) for _ in range(4)])

    expected = serve(0)
    with ThreadPoolExecutor(6) as pool:
        for found in pool.map(serve, range(12)):
            assert np.array_equal(found, expected)


def test_leaves_the_callers_device_as_it_was(tmp_path):
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    made = StreamedModel(get_cell("plstm"), "lm tokens", tmp_path)
    with torch.cuda.device(1):
        model = on_gpu(made)
        stream = model.create_stream()
        for call in (
            lambda: stream.feed(*made.chunk(0)),
            lambda: stream.load_state(stream.save_state()),
            lambda: stream.fork().state(),
            stream.reset,
        ):
            call()
            assert torch.cuda.current_device() == 1


def test_a_cell_that_is_not_compiled_in(tmp_path):
    made = StreamedModel(get_cell("nru"), "lm tokens", tmp_path)
    with pytest.raises(TsmError, match=r"layer 0 has the cell 'nru'.*accepted: .*lstm, .*cpu"):
        Model.load(made.path, device="cuda")
