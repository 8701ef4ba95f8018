"""StreamPool from Python: the same results as separate streams, events, errors, spilling, closing.

Scheduling, fairness and how requests end are tested in tests/cpp/engine.
"""

from __future__ import annotations

import gc
import os
import select
import subprocess
import sys
import threading
import weakref

import numpy as np
import pytest

from tsm.runtime import StreamPool, TsmError

RNG = np.random.default_rng(11)


def finished(pool, count=1):
    """The last events of this many requests, by ticket."""
    done = {}
    while len(done) < count:
        assert select.select([pool.fileno()], [], [], 60)[0], "no event comes"
        done |= {event.ticket: event for event in pool.take(3) if event.kind == "done"}
    return done


def inputs(model, T):
    if model.takes_tokens:
        return RNG.integers(0, model.vocab_size, size=T)
    return RNG.standard_normal((T, model.input_size)).astype(np.float32)


@pytest.mark.parametrize("name", ["lm", "timeless", "nru", "classifier", "tagger"])
@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_a_pool_gives_what_lone_streams_give(load, name, dtype):
    model = load(name, dtype=dtype)
    lone = {b"%d" % i: model.create_stream() for i in range(7)}
    expected = {}
    with StreamPool(model, max_batch=5, prefill_steps=4) as pool:
        for i in range(60):
            key = b"%d" % RNG.integers(7)
            x, stream = inputs(model, int(RNG.integers(12))), lone[key]
            dt = RNG.uniform(0.5, 2, len(x)) if model.takes_dt else None
            if model.family == "lm" and i % 3 == 0:
                ticket = pool.generate(key, 6, seed=i, top_k=5, save=True)
                answer = ("tokens", stream.generate(6, seed=i, top_k=5))
            elif model.family == "lm" and i % 3 == 1:
                ticket = pool.feed(key, x, dt, log_probs=True, save=True, user=b"ann")
                answer = ("log_probs", stream.score(x, dt))
            elif i % 2:
                ticket = pool.feed(key, x, dt, "each", save=True, user=i, priority=1)
                answer = ("logits", stream.feed(x, dt))
            else:
                ticket = pool.feed(key, x, dt, "last", save=True)
                answer = ("logits", stream.feed(x, dt, last_only=True))
            expected[ticket] = (*answer, stream.position, stream.save_state())
        events = finished(pool, 60)
    assert events.keys() == expected.keys()
    for ticket, (name, value, position, blob) in expected.items():
        event, found = events[ticket], getattr(events[ticket], name)
        assert event.error is None
        assert (event.position, event.blob) == (position, blob)
        assert np.array_equal(found, value) and found.shape == value.shape, name
        others = {"tokens", "log_probs", "logits"} - {name}
        assert all(getattr(event, other) is None for other in others)


def test_progress(model):
    """New tokens arrive as they are drawn, in order; the last event has all of them, even those already
    taken."""
    expected = model.create_stream().generate(200, seed=4)
    with StreamPool(model) as pool:
        ticket = pool.generate(b"k", 200, seed=4, progress=True)
        heard, done = [], None
        while done is None:
            select.select([pool.fileno()], [], [], 60)
            for event in pool.take():
                assert event.ticket == ticket
                if event.kind == "done":
                    done = event
                else:
                    heard += event.tokens.tolist()
                    assert event.position == len(heard)
    assert heard == expected[: len(heard)].tolist()
    assert np.array_equal(done.tokens, expected)


def test_a_chunk_out_of_order(model):
    with StreamPool(model) as pool:
        tickets = [pool.feed(b"a", [1, 2], expected_position=at) for at in (0, 2, 2, 4)]
        events = finished(pool, 4)
        refused = events[tickets[2]].error
        assert refused.kind == "bad state"
        assert str(refused) == "expected_position = 2, but the stream is at 4"
        assert [events[ticket].error for ticket in tickets].count(None) == 3
        late = pool.generate(b"a", 3, expected_position=0)
        assert finished(pool)[late].error is not None and pool.position(b"a") == 6


SHORT_OF_MEMORY = """
import resource, select, sys
from tsm.runtime import Model, StreamPool

with StreamPool(Model.load(sys.argv[1])) as pool:
    tickets = [pool.feed(b"small", [1]), pool.feed(b"large", [1] * 400_000, logits="each")]
    while pool.stats()["finished"] < 2:
        pool.wait_room(0.01)
    tickets.append(pool.feed(b"small", [1]))
    while pool.stats()["finished"] < 3:
        pool.wait_room(0.01)
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + (4 << 20), before[1]))
    try:
        pool.take()
        raise SystemExit("there was memory")
    except MemoryError:
        resource.setrlimit(resource.RLIMIT_AS, before)
    assert select.select([pool.fileno()], [], [], 0)[0]
    taken = pool.take()
    assert [event.ticket for event in taken] == tickets, taken
    assert taken[1].logits.shape == (400_000, pool.model.output_size)
"""


def test_no_event_is_lost_where_memory_is_short(files):
    """There is not enough memory for the arrays of one event."""
    command = [sys.executable, "-c", SHORT_OF_MEMORY, str(files["lm"])]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_streams_by_key(model):
    with StreamPool(model) as pool:
        pool.feed(b"a", [3, 1, 4])
        finished(pool)
        lone = model.create_stream()
        lone.feed([3, 1, 4])
        assert pool.has(b"a") and pool.position(b"a") == 3
        assert pool.save(b"a") == lone.save_state()
        pool.fork(b"a", b"b")
        pool.reset(b"a")
        assert (pool.position(b"a"), pool.position(b"b")) == (0, 3)
        pool.put(b"a", memoryview(lone.save_state()))
        assert pool.save(b"a") == pool.save(b"b")
        assert pool.drop(b"b") and not pool.drop(b"b") and not pool.has(b"b")
        blob = bytearray(lone.save_state())
        blob[50] ^= 1
        with pytest.raises(TsmError, match="checksum") as refused:
            pool.put(b"c", blob)
        assert refused.value.kind == "bad state" and not pool.has(b"c")


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda p: p.feed(b"", [1]), "key has 0 bytes; accepted: 1 to 256"),
        (lambda p: p.feed(b"k", [1, 99]), "token 99 at step 1; accepted: 0 to 19"),
        (lambda p: p.feed(b"k", [1], dt=-1), "dt is -1 at step 0"),
        (lambda p: p.feed(b"k", [1], logits="all"), "logits = 'all'; accepted: None, 'last'"),
        (lambda p: p.feed(b"k", [1], user="ann"), "user is a str; accepted: an integer or bytes"),
        (lambda p: p.feed(b"k", [1], priority=4), "priority = 4; accepted: 0 to 3"),
        (lambda p: p.generate(b"k", -1), "n = -1; accepted: 0 or more"),
        (lambda p: p.generate(b"k", 1, top_p=0), "top_p = 0"),
        (lambda p: p.generate(b"k", 1, stop=[20]), "stop has 20; accepted: tokens, 0 to 19"),
        (lambda p: p.generate(b"k", 1, seed=-1), "seed = -1"),
        (lambda p: p.position(b"k"), "key is not in the pool"),
        (lambda p: p.take(0), "max = 0; accepted: 1 or more"),
    ],
)
def test_what_is_refused(model, call, message):
    with StreamPool(model) as pool:
        with pytest.raises(TsmError, match=message) as refused:
            call(pool)
        assert refused.value.kind == "invalid argument"
        assert pool.stats()["streams"] == pool.stats()["queue"] == 0


def test_generating_needs_a_language_model(load):
    with StreamPool(load("tagger")) as pool, pytest.raises(TsmError, match="language model"):
        pool.generate(b"k", 1)


def test_requests_that_wait_for_a_wake(model):
    with StreamPool(model) as pool:
        tickets = [pool.feed(b"%d" % i, [1, 2], wake=False) for i in range(3)]
        tickets.append(pool.generate(b"g", 2, wake=False))
        pool.wake()
        done = []
        while len(done) < 4:
            assert select.select([pool.fileno()], [], [], 60)[0]
            done += pool.take()
        assert sorted(event.ticket for event in done) == sorted(tickets)
        assert all(event.error is None and event.position == 2 for event in done)


def test_a_short_step_runs_on_the_thread_that_wakes(model):
    with StreamPool(model) as pool:
        pool.feed(b"a", [1])  # lets the pool measure how long a step takes
        assert select.select([pool.fileno()], [], [], 60)[0] and pool.take()
        pool.feed(b"a", [1, 2], wake=False)
        assert pool.wake(3600)
        (event,) = pool.take()
        assert event.position == 3
        pool.feed(b"long", [1] * 100, wake=False)  # several steps: the pool's own thread takes over
        assert pool.wake(3600)
        assert select.select([pool.fileno()], [], [], 60)[0]
        (event,) = pool.take()
        assert event.position == 100
        pool.feed(b"a", [1], wake=False)
        assert not pool.wake(1e-12)  # too long
        assert select.select([pool.fileno()], [], [], 60)[0] and pool.take()


OPTIONS = ["max_queue", "max_streams", "max_batch", "prefill_steps", "prefill_budget"]


@pytest.mark.parametrize("option", OPTIONS)
def test_bad_options(model, option):
    with pytest.raises(TsmError, match=rf"{option} = -1; accepted: \d+ to"):
        StreamPool(model, **{option: -1})


def test_a_full_queue_and_one_that_is_closed(model):
    pool = StreamPool(model, max_queue=2)
    pool.feed(b"a", [1])
    pool.feed(b"b", [1])
    with pytest.raises(TsmError, match="max_queue = 2") as refused:
        pool.feed(b"c", [1])
    assert refused.value.kind == "full" and not pool.wait_room(0)
    finished(pool, 2)
    assert pool.wait_room()
    ticket = pool.generate(b"a", 1_000_000)
    assert pool.cancel(ticket) and finished(pool)[ticket].error.kind == "cancelled"
    assert pool.position(b"a") == 1 and not pool.cancel(ticket)
    ticket = pool.generate(b"a", 1_000_000)
    pool.close(drain=False)
    event = finished(pool)[ticket]
    assert event.error.kind == "closed" and event.tokens.size == 0
    with pytest.raises(TsmError) as refused:
        pool.feed(b"a", [1])
    assert refused.value.kind == "closed" and pool.closed
    assert len(pool.save(b"a")) > 0


def test_a_deadline(model):
    with StreamPool(model) as pool:
        with pytest.raises(TsmError) as refused:
            pool.feed(b"k", [1], timeout=0)
        assert refused.value.kind == "deadline"
        ticket = pool.generate(b"k", 100_000_000, timeout=0.01)
        event = finished(pool)[ticket]
        assert event.error.kind == "deadline" and event.position == 0
        assert pool.stats()["deadline_misses"] == 1


def test_spilling(model):
    """Evicted states are passed to a function; if it raises, the request is refused."""
    store, failing = {}, []

    def spill(key, blob, position):
        if failing:
            raise OSError("disk full")
        assert position == 2
        store[key] = blob

    with StreamPool(model, max_streams=2, spill=spill) as pool:
        for i in range(5):
            pool.feed(b"%d" % i, [1, i])
            finished(pool)
        assert sorted(store) == [b"0", b"1", b"2"]
        lone = model.create_stream()
        lone.load_state(store[b"1"])
        pool.put(b"1", store[b"1"])
        ticket = pool.generate(b"1", 5, seed=2)
        assert np.array_equal(finished(pool)[ticket].tokens, lone.generate(5, seed=2))
        failing.append(True)
        with pytest.raises(OSError, match="disk full"):
            pool.feed(b"new", [1])
        assert not pool.has(b"new") and pool.stats()["queue"] == 0


def test_without_a_spill_function_unsaved_streams_stay(model):
    with StreamPool(model, max_streams=1) as pool:
        pool.feed(b"a", [1])
        finished(pool)
        with pytest.raises(TsmError, match="max_streams = 1") as refused:
            pool.feed(b"b", [1])
        assert refused.value.kind == "full"
        pool.save(b"a")
        pool.feed(b"b", [1])
        finished(pool)
        assert pool.has(b"b") and not pool.has(b"a")


def test_a_closed_pool_does_not_keep_whoever_spills(model):
    class Server:
        def __init__(self):
            self.pool = StreamPool(model, spill=self.spill)

        def spill(self, key, blob, position):
            raise AssertionError

    server = Server()
    gone = weakref.ref(server)
    server.pool.close()
    del server
    gc.collect()
    assert gone() is None


def test_a_child_of_fork_has_no_pool(model):
    pool = StreamPool(model)
    pool.feed(b"k", [1])
    finished(pool)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            pool.feed(b"k", [1])
        except TsmError as error:
            del pool
            status = 0 if error.kind == "closed" else 2
        os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    pool.feed(b"k", [1])
    assert [event.position for event in finished(pool).values()] == [2]
    pool.close()


def test_stats(model):
    with StreamPool(model) as pool:
        for i in range(10):
            pool.feed(b"%d" % i, [1, 2])
            pool.generate(b"%d" % i, 3)
        finished(pool, 20)
        stats = pool.stats()
    assert (stats["requests"], stats["finished"], stats["streams"]) == (20, 20, 10)
    assert (stats["fed_tokens"], stats["generated_tokens"]) == (20, 30)
    assert sum(stats["batch_sizes"]) == stats["batches"] > 0
    assert stats["queue"] == stats["events"] == stats["failed"] == 0


def other_thread_runs_during(call):
    """Whether a thread that only waits for the GIL gets it before `call` returns."""
    go, ran = threading.Event(), []
    thread = threading.Thread(target=lambda: ran.append(go.wait()))
    thread.start()
    go.set()
    call()
    found = bool(ran)
    thread.join()
    return found


def test_a_large_feed_releases_the_gil(load):
    """The input is checked and copied while other threads run."""
    model = load("lm")
    large = np.zeros(1 << 20, np.int64)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1000)  # a thread keeps the GIL until it releases it
    try:
        with StreamPool(model) as pool:

            def feed():
                tickets.append(pool.feed(b"k", large))

            for _ in range(50):  # the other thread may wake up late
                tickets = []
                found = other_thread_runs_during(feed)
                pool.cancel(tickets[0])
                pool.take()
                if found:
                    break
            assert found
    finally:
        sys.setswitchinterval(before)
