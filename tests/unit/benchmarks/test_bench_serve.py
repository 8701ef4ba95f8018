"""The load generator: its arithmetic, and that a stall of the server is measured in full. Nothing is asserted
about speed."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager

import numpy as np
import pytest
from websockets.asyncio.server import serve as serve_websockets
from websockets.frames import Opcode
from websockets.protocol import State
from websockets.server import ServerProtocol

from tsm.benchmarks import serve
from tsm.benchmarks.cli import main
from tsm.benchmarks.load import usage
from tsm.benchmarks.load.generator import Run, Target, now
from tsm.benchmarks.load.histogram import SHARES, Histogram
from tsm.benchmarks.load.plan import Chunk, Draws, Load
from tsm.benchmarks.load.talks import TEXT, frame

STALL = 0.3  # seconds


@pytest.mark.parametrize("scale", [1e-5, 1e-2, 10.0])
def test_percentiles_are_those_of_numpy(scale):
    seconds = scale * np.random.default_rng(3).lognormal(0, 2, 5000)
    found = Histogram()
    for one in seconds.tolist():
        found.record(one)
    microseconds = (seconds * 1e6).astype(np.int64)
    assert found.total == 5000 and found.longest == microseconds.max()
    for name, share in SHARES.items():
        right = np.quantile(microseconds, share, method="inverted_cdf") / 1e3
        assert right <= found.percentiles()[name] <= right * (1 + 1 / 512)
    assert found.percentile(1.0) == found.percentiles()["max"] == microseconds.max() / 1e3


def test_histograms_add_up():
    values = np.random.default_rng(4).exponential(0.01, 3000).tolist()
    parts, whole = [Histogram(), Histogram()], Histogram()
    for i, value in enumerate(values):
        parts[i % 2].record(value)
        whole.record(value)
    assert (parts[0] + parts[1]).plain() == whole.plain()
    again = Histogram(**json.loads(json.dumps(whole.plain())))
    assert again.percentiles() == whole.percentiles()
    assert np.isnan(Histogram().percentile(0.5))
    edge = Histogram()
    edge.record(-1.0)  # a clock that went back
    edge.record(1e9)
    assert edge.total == 2 and edge.longest == 2**36 - 1


def test_a_lost_connection_does_not_add_to_the_load():
    """With `think`, only a session that waits for an answer sends its next message when its connection ends."""

    async def unsent():
        load = Load(active=2, seconds=1.0, think=0.0, idle=1)
        run = Run(load, Target("127.0.0.1", 1, "websocket", "/{}"), "s")
        for session in (run.idle[0], run.active[1]):
            session.pending.append((now(), run.draws.chunk()))
        for session in (*run.idle, *run.active):
            run.gave_up(session)
        return [len(session.unsent) for session in (*run.idle, *run.active)]

    assert asyncio.run(unsent()) == [0, 0, 1]


def test_arrivals():
    """There are as many messages as the rate demands, the same for every server; with "even", they are evenly
    spaced."""
    load = Load(active=10, seconds=1, rate=4.0, vocabulary=50, mix=((8, 0.9), (256, 0.1)))
    draws, same = Draws(load), Draws(load)
    gaps = [draws.gap() for _ in range(20_000)]
    assert gaps == [same.gap() for _ in gaps]
    assert np.mean(gaps) == pytest.approx(1 / 4, rel=0.05) == np.std(gaps)
    lengths = np.array([len(draws.chunk().tokens) for _ in range(5000)])
    assert {*lengths.tolist()} == {8, 256} and np.mean(lengths == 256) == pytest.approx(
        0.1, abs=0.02
    )
    even = Draws(Load(active=10, seconds=1, rate=4.0, arrivals="even"))
    assert [even.first(i) for i in range(10)] == pytest.approx([i / 40 for i in range(10)])
    assert even.gap() == 1 / 4
    assert Draws(Load(active=1, seconds=1, think=0.0)).gap() == 0.0


def test_manners():
    load = Load(active=200, seconds=1, slow=0.1, dying=0.05)
    found = [load.manners(i) for i in range(200)]
    assert (found.count("slow"), found.count("dying")) == (20, 10)
    assert Load.of(json.loads(json.dumps(load.plain()))) == load


@pytest.mark.parametrize("size", [0, 125, 126, 65_535, 65_536])
def test_frames_are_those_of_the_standard(size):
    server = ServerProtocol(state=State.OPEN, max_size=None)
    server.receive_data(frame(TEXT, b"x" * size))
    (found,) = server.events_received()
    assert (found.opcode, found.data, found.fin) == (Opcode.TEXT, b"x" * size, True)


def answer(read, tokens):
    return json.dumps({"position": read, "log_probs": [0.0] * tokens}).encode()


@asynccontextmanager
async def websocket_server(reply):
    async def handle(connection):
        read = 0
        async for message in connection:
            read += len(json.loads(message)["tokens"])
            await connection.send((await reply(read)).decode(), text=True)

    async with serve_websockets(handle, "127.0.0.1", 0) as server:
        yield Target("127.0.0.1", server.sockets[0].getsockname()[1], "websocket", "/{}")


@asynccontextmanager
async def http_server(reply):
    async def handle(reader, writer):
        read = 0
        while head := await reader.readuntil(b"\r\n\r\n"):
            size = int(head.lower().partition(b"content-length:")[2].split()[0])
            read += len(json.loads(await reader.readexactly(size))["tokens"])
            body = await reply(read)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with server:
        yield Target("127.0.0.1", server.sockets[0].getsockname()[1], "http", "/{}")


SERVERS = {"websocket": websocket_server, "http": http_server}


async def driven(kind, reply, load):
    async with SERVERS[kind](reply) as target:
        run = Run(load, target, "s")
        await run.connect()
        await run.drive(lambda **facts: None)
        await run.close()
    return run


@pytest.mark.parametrize("kind", SERVERS)
def test_a_stall_is_seen_by_every_message_that_falls_into_it(kind):
    """One answer is delayed for 0.3 s, while 100 messages per second are due.

    If latency counted from the actual time of sending, only one of 40 messages would be slow.
    """
    load = Load(active=1, seconds=0.395, rate=100.0, arrivals="even", vocabulary=9)
    begin = None

    async def reply(read):
        nonlocal begin
        begin = begin or now()
        await asyncio.sleep(begin + STALL - now())
        return answer(read, 8)

    run = asyncio.run(driven(kind, reply, load))
    assert run.latency.total == 40 and not run.errors
    for share in (0.5, 0.75, 0.99):  # message i of 30 waits for at least STALL - i / 100 s
        least = STALL - 0.4 * (1 - share) - 0.02
        assert run.latency.percentile(share) >= 1e3 * least, share
    assert run.late.total == 40


def test_errors_are_counted_by_kind():
    async def reply(read):
        if read == 16:
            return b'{"id": null, "error": {"status": 429, "detail": "too many"}}'
        return answer(read, 8)

    load = Load(active=2, seconds=0.0975, rate=100.0, arrivals="even", vocabulary=9)
    run = asyncio.run(driven("websocket", reply, load))
    # After the error, the test server keeps counting but the generator does not, so all positions are wrong.
    assert run.errors == {"status 429": 2, "wrong position": 2 * 8}


def test_a_server_that_hangs_up():
    """Messages in flight count as errors; the session reconnects and sends its other messages."""

    async def handle_all():
        served = 0

        async def handle(connection):
            nonlocal served
            read = 0
            async for message in connection:
                served += 1
                if served == 3:
                    return  # closes
                read += len(json.loads(message)["tokens"])
                await connection.send(answer(read, 8).decode())

        async with serve_websockets(handle, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            load = Load(active=1, seconds=0.29, rate=50.0, arrivals="even", vocabulary=9)
            run = Run(load, Target("127.0.0.1", port, "websocket", "/{}"), "s")
            await run.connect()
            await run.drive(lambda **facts: None)
            await run.close()
            return run

    run = asyncio.run(handle_all())
    assert run.errors["closed by the server"] == 1
    assert run.errors["not answered"] >= 1
    assert run.latency.total == 15  # all intended messages, answered or not
    assert run.in_all == 15 - run.errors["not answered"] >= 5


def test_growth_of_memory():
    assert usage.growth([(float(t), 100) for t in range(100)]) is None  # too short
    samples = [(float(t), 50 if t < 120 else 1000 + t) for t in range(601)]
    assert usage.growth(samples) == pytest.approx((1593 / 1127) - 1)


def test_usage_of_a_process():
    import os
    import subprocess
    import sys

    code = "import time; b = bytes(50_000_000); print(flush=True); input()"
    before = usage.memory(os.getpid())
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        child.stdout.readline()
        assert child.pid in usage.tree(os.getpid())
        assert usage.memory(child.pid) > 5_000_000
        assert usage.memory(os.getpid()) > before
        child.communicate(b"\n")
    assert usage.cpu_seconds(os.getpid()) > 0


def test_whole_command(tmp_path, monkeypatch, capsys):
    """Briefly runs every server that needs nothing extra, from the flags to the table and the JSON."""
    monkeypatch.setenv("TSM_TRITON_ENV", str(tmp_path))
    file = tmp_path / "t.json"
    beside = ["http", "per-request", "polling"]
    argv = ["serve", "--smoke", "--slow", "0.25", "--dying", "0.25", "--beside", "triton", *beside]
    assert main([*argv, "--json", str(file)]) == 0
    out = capsys.readouterr().out
    assert "without Triton" in out and "make triton-env" in out
    kept = json.loads(file.read_text())
    assert [row["server"] for row in kept["rows"]] == ["tsm-serve", *beside]
    for row in kept["rows"]:
        load = row["load"]
        assert not load["errors"] and row["title"] in out
        assert load["messages"] > 0 and load["latency ms"]["p50"] > 0
        assert row["saturated"][0]["messages per second"] > 0
        assert load["footprint"]["per connection"] is not None
    assert kept["rows"][0]["load"]["footprint"]["per session, stored"] > 100
    assert kept["machine"]["processor"] and kept["rows"][0]["load"]["load"]["active"] == 4
    assert kept["goals"][0]["met"] is True
    assert "growth of memory" in out and "not measured" in out
    assert serve.report(kept["rows"]) in out
    for row in kept["rows"]:  # as on a machine that stalls for that second
        row["saturated"][0]["messages per second"] = 0.0
    assert "polling" in serve.report(kept["rows"])


@pytest.mark.triton
def test_triton(tmp_path):
    file = tmp_path / "t.json"
    assert main(["serve", "--smoke", "--beside", "triton", "--json", str(file)]) == 0
    row = json.loads(file.read_text())["rows"][1]
    assert row["server"] == "triton" and not row["load"]["errors"] and row["load"]["messages"] > 0


@pytest.mark.parametrize(
    ("argv", "part"),
    [
        (["--active", "0"], "--active 0; accepted: 1 to"),
        (["--mix", "8"], "TOKENS:SHARE"),
        (["--mix", "0:1"], "TOKENS:SHARE"),
        (["--slow", "0.6", "--dying", "0.6"], "at most 1 together"),
        (["--rate", "0"], "--rate 0.0; accepted"),
        (["--beside", "nginx"], "polling"),
    ],
)
def test_bad_flags(argv, part, capsys):
    assert main(["serve", *argv]) == 2
    assert part in capsys.readouterr().err


def test_chunks():
    chunk = Chunk((1, 2, 3))
    assert json.loads(chunk.json) == {"op": "score", "tokens": [1, 2, 3]}
    assert np.frombuffer(chunk.raw, np.int64).tolist() == [1, 2, 3]
