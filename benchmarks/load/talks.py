"""Connections to a server, with little overhead, because the load generator shares the processor with the
server.

Each is an asyncio protocol that sends chunks and passes complete answers to its owner, in order. WebSocket
frames are masked with zeros, which costs nothing; a connection over HTTP has one request in flight at a time.
"""

from __future__ import annotations

import asyncio
import base64
import json
import secrets
from abc import ABC, abstractmethod
from array import array
from collections import deque
from typing import Any, Protocol

from .plan import Chunk

TEXT, CLOSE, PING, PONG = 1, 8, 9, 10
END = b"\r\n\r\n"


class Owner(Protocol):
    name: str
    number: int

    def opened(self) -> None: ...
    def answered(self, answer: bytes, status: int) -> None: ...
    def lost(self) -> None: ...


class Talk(ABC, asyncio.Protocol):
    """`ask` sends a chunk; the owner is called for every answer and at the end of the connection."""

    transport: Any

    def __init__(self, owner: Owner, host: str, path: str) -> None:
        self.owner, self.host, self.path = owner, host, path
        self.buffer = bytearray()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self.owner.lost()

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while self.take():
            pass

    @abstractmethod
    def ask(self, chunk: Chunk, first: bool) -> None:
        """Send a message."""

    @abstractmethod
    def take(self) -> bool:
        """Handle the first answer in the buffer, if it is complete; returns whether it was."""

    @staticmethod
    def right(answer: bytes, position: int | None, tokens: int) -> bool:
        """Whether the answer is from a stream that has now read `position` steps (None: unknown)."""
        return position is None or answer.startswith(b'{"position": %d,' % position)

    @staticmethod
    def numbers(answer: bytes) -> list[float]:
        found: list[float] = json.loads(answer)["log_probs"]
        return found


class WebSocketTalk(Talk):
    upgraded = False

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        key = base64.b64encode(secrets.token_bytes(16)).decode()
        transport.write(
            f"GET {self.path.format(self.owner.name)} HTTP/1.1\r\nHost: {self.host}\r\n"
            "Connection: Upgrade\r\nUpgrade: websocket\r\n"
            f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n".encode()
        )

    def ask(self, chunk: Chunk, first: bool) -> None:
        self.transport.write(frame(TEXT, chunk.json))

    def take(self) -> bool:
        if not self.upgraded:
            return self._upgrade()
        buffer = self.buffer
        if len(buffer) < 2:
            return False
        size, start = buffer[1], 2
        if size > 125:
            start = 4 if size == 126 else 10
            if len(buffer) < start:
                return False
            size = int.from_bytes(buffer[2:start], "big")
        end = start + size
        if len(buffer) < end:
            return False
        code, payload = buffer[0] & 15, bytes(buffer[start:end])
        del buffer[:end]
        if code == TEXT:
            self.owner.answered(payload, _status(payload))
        elif code == PING:
            self.transport.write(frame(PONG, payload))
        elif code == CLOSE:
            self.transport.close()
        return True

    def _upgrade(self) -> bool:
        end = self.buffer.find(END)
        if end < 0:
            return False
        if not self.buffer.startswith(b"HTTP/1.1 101"):
            self.transport.abort()
            return False
        del self.buffer[: end + len(END)]
        self.upgraded = True
        self.owner.opened()
        return True


class HttpTalk(Talk):
    def __init__(self, owner: Owner, host: str, path: str) -> None:
        super().__init__(owner, host, path)
        self.waiting: deque[bytes] = deque()  # the first of them is in flight
        self.head = f"POST {path.format(owner.name)} HTTP/1.1\r\nHost: {host}\r\n"

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.owner.opened()

    def ask(self, chunk: Chunk, first: bool) -> None:
        self.waiting.append(self.request(chunk, first))
        if len(self.waiting) == 1:
            self.transport.write(self.waiting[0])

    def request(self, chunk: Chunk, first: bool) -> bytes:
        return self.post(chunk.body)

    def post(self, body: bytes, headers: str = "") -> bytes:
        return f"{self.head}{headers}Content-Length: {len(body)}\r\n\r\n".encode() + body

    def take(self) -> bool:
        end = self.buffer.find(END)
        if end < 0:
            return False
        head = bytes(self.buffer[:end]).lower()
        length = head.find(b"\r\ncontent-length:")
        if length < 0:  # neither server does this
            self.transport.abort()
            return False
        start = end + len(END)
        stop = start + int(head[length + 17 :].split(b"\r", 1)[0])
        if len(self.buffer) < stop:
            return False
        answer = bytes(self.buffer[start:stop])
        del self.buffer[:stop]
        self.waiting.popleft()
        if self.waiting:
            self.transport.write(self.waiting[0])
        self.owner.answered(answer, int(head[9:12]))
        return True


# sequence_id, sequence_start, tokens, their bytes; formatting is cheaper for the client than json.dumps
TRITON = (
    '{"parameters": {"sequence_id": %d, "sequence_start": %s}, "inputs": [{"name": "x", "shape": [1, %d],'
    ' "datatype": "INT64", "parameters": {"binary_data_size": %d}}],'
    ' "outputs": [{"name": "logits", "parameters": {"binary_data": true}}]}'
)


class TritonTalk(HttpTalk):
    """KServe's protocol with tensors as bytes, which is the fastest way to reach Triton over HTTP."""

    def request(self, chunk: Chunk, first: bool) -> bytes:
        size, start = len(chunk.tokens), "true" if first else "false"
        head = (TRITON % (self.owner.number + 1, start, size, 8 * size)).encode()
        return self.post(head + chunk.raw, f"Inference-Header-Content-Length: {len(head)}\r\n")

    @staticmethod
    def right(answer: bytes, position: int | None, tokens: int) -> bool:
        return b'"shape":[1,%d,' % tokens in answer

    @staticmethod
    def numbers(answer: bytes) -> list[float]:
        """The logits after the last step."""
        head, end = json.JSONDecoder().raw_decode(answer.decode("latin-1"))
        (output,) = head["outputs"]
        found = array("f", answer[end:])
        return found[-output["shape"][-1] :].tolist()


TALKS: dict[str, type[Talk]] = {
    "websocket": WebSocketTalk,
    "http": HttpTalk,
    "triton": TritonTalk,
}


def frame(code: int, payload: bytes) -> bytes:
    """A whole message of a client."""
    size = len(payload)
    if size < 126:
        return bytes((0x80 | code, 0x80 | size, 0, 0, 0, 0)) + payload
    wide = (126, 2) if size < 1 << 16 else (127, 8)
    return bytes((0x80 | code, 0x80 | wide[0])) + size.to_bytes(wide[1], "big") + bytes(4) + payload


def _status(answer: bytes) -> int:
    """The status in a message that tsm-serve sends over a WebSocket."""
    if b'"error": {' not in answer:
        return 200
    found: int = json.loads(answer)["error"]["status"]
    return found
