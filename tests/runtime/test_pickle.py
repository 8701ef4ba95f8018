"""A pickle of a stream holds its model's path, checksum and settings, and its state; a copy is a fork."""

from __future__ import annotations

import copy
import io
import multiprocessing
import pickle
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from operator import attrgetter, methodcaller

import numpy as np
import pytest

from tsm.runtime import Model, TsmError


def begun(model: Model):
    stream = model.create_stream()
    rng = np.random.default_rng(0)
    if model.takes_tokens:
        stream.feed(rng.integers(0, model.vocab_size, size=7))
    else:
        stream.feed(rng.normal(size=(7, model.input_size)).astype(np.float32))
    return stream


def test_a_stream_goes_on(files, load):
    for name in files:
        stream = begun(load(name))
        other = pickle.loads(pickle.dumps(stream))
        assert other.position == 7 and other.save_state() == stream.save_state()
        assert other.model.fingerprint == stream.model.fingerprint


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_what_a_pickle_holds(model, protocol):
    """A pickle contains no weights, and calls only functions of tsm."""
    stream = begun(model)
    data = pickle.dumps([stream, begun(model)], protocol)
    called = set()

    class Watched(pickle.Unpickler):
        def find_class(self, module, name):
            called.add(f"{module}.{name}")
            return super().find_class(module, name)

    first, second = Watched(io.BytesIO(data)).load()
    assert first.model is second.model and first.save_state() == stream.save_state()
    ours = {"tsm.runtime._reopen.open_model", "tsm.runtime._reopen.open_stream"}
    assert ours <= called <= ours | {"_codecs.encode"}  # bytes, before protocol 3
    if protocol >= 3:
        assert len(data) < 2 * len(stream.save_state()) + len(model.path) + 400


def test_models_that_come_out_are_shared(files, load):
    model = load("lm")
    first, second = (pickle.loads(pickle.dumps(model)) for _ in range(2))
    assert first is second
    assert pickle.loads(pickle.dumps(begun(model))).model is first
    assert pickle.loads(pickle.dumps(load("lm", dtype="int8"))) is not first
    assert pickle.loads(pickle.dumps(load("lm", dtype="int8"))).dtype == "int8"
    assert pickle.loads(pickle.dumps(load("lm", threads=2))).threads == 2
    assert pickle.loads(pickle.dumps(load("other"))) is not first
    first.close()
    third = pickle.loads(pickle.dumps(model))
    assert third is not first and not third.closed and not model.closed
    assert pickle.loads(pickle.dumps(model)) is third


def test_threads_that_unpickle_share_one(load):
    data = pickle.dumps(load("other"))
    with ThreadPoolExecutor(8) as pool:
        models = list(pool.map(pickle.loads, [data] * 16))
    assert len(set(map(id, models))) == 1


def test_the_path_is_absolute(files, monkeypatch, tmp_path):
    monkeypatch.chdir(files["lm"].parent)
    model = Model.load("lm.tsm")
    data = pickle.dumps(model)
    assert model.path == str(files["lm"])
    monkeypatch.chdir(tmp_path)
    assert pickle.loads(data).path == model.path


def test_a_file_that_changed_is_refused(files, tmp_path):
    path = tmp_path / "model.tsm"
    path.write_bytes(files["lm"].read_bytes())
    stream = begun(Model.load(path))
    data = pickle.dumps(stream)
    (tmp_path / "new").write_bytes(files["other"].read_bytes())
    (tmp_path / "new").rename(path)
    with pytest.raises(TsmError, match=f"{path} has changed since the pickle was made") as refused:
        pickle.loads(data)
    assert refused.value.kind == "bad file"
    path.unlink()
    with pytest.raises(FileNotFoundError, match=r"model\.tsm"):
        pickle.loads(data)


def test_a_closed_one_is_not_pickled(load):
    model = load("lm")
    stream = model.create_stream()
    model.close()
    for thing in (model, stream):
        with pytest.raises(TsmError, match="closed"):
            pickle.dumps(thing)
    with pytest.raises(TsmError, match="closed"):
        copy.copy(stream)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_a_copy_is_a_fork(model, copied):
    stream = begun(model)
    twin = copied(stream)
    assert twin.model is model and twin.save_state() == stream.save_state()
    twin.feed([1])
    assert (stream.position, twin.position) == (7, 8)
    assert copied(model) is model
    holder = copied({"user": [stream]})
    assert (holder["user"][0] is stream) == (copied is copy.copy)


def test_other_processes_go_on(model):
    """A process started with spawn has only what the pickle contains."""
    streams = [begun(model) for _ in range(3)]
    for i, stream in enumerate(streams):
        stream.feed([i])
    expected = [stream.fork().feed([3, 1, 4]) for stream in streams]
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        found = pool.map(methodcaller("feed", [3, 1, 4]), streams)
        assert all(map(np.array_equal, found, expected))
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        found = list(pool.map(methodcaller("feed", [3, 1, 4]), streams))
        assert all(map(np.array_equal, found, expected))
        moved = list(pool.map(methodcaller("fork"), streams))
        assert [s.save_state() for s in moved] == [s.save_state() for s in streams]
        assert pool.submit(attrgetter("fingerprint"), model).result() == model.fingerprint
