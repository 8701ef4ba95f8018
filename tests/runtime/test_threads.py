"""Many threads share one model; a stream is used by one thread at a time."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch

from tsm.export.tsm.package import package
from tsm.plugin import build_model
from tsm.runtime import Model, TsmError


@pytest.mark.parametrize("threads", [1, 2])
def test_many_streams_over_threads(load, threads):
    model = load("lm", threads=threads)
    texts = np.random.default_rng(0).integers(0, 20, size=(40, 30))
    expected = [model.create_stream().feed(text) for text in texts]

    def serve(i: int) -> bool:
        stream = model.create_stream()
        rows = [stream.feed(texts[i, t : t + 3]) for t in range(0, 30, 3)]
        return np.array_equal(np.concatenate(rows), expected[i])

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(serve, list(range(40)) * 5))


def test_a_stream_handed_from_thread_to_thread(model):
    text = np.random.default_rng(0).integers(0, 20, size=60)
    expected = model.create_stream().feed(text)
    stream, lock, rows = model.create_stream(), threading.Lock(), []

    def serve() -> None:
        while True:
            with lock:
                at = stream.position
                if at == 60:
                    return
                rows.append(stream.feed(text[at : at + 1]))

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(serve) for _ in range(4)]:
            done.result()
    assert np.array_equal(np.concatenate(rows), expected)


def test_the_number_of_threads_is_chosen(load, tmp_path):
    """One for a narrow model, one per core for a wide one; the bits are the same."""
    assert load("lm", threads=0).threads == 1
    torch.manual_seed(1)
    made = build_model("lstm_lm", vocab_size=20, decoder_hidden_size=512, decoder_embed_dim=8)
    package(made, tmp_path / "wide.tsm")
    program = f"""if True:
        import os
        from tsm.runtime import Model
        print(Model.load({str(tmp_path / "wide.tsm")!r}, threads=0).threads)
        os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
        print(Model.load({str(tmp_path / "wide.tsm")!r}, threads=0).threads)
    """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    chosen, pinned = map(int, done.stdout.split())
    cores = len(os.sched_getaffinity(0))
    assert pinned == 1 and (chosen == min(cores, 8) or limited())
    texts = np.random.default_rng(0).integers(0, 20, size=(40, 30))
    feeds = []
    for threads in (0, 1, 3):
        model = Model.load(tmp_path / "wide.tsm", threads=threads)
        feeds.append(model.feed_many([model.create_stream() for _ in texts], list(texts)))
    assert all(np.array_equal(one, feeds[0]) for one in feeds[1:])


def limited() -> bool:
    """Whether the control group has a CPU limit."""
    limit = Path("/sys/fs/cgroup/cpu.max")
    return limit.exists() and not limit.read_text().startswith("max")


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A model so slow that one call overlaps many others."""
    path = tmp_path_factory.mktemp("large") / "large.tsm"
    torch.manual_seed(1)
    package(build_model("plstm_lm", vocab_size=50, decoder_hidden_size=256), path)
    return Model.load(path)


def test_the_gil_is_released_and_a_second_call_is_refused(large):
    stream, other = large.create_stream(), large.create_stream()
    text = np.random.default_rng(0).integers(0, 50, size=10_000)
    expected = large.create_stream().feed(text, last_only=True)
    result = []

    def feed() -> None:
        while not result:
            with suppress(TsmError):  # refused while a call below uses the stream
                result.append(stream.feed(text, last_only=True))

    refused = set()
    calls = {
        "feed": lambda: stream.feed([1]),
        "score": lambda: stream.score([1]),
        "generate": lambda: stream.generate(1),
        "state": stream.state,
        "save_state": stream.save_state,
        "load_state": lambda: stream.load_state(blob),
        "fork": stream.fork,
        "reset": stream.reset,
        "position": lambda: stream.position,
        "time": lambda: stream.time,
        "feed_many": lambda: large.feed_many([other, stream], [[1], [1]]),
    }
    blob = other.save_state()
    thread = threading.Thread(target=feed)
    thread.start()
    while "busy" not in repr(stream) and not result:
        time.sleep(0.001)
    for name, call in calls.items():
        try:
            call()
        except TsmError as error:
            assert error.kind == "busy", name
            refused.add(name)
    busy = repr(stream)
    assert not result, "the call ended before the others were tried: make it longer"
    thread.join()
    assert refused == set(calls)
    assert "busy" in busy
    assert np.array_equal(result[0], expected)
    assert stream.position == 10_000 and other.position == 0


def test_two_writers_never_mix(large):
    """Every call either completes or is refused; the state reflects exactly the completed calls."""
    stream, counts = large.create_stream(), [0, 0]

    def write(i: int) -> None:
        for _ in range(300):
            try:
                stream.feed([1, 2])
                counts[i] += 1
            except TsmError as error:
                assert error.kind == "busy"

    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(2) as pool:
            for done in [pool.submit(write, i) for i in range(2)]:
                done.result()
    finally:
        sys.setswitchinterval(switch)
    fed = sum(counts)
    alone = large.create_stream()
    alone.feed(np.tile([1, 2], fed))
    assert stream.position == 2 * fed
    assert stream.save_state() == alone.save_state()
