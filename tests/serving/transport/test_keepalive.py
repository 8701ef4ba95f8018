"""A WebSocket is closed if its client is gone, not if the server itself was late."""

from __future__ import annotations

import asyncio
import gc
import time

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from tsm.runtime.serving.transport import connection, garbage
from tsm.runtime.serving.transport.garbage import Garbage

from .echo_server import serve


@pytest.fixture
def looks_often(monkeypatch):
    monkeypatch.setattr(connection, "LOOK", 0.02)


def test_a_silent_client_is_pinged(looks_often):
    """It answers, and the connection stays."""

    async def program(port):
        async with connect(f"ws://127.0.0.1:{port}", ping_interval=None) as client:
            pings = []
            frame_received = client.protocol.recv_frame
            client.protocol.recv_frame = lambda frame: (pings.append(frame), frame_received(frame))
            while len(pings) < 3:
                await asyncio.sleep(0.005)
            await client.send("still here")
            assert await client.recv() == "still here"

    serve(program)


def test_a_stall_of_the_server_closes_nothing(looks_often):
    async def program(port):
        async with connect(f"ws://127.0.0.1:{port}", ping_interval=None) as client:
            for _ in range(3):
                await asyncio.sleep(connection.LOOK * connection.SILENT)
                time.sleep(connection.LOOK * connection.SILENT * 3)  # neither side reads
            await client.send("still here")
            assert await client.recv() == "still here"

    serve(program)


def test_a_client_that_does_not_answer_is_closed(looks_often):
    async def program(port):
        client = await connect(f"ws://127.0.0.1:{port}", ping_interval=None)
        client.transport.pause_reading()
        await asyncio.sleep(connection.LOOK * connection.SILENT * 4)
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
