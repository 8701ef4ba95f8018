"""WebSocket frames of every kind, however the network splits them, are answered as the protocol says."""

from __future__ import annotations

import asyncio
import itertools
import random
import struct

import pytest

from tsm.runtime.serving.transport import connection, websocket_framing

from .echo_server import serve, until_quiet

CONT, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
MOST = 70_000  # bytes of a message
LIMITS = {"body": MOST}


def frame(opcode, payload, fin=True, mask=b"\x01\x02\x03\x04", reserved=0):
    size = len(payload)
    length = (
        bytes([size])
        if size < 126
        else b"\x7e" + struct.pack(">H", size)
        if size < 1 << 16
        else b"\x7f" + struct.pack(">Q", size)
    )
    first = bytes([fin << 7 | reserved << 4 | opcode])
    if mask is None:
        return first + length + payload
    masked = bytes(one ^ mask[i % 4] for i, one in enumerate(payload))
    return first + bytes([length[0] | 0x80]) + length[1:] + mask + masked


async def opened(port):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(
        b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    )
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101")
    return reader, writer


async def read_frame(reader):
    first, second = await reader.readexactly(2)
    assert first & 0x80 and not second & 0x80
    size = {126: 2, 127: 8}.get(second)
    length = int.from_bytes(await reader.readexactly(size), "big") if size else second
    return first & 15, await reader.readexactly(length)


def script(rng):
    """Random frames, and the messages and pings that should come back."""
    sent, messages, pings = [], [], []

    def maybe_ping():
        if rng.random() < 0.3:
            pings.append(rng.randbytes(rng.randrange(10)))
            sent.append(frame(PING, pings[-1], mask=rng.randbytes(4)))

    for _ in range(20):
        size = rng.choice([0, 1, 30, 125, 126, 200, 3_000, 66_000])
        opcode = rng.choice([TEXT, TEXT, TEXT, BINARY])
        payload = (
            rng.randbytes(size) if opcode == BINARY else ("é" * size).encode()[: size // 2 * 2]
        )
        messages.append((opcode, payload))
        cuts = sorted(rng.randrange(len(payload) + 1) for _ in range(rng.choice([0, 0, 0, 1, 3])))
        edges = [0, *cuts, len(payload)]
        for i, (a, b) in enumerate(itertools.pairwise(edges)):
            last = i == len(edges) - 2
            sent.append(frame(CONT if i else opcode, payload[a:b], last, rng.randbytes(4)))
            maybe_ping()
    return b"".join(sent), messages, pings


@pytest.mark.parametrize("seed", range(6))
def test_messages_come_back(seed):
    rng = random.Random(seed)
    data, messages, pings = script(rng)

    async def program(port):
        reader, writer = await opened(port)

        async def write():
            at = 0
            while at < len(data):
                size = rng.choice([1, 2, 3, 7, 100, 5_000, 100_000])
                writer.write(data[at : at + size])
                await writer.drain()
                at += size

        writing = asyncio.ensure_future(write())
        found = [await read_frame(reader) for _ in range(len(messages) + len(pings))]
        await writing
        assert [one for one in found if one[0] != PONG] == messages
        assert [payload for opcode, payload in found if opcode == PONG] == pings
        writer.write(frame(CLOSE, struct.pack(">H", 1000)))
        assert await read_frame(reader) == (CLOSE, struct.pack(">H", 1000))
        writer.close()

    serve(program, **LIMITS)


WRONG = {
    "not masked": (frame(TEXT, b"a", mask=None), 1002),
    "a reserved bit": (frame(TEXT, b"a", reserved=4), 1002),
    "an unknown opcode": (frame(3, b"a"), 1002),
    "not UTF-8": (frame(TEXT, b"\xff\xfe"), 1007),
    "half a character": (frame(TEXT, "é".encode()[:1]), 1007),
    "too large": (frame(TEXT, b"a" * (MOST + 1))[:10], 1009),  # its length suffices
    "much too large": (b"\x81\xff" + struct.pack(">Q", 1 << 40), 1009),
    "a large ping": (frame(PING, b"a" * 60_000)[:4], 1002),  # its length suffices
    "a ping of 126 bytes": (frame(PING, b"a" * 126)[:4], 1002),
    "a continuation of nothing": (frame(CONT, b"a"), 1002),
    "a message in a message": (frame(TEXT, b"a", fin=False) + frame(TEXT, b"b"), 1002),
}


@pytest.mark.parametrize("what", WRONG)
@pytest.mark.parametrize("size", [1, 1_000_000])
def test_a_wrong_frame_closes_the_connection(what, size):
    data, code = WRONG[what]

    async def program(port):
        reader, writer = await opened(port)
        writer.write(frame(TEXT, b"before"))
        assert await read_frame(reader) == (TEXT, b"before")
        for at in range(0, len(data), size):
            writer.write(data[at : at + size])
            await asyncio.sleep(0)
        opcode, payload = await read_frame(reader)
        assert (opcode, struct.unpack(">H", payload[:2])[0]) == (CLOSE, code)
        assert await reader.read() == b""
        writer.close()

    serve(program, **LIMITS)


def test_a_client_that_sends_more_than_is_answered_is_not_read_further():
    async def program(port):
        reader, writer = await opened(port)
        writer.transport.pause_reading()
        writer.write(frame(TEXT, b"x" * 60_000) * 400)
        assert await until_quiet(writer.transport.get_write_buffer_size) > 0
        writer.transport.resume_reading()
        for _ in range(400):
            assert await read_frame(reader) == (TEXT, b"x" * 60_000)
        writer.close()

    serve(program, **LIMITS)


def test_pings_of_a_client_that_does_not_read_take_no_memory(monkeypatch):
    """The server stops reading them until the client has read its answers."""
    monkeypatch.setattr(connection, "PARTS", 1000)

    async def program(port):
        reader, writer = await opened(port)
        writer.transport.pause_reading()
        writer.write(frame(PING, b"x" * 125) * 160_000)  # 20 MB, more than the system's buffers
        assert await until_quiet(writer.transport.get_write_buffer_size) > 0
        writer.transport.resume_reading()
        for _ in range(1000):
            assert await read_frame(reader) == (PONG, b"x" * 125)
        writer.transport.abort()

    serve(program, **LIMITS)


@pytest.mark.parametrize("size", [0, 1])
def test_the_fragments_of_a_message_are_limited(size):
    """A client may send as many as are accepted, message after message."""
    most, part = websocket_framing.MOST_FRAGMENTS, b"x" * size
    message = frame(TEXT, part, fin=False) + frame(CONT, part, fin=False) * (most - 2)

    async def program(port):
        reader, writer = await opened(port)
        for _ in range(2):
            writer.write(message + frame(CONT, b"end"))
            assert await read_frame(reader) == (TEXT, part * (most - 1) + b"end")
        writer.write(message + frame(CONT, part, fin=False) * 2)
        opcode, payload = await read_frame(reader)
        assert (opcode, struct.unpack(">H", payload[:2])[0]) == (CLOSE, 1008)
        assert await reader.read() == b""
        writer.close()

    serve(program, **LIMITS)
