"""Requests that ask as much of tsm-serve as its limits allow, as the bytes that a client sends."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from .talks import TEXT, frame

WORDS, CHARACTERS = 10_000, 27  # tokens of the models `words` and `chars`
MOST_TOKENS, MOST_BYTES = 10_000, 1 << 20  # tsm-serve's --max-tokens and --max-body
SESSIONS, STATES = 1_000, 1_000  # in the store before anything is measured
CONTINUATION, FINAL, MASKED = 0, 0x80, 0x80  # of a frame


@dataclass(frozen=True)
class Heavy:
    """What one client sends after it has connected; `clients` of them send it at the same time."""

    name: str
    data: Callable[[], bytes] = field(repr=False)
    clients: int = 1
    late: float = 0.0  # seconds until the client reads


def http(path: str, body: Any = None, count: int = 1) -> bytes:
    """`count` requests one after the other on a connection that the last one ends. body: JSON, or bytes."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    method, data = ("GET", b"") if body is None else ("POST", data)
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(data)}\r\n"
    end = b"Connection: close\r\n\r\n"
    return (head.encode() + b"\r\n" + data) * (count - 1) + head.encode() + end + data


def websocket(name: str, frames: Iterator[bytes]) -> bytes:
    """The handshake, the frames, and a frame that ends the connection."""
    head = f"GET /v1/sessions/{name}/stream HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
    head += "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    head += "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    return head.encode() + b"".join(frames) + bytes((FINAL | 8, MASKED | 2, 0, 0, 0, 0, 3, 232))


def message(**values: Any) -> bytes:
    return frame(TEXT, json.dumps(values).encode())


def fragments(count: int, size: int) -> Iterator[bytes]:
    """A message that begins and never ends."""
    yield bytes((TEXT, MASKED, 0, 0, 0, 0))
    for _ in range(count):
        yield bytes((CONTINUATION, MASKED | size, 0, 0, 0, 0)) + b"x" * size


def ids(count: int, vocabulary: int) -> list[int]:
    return [i * 7919 % vocabulary for i in range(count)]


def filled(item: str, before: str = '{"tokens": [', after: str = "]}") -> bytes:
    """A body as large as is accepted: a list of the item."""
    count = (MOST_BYTES - len(before) - len(after)) // (len(item) + 1)
    return (before + ",".join([item] * count) + after).encode()


def infer() -> bytes:
    numbers = (MOST_BYTES - 100) // 2
    head = f'{{"inputs": [{{"name": "tokens", "datatype": "INT64", "shape": [{numbers}], "data": ['
    return (head + ",".join(["1"] * numbers) + "]}]}").encode()


def setup() -> Iterator[bytes]:
    """Many sessions, and one with a long history."""
    for number in range(SESSIONS):
        yield http(f"/v1/sessions/s{number}/feed", {"model": "chars", "tokens": [1]})
    step = message(model="chars", tokens=[1])
    yield websocket("history", iter([step] * STATES))


COMPLETIONS, FEED, SCORE = "/v1/completions", "/v1/sessions/h/feed", "/v1/sessions/h/score"
TEXTS = "/v1/sessions/t/score"
LOOP = {"model": "chars", "prompt": "a", "max_tokens": MOST_TOKENS}
SCORED = {"model": "words", "max_tokens": 0, "echo": True, "logprobs": 20}
HEAVY = (
    Heavy(
        "completions, 16 x 10,000 tokens with 20 alternatives",
        lambda: http(COMPLETIONS, {**LOOP, "n": 16, "logprobs": 20}),
    ),
    Heavy(
        "completions, 16 prompts of 10,000 ids with 20 alternatives",
        lambda: http(COMPLETIONS, {**SCORED, "prompt": [ids(MOST_TOKENS, 99)] * 16}),
    ),
    Heavy("1.2 million empty fragments", lambda: websocket("f", fragments(1_200_000, 0))),
    Heavy("300,000 fragments of a byte", lambda: websocket("f", fragments(300_000, 1))),
    Heavy("1 MB of integers of 4,299 digits", lambda: http(FEED, filled("9" * 4299))),
    Heavy(
        "completions, 4,545 ids with 20 alternatives",
        lambda: http(COMPLETIONS, {**SCORED, "prompt": ids(4_545, WORDS)}),
    ),
    Heavy("completions, 10 x 10,000 tokens", lambda: http(COMPLETIONS, {**LOOP, "n": 10})),
    Heavy(
        "completions, 10 x 10,000 tokens with 16 stops",
        lambda: http(
            COMPLETIONS,
            {**LOOP, "n": 10, "stop": [s * 100 + "!" for s in "abcdefghijklmnop"]},
        ),
    ),
    Heavy(
        "completions, a prompt of 1 MB",
        lambda: http(COMPLETIONS, {"model": "words", "prompt": "b " * 520_000}),
    ),
    Heavy(
        "completions, 16 prompts of 9,999 words",
        lambda: http(COMPLETIONS, {"model": "words", "prompt": ["b c d " * 3_333] * 16}),
    ),
    Heavy("score, 1 MB of text", lambda: http(SCORE, {"model": "words", "text": "b " * 520_000})),
    Heavy(
        "score, 10,000 tokens with their texts",
        lambda: http(
            TEXTS,
            {"model": "words", "tokens": ids(MOST_TOKENS, WORDS), "texts": True, "top": 100},
        ),
    ),
    Heavy(
        "feed, all logits of 3,700 tokens",
        lambda: http(
            "/v1/sessions/e/feed",
            {"model": "chars", "tokens": ids(3_700, CHARACTERS), "logits": "each"},
        ),
    ),
    Heavy(
        "generate, 10,000 events that are read late",
        lambda: http(
            "/v1/sessions/g/generate", {"model": "chars", "n": MOST_TOKENS, "stream": True}
        ),
        late=3.0,
    ),
    Heavy("1 MB of tokens", lambda: http(FEED, filled("1"))),
    Heavy("1 MB of empty objects", lambda: http(FEED, filled("{}"))),
    Heavy("1 MB of empty objects, 4 at once", lambda: http(FEED, filled("{}")), clients=4),
    Heavy("1 MB of empty lists, with a request id", lambda: http(FEED, repeated())),
    Heavy("1 MB of brackets", lambda: http(FEED, b'{"tokens": ' + b"[" * 1_000_000)),
    Heavy("infer, 1 MB of tokens", lambda: http("/v2/models/chars/infer", infer())),
    Heavy("6,000 pipelined requests", lambda: http("/v2", None, 6_000)),
    Heavy("1,000 sessions, 10 times", lambda: http("/v1/sessions?limit=1000", None, 10)),
    Heavy(
        "a history of 1,000 states, 50 times",
        lambda: http("/v1/sessions/history/history", None, 50),
    ),
    Heavy(
        "resets, 300 times",
        lambda: http("/v1/sessions/history/reset", {}, 300),
    ),
    Heavy("memory, 300 times", lambda: http("/v1/sessions/s1/memory", None, 300)),
    Heavy(
        "a socket with 5,000 messages",
        lambda: websocket("m", iter([message(model="chars", tokens=[1])] * 5_000)),
    ),
    Heavy(
        "a socket with 50,000 messages that are refused",
        lambda: websocket("m", iter([message(tokens=["x"])] * 50_000)),
    ),
    Heavy(
        "a socket with 20 messages of 1 MB",
        lambda: websocket("m", iter([frame(TEXT, filled("{}"))] * 20)),
    ),
)


def repeated() -> bytes:
    return filled("[]", '{"request_id": "r", "values": [')
