"""Requests and frames are cut where they end, however the network splits them, and a client gets its turn like
all others."""

from __future__ import annotations

import asyncio
import random
from itertools import pairwise

import httptools
import pytest

from tsm.runtime.serving.transport import connection
from tsm.runtime.serving.transport.connection import Connection
from tsm.runtime.serving.transport.garbage import Garbage
from tsm.runtime.serving.transport.http_framing import Requests
from tsm.runtime.serving.transport.limits import Limits

from .test_frames import CONT, PING, TEXT, frame

HEAD = b"POST / HTTP/1.1\r\nHost: a\r\n"
HEADS = {
    "no body": HEAD + b"\r\n",
    "a length": HEAD + b"Content-Length: 7\r\n\r\n0\r\n\r\nab",
    "no length": HEAD + b"content-length:0\r\n\r\n",
    "chunks": HEAD + b"Transfer-Encoding: Chunked\r\n\r\n5\r\n\r\n\r\n1\r\n1f; x=y\r\n" + b"z" * 31,
}
HEADS["chunks"] += b"\r\n0\r\n\r\n"
TRAILERS = HEADS["chunks"][:-2] + b"Host: b\r\nX: y\r\n\r\n"


def requests_in(pieces):
    """What is handed on of each request."""
    framing, requests, data = Requests(Limits()), [], b""
    for piece in pieces:
        data += piece
        while data:
            if framing.complete:
                framing.begin()
                requests.append(b"")
            part, end = framing.next(data, 0)
            if end == 0:
                break
            requests[-1] += part
            data = data[end:]
    assert framing.complete and not data
    return requests


class Bodies:
    """What uvicorn's parser reads: one body for each request."""

    def __init__(self, data):
        self.bodies, self.parser = [], httptools.HttpRequestParser(self)
        self.parser.feed_data(data)

    def on_message_begin(self):
        self.bodies.append(b"")

    def on_body(self, body):
        self.bodies[-1] += body


SMUGGLED = b"POST /v1/sessions/b HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"
LENGTHS = {
    "a length": b"Content-Length: %d\r\n\r\n%s" % (len(SMUGGLED), SMUGGLED),
    "chunks": b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n"
    % (len(SMUGGLED), SMUGGLED),
}


@pytest.mark.parametrize("body", LENGTHS.values(), ids=LENGTHS)
@pytest.mark.parametrize("value", [b"h2c", b"TLS/1.0, websocket", b"", b"WebSocket2"])
def test_an_upgrade_that_nobody_offers_is_ignored(value, body):
    """A parser that saw it would not read the body, and take it for the next request."""
    head = HEAD + b"Connection: Upgrade, HTTP2-Settings\r\nupgrade: %s\r\n" % value
    (request,) = requests_in([head + body])
    assert Bodies(request).bodies == [SMUGGLED]


@pytest.mark.parametrize("seed", range(20))
def test_requests_are_cut_where_they_end(seed):
    rng = random.Random(seed)
    sent = rng.choices([*HEADS.values()], k=20)
    text, pieces = b"".join(sent), []
    while text:
        size = rng.choice([1, 2, 3, 10, 50, 1000])
        pieces.append(text[:size])
        text = text[size:]
    assert requests_in(pieces) == sent


@pytest.mark.parametrize("size", [1, 1000])
def test_what_nobody_reads_is_not_handed_on(size):
    """Fields after the body, which uvicorn would add to those of the head."""
    data = TRAILERS + HEADS["no body"]
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    assert requests_in(pieces) == [HEADS["chunks"], HEADS["no body"]]


class Inner(asyncio.Protocol):
    """A protocol that notes what it gets; like uvicorn's, it becomes a WebSocket."""

    def __init__(self, **_):
        self.parts = []

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        if not self.parts:
            self.transport.set_protocol(self)
            self.transport.write(b"HTTP/1.1 101 Switching Protocols\r\n\r\n")
        self.parts.append(data)


class Socket(asyncio.Transport):
    def __init__(self):
        super().__init__()
        self.reading, self.written = True, b""

    def write(self, data):
        self.written += data

    def pause_reading(self):
        self.reading = False

    def resume_reading(self):
        self.reading = True

    def is_closing(self):
        return False


FLOODS = {
    "pings": frame(PING, b""),
    "messages": frame(TEXT, b"{"),
    "fragments": frame(CONT, b"", False),
}


@pytest.mark.parametrize("flood", FLOODS.values(), ids=FLOODS)
def test_a_flood_of_frames_is_handed_on_in_turns(flood):
    async def main():
        opened = set()
        made = Connection(Inner, Limits(), Garbage(), opened, app_state={})
        inner, transport, count = made.inner, Socket(), 10 * connection.PARTS
        made.connection_made(transport)
        made.data_received(HEADS["no body"])
        made.data_received(flood * count)
        assert not transport.reading  # the rest waits in the system
        seen = [len(inner.parts)]
        while len(inner.parts) < count + 1 and made.turn is not None:
            await asyncio.sleep(0)
            seen.append(len(inner.parts))
        assert max(b - a for a, b in pairwise(seen)) <= connection.PARTS
        assert b"".join(inner.parts[1:]) == flood * count and transport.reading
        made.connection_lost(None)
        assert not opened

    asyncio.run(main())


@pytest.mark.parametrize("pieces", [[b"\r\n"], [b"\r", b"\n"]])
def test_an_empty_line_begins_no_request(pieces):
    """Some clients send one after a body; the connection is kept as if it had not come."""

    async def main():
        made = Connection(Inner, Limits(), Garbage(), set(), app_state={})
        made.connection_made(Socket())
        made._clear_deadline()
        for piece in pieces:
            made.data_received(piece)
        assert made.deadline is None and made.framing.complete and not made.inner.parts
        made.data_received(HEADS["no body"])
        assert made.inner.parts == [HEADS["no body"]]
        made.connection_lost(None)

    asyncio.run(main())
