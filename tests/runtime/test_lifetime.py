"""Closed models and streams: `with`, what is refused afterwards, and what is freed."""

from __future__ import annotations

import ctypes
import resource
import threading
from pathlib import Path

import numpy as np
import pytest

from tsm.export.tsm.package import package
from tsm.plugin import build_model
from tsm.runtime import Model, Stream, TsmError

ALIVE = {"close", "closed", "path", "model"}  # of a closed one
ARGUMENTS = {
    "feed_many": ([], []),
    "generate_many": ([], 1),
    "asset": ("text.dict",),
    "encode": ("a",),
    "decode": ([1],),
    "feed": ([1],),
    "score": ([1],),
    "generate": (1,),
    "load_state": (b"",),
}


def refuses_everything(thing: Model | Stream, message: str) -> None:
    names = [n for n in vars(type(thing)) if not n.startswith("_") and n not in ALIVE | {"load"}]
    assert len(names) > 8
    for name in names:
        with pytest.raises(TsmError, match=message):
            member = getattr(thing, name)  # a property refuses here
            member(*ARGUMENTS.get(name, ()))
    with pytest.raises(TsmError, match=message), thing:
        pass
    assert thing.closed and repr(thing).endswith(": closed>")
    thing.close()  # once more does nothing


def test_with_a_stream(model):
    with model.create_stream() as stream:
        assert not stream.closed
        stream.feed([1, 2])
        twin = stream.fork()
    refuses_everything(stream, "^the stream is closed$")
    assert twin.position == 2 and not twin.closed and stream.model is model
    with pytest.raises(TsmError, match="the stream is closed"):
        model.feed_many([twin, stream], [[1], [1]])
    assert twin.position == 2


def test_with_a_model(load):
    with load("lm") as model, model.create_stream() as first:
        second = model.create_stream()
    refuses_everything(model, "^the model is closed$")
    refuses_everything(second, "^the stream's model is closed$")
    refuses_everything(first, "^the stream is closed$")  # which came first


def test_an_exception_goes_on(load):
    with pytest.raises(KeyError), load("lm") as model, model.create_stream() as stream:
        raise KeyError
    assert model.closed and stream.closed


def resident() -> int:
    """Memory in use, without what glibc keeps for reuse, which may be 64 MB in a long-running process."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def test_closing_gives_the_memory_back(tmp_path):
    """Closing a model frees its memory even if a stream object of the model still exists."""
    if not Path("/proc/self/statm").exists():
        pytest.skip("needs /proc")
    path = tmp_path / "large.tsm"
    package(
        build_model("lstm_tagger", input_size=1280, num_classes=2, decoder_hidden_size=1280), path
    )
    model = Model.load(path)
    stream = model.create_stream()
    stream.feed(np.zeros((3, 1280), np.float32))
    before, weights = resident(), model.weight_bytes
    assert weights > 2**25
    model.close()
    assert before - resident() > weights * 3 // 4 and stream.closed


def test_closing_while_threads_feed(load):
    """A running call ends normally; the next one is refused."""
    for _ in range(20):
        model = load("lm")
        started, wrong = threading.Barrier(5), []

        def serve(model=model, started=started, wrong=wrong) -> None:
            stream = model.create_stream()
            expected = stream.fork().feed([1, 2, 3] * 40)
            started.wait()
            try:
                while True:
                    if not np.array_equal(stream.feed([1, 2, 3] * 40), expected):
                        wrong.append("other numbers")
                    stream.reset()
                    model.create_stream().feed([1])
            except TsmError as error:
                if "closed" not in str(error):
                    wrong.append(str(error))

        threads = [threading.Thread(target=serve) for _ in range(4)]
        for thread in threads:
            thread.start()
        started.wait()
        model.close()
        for thread in threads:
            thread.join()
        assert wrong == []
