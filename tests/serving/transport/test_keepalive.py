"""A WebSocket is closed if its client is gone, not if the server itself was late."""

from __future__ import annotations

import asyncio
import gc
import time

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from tsm.runtime.serving.transport import garbage, keepalive
from tsm.runtime.serving.transport.garbage import Garbage

from .echo_server import PONG, serve


async def until(condition):
    while not condition():
        await asyncio.sleep(0.005)


def test_a_stall_of_the_server_closes_nothing():
    async def program(port, connections):
        async with connect(f"ws://127.0.0.1:{port}", ping_interval=None) as client:
            (socket,) = connections
            await until(lambda: socket.pong_timer is not None)
            before = socket.ping_sent_at
            time.sleep(2 * PONG)  # blocks the loop, so that its timers are due before it reads
            await until(lambda: socket.ping_sent_at > before or socket.close_sent)
            assert not socket.close_sent
            await client.send("still here")
            assert await client.recv() == "still here"

    serve(program)


def test_a_client_that_does_not_answer_is_closed(monkeypatch):
    monkeypatch.setattr(keepalive, "AGAIN", 0.05)

    async def program(port, connections):
        client = await connect(f"ws://127.0.0.1:{port}", ping_interval=None)
        (socket,) = connections
        client.transport.pause_reading()
        await until(lambda: not connections)
        assert socket.close_sent
        client.transport.resume_reading()
        with pytest.raises(ConnectionClosed) as closed:
            await client.recv()
        assert closed.value.rcvd.code == 1011

    serve(program)


def test_all_garbage_is_looked_for_when_many_connections_were_closed(monkeypatch):
    looks = []
    monkeypatch.setattr(garbage.gc, "collect", lambda: looks.append(None))
    found = Garbage()
    for still_open in reversed(range(1, 5_000)):  # all of them close, one after the other
        found.connection_closed(still_open)
    assert not looks
    found.connection_closed(0)
    assert looks.pop() is None
    for _ in range(garbage.LEAST):
        assert not looks
        found.connection_closed(0)
    assert len(looks) == 1


def test_a_started_server_looks_at_the_young_alone():
    before = gc.get_threshold()
    try:
        Garbage().begin()
        assert gc.get_threshold() == garbage.THRESHOLDS
        assert gc.get_freeze_count() > 0
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
