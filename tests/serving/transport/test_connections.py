"""Connections of hostile clients: what they send is bounded, answers keep their order, and no connection stays
open without a time limit."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import socket
import time

import pytest

from ..server_process import Server, serving

UPGRADE = (
    "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)


def connect(server: Server, buffer: int | None = None) -> socket.socket:
    """buffer: how many bytes wait on the client's side to be read."""
    host, port = server.netloc.split(":")
    client = socket.socket()
    if buffer is not None:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    client.settimeout(20)
    client.connect((host, int(port)))
    return client


def request(method: str, path: str, more: str = "", body: bytes = b"") -> bytes:
    return f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{more}\r\n".encode() + body


def step(name: str, action: str = "feed", **fields: object) -> bytes:
    body = json.dumps(fields).encode()
    length = f"Content-Length: {len(body)}\r\n"
    return request("POST", f"/v1/sessions/{name}/{action}", length, body)


def answers(client: socket.socket) -> bytes:
    """Everything until the server closes the connection."""
    return b"".join(iter(lambda: client.recv(1 << 16), b""))


SECOND = {
    "no HTTP": (b"garbage\r\n\r\n", 400),
    "a large head": (request("GET", "/healthz", f"X: {'x' * 20_000}\r\n"), 431),
    "a WebSocket": (request("GET", "/v1/sessions/a/stream", UPGRADE), 101),
    "another one": (request("GET", "/healthz", "Connection: close\r\n"), 200),
}


@pytest.mark.parametrize(("second", "status"), SECOND.values(), ids=SECOND)
def test_an_earlier_request_gets_its_own_answer(server, name, second, status):
    """Whatever comes too early, and even if it is wrong, is answered after it."""
    with connect(server) as client:
        client.sendall(step(name, text="abc") + second)
        found = b""
        while found.count(b"HTTP/1.1 ") < 2:
            part = client.recv(1 << 16)
            assert part, found
            found += part
    first, second = found.split(b"HTTP/1.1 ")[1:]
    assert first.startswith(b"200 ") and first.endswith(b'{"position": 3}')
    assert second.startswith(b"%d " % status)


CHUNKED = "Transfer-Encoding: chunked\r\n"
BODIES = {
    "a bad chunk": (b"no size\r\n", 400),
    "many headers after it": (b"0\r\n" + b"X: x\r\n" * 40_000, 431),
    "no end": (b"2\r\n{", 400),  # the client closes its own direction
}


@pytest.mark.parametrize(("body", "status"), BODIES.values(), ids=BODIES)
def test_the_body_of_a_second_request_is_wrong(server, name, body, status):
    """It is refused at once, after the answer to the first one."""
    with connect(server) as client:
        client.settimeout(10)  # the server waits three times as long for the rest of a body
        path = f"/v1/sessions/{name}/feed"
        client.sendall(step(name, text="abc") + request("POST", path, CHUNKED, body))
        if status == 400:
            client.shutdown(socket.SHUT_WR)
        found = answers(client)
    first, second = found.split(b"HTTP/1.1 ")[1:]
    assert first.startswith(b"200 ") and first.endswith(b'{"position": 3}')
    assert second.startswith(b"%d " % status) and b"\r\nconnection: close\r\n" in second


@pytest.mark.parametrize("count", [1, 3])
def test_a_client_that_closes_its_own_direction(server, name, count):
    """As `nc -N` does: its requests are answered, also in the form of events, and then the connection ends."""
    last = step(name, "generate", n=20_000, stream=True)
    with connect(server) as client:
        client.sendall(step(name, tokens=[1]) * (count - 1) + last)
        client.shutdown(socket.SHUT_WR)
        found = answers(client)
    assert found.count(b"HTTP/1.1 200 ") == count
    assert b'event: done\ndata: {"position": %d,' % (20_000 + count - 1) in found


@pytest.mark.parametrize(
    ("sent", "answer"),
    [(b"", b""), (b"POST /v1", b""), (step("a", text="abc")[:-1], b"HTTP/1.1 400 ")],
)
def test_a_request_that_will_never_be_complete(server, sent, answer):
    with connect(server) as client:
        client.settimeout(10)
        client.sendall(sent)
        client.shutdown(socket.SHUT_WR)
        assert answers(client)[: len(answer) or None] == answer


def test_a_client_that_leaves_is_noticed(files):
    """It has read everything so far, so that the server learns of it only when it sends more."""
    with serving(files["lm"], "--max-tokens", 10**9) as server:
        with connect(server) as client:
            client.sendall(step("a", "generate", n=10**9, stream=True))
            assert client.recv(1 << 12).startswith(b"HTTP/1.1 200 ")
            client.shutdown(socket.SHUT_WR)
        assert server.post("/v1/sessions/a/feed", text="abc") == {"position": 3}
        assert server.stop() == 0


def test_a_client_that_leaves_before_its_second_request_is_answered(files):
    """The generation is cancelled and not stored, and the log has no error."""
    with serving(files["lm"], "--max-tokens", 10**9) as server:
        with connect(server) as client:
            first = step("a", "generate", n=10**9, stream=True)
            client.sendall(first + step("a", text="abc"))
            assert client.recv(1 << 12).startswith(b"HTTP/1.1 200 ")
        assert server.post("/v1/sessions/a/feed", text="abc") == {"position": 3}
        assert server.stop() == 0
        events = [json.loads(line)["event"] for line in server.process.stderr]
    assert events == ["start", "drain", "end"]


def test_the_next_head_is_bounded_while_a_request_runs(server, name):
    with connect(server) as client:
        client.sendall(step(name, "generate", n=300_000) + b"GET / HTTP/1.1\r\nX: ")
        for _ in range(64):
            client.sendall(b"x" * (1 << 14))
        found = answers(client)
    assert found.startswith(b"HTTP/1.1 200 ") and b"\r\nconnection: close\r\n" in found


@pytest.mark.parametrize("after", [b"X: x\r\n", b"x"], ids=["many headers", "one header"])
def test_what_follows_a_body_is_bounded(server, name, after):
    """The headers after a chunked body."""
    path = f"/v1/sessions/{name}/feed"
    with connect(server) as client:
        head = request("POST", path, "Transfer-Encoding: chunked\r\n", b"2\r\n{}\r\n0\r\n")
        client.sendall(head + after * ((1 << 20) // len(after)))
        assert answers(client).startswith(b"HTTP/1.1 431 ")


def test_a_request_that_was_refused_while_its_body_was_read(files):
    """It ends then, and not with an answer after --max-seconds, for which the connection has no room."""
    with serving(files["lm"], "--max-seconds", 1) as server:
        with connect(server) as client:
            client.sendall(request("POST", "/v1/sessions/a/feed", CHUNKED, b"0\r\n"))
            time.sleep(0.5)  # the client goes on sending until the time for the body has passed
            client.sendall(b"X: x\r\n" * 40_000)
            assert answers(client).startswith(b"HTTP/1.1 431 ")
            time.sleep(1)
        assert server.stop() == 0
        events = [json.loads(line)["event"] for line in server.process.stderr]
    assert events == ["start", "drain", "end"]


EARLY = {
    "no such path": request("POST", "/nothing", "Content-Length: 1000\r\n", b"x"),
    "a large head": b"GET / HTTP/1.1\r\nX: " + b"x" * 20_000,
    "a wrong chunk": request("POST", "/v1/sessions/a/feed", CHUNKED, b"x\r\n"),
    "a wrong frame": request("GET", "/v1/sessions/a/stream", UPGRADE) + b"\x89\xff",
}


@pytest.mark.parametrize("sent", EARLY.values(), ids=EARLY)
def test_clients_that_do_not_close_after_an_early_answer(files, sent):
    """They have read it, but keep their connections; others are served all the same."""
    with serving(files["lm"], "--max-connections", 3) as server, contextlib.ExitStack() as held:
        for _ in range(4):
            client = held.enter_context(connect(server))
            client.sendall(sent)
            assert client.recv(1 << 16).startswith(b"HTTP/1.1 ")
        end = time.monotonic() + 20
        while server.ask("GET", "/v1/models").status == 503:
            assert time.monotonic() < end, "the connections are still open"
            time.sleep(0.1)
        assert server.stop() == 0


def test_no_free_file_descriptor(files):
    """The log says it once, not for every connection, and the server goes on when there are some again."""
    with serving(files["lm"]) as server:
        pid = server.process.pid
        _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        newest = max(int(name) for name in os.listdir(f"/proc/{pid}/fd"))
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (newest + 5, hard))
        log, said, end = server.process.stderr.fileno(), b"", time.monotonic() + 20
        with contextlib.ExitStack() as held:
            for _ in range(100):
                held.enter_context(connect(server))
            while b"Too many open files" not in said:
                assert select.select([log], [], [], max(0, end - time.monotonic()))[0], said
                said += os.read(log, 1 << 16)
        while time.monotonic() < end:
            with contextlib.suppress(ConnectionError):
                assert server.get("/healthz") == {"status": "ok"}
                break
        assert server.stop() == 0
        assert (said + os.read(log, 1 << 16)).count(b'"files"') == 1


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_handshake_with_a_body_is_refused(server, method):
    with connect(server) as client:
        client.sendall(request(method, "/v1/sessions/a/stream", f"{UPGRADE}Content-Length: 9\r\n"))
        assert answers(client).startswith(b"HTTP/1.1 400 ")


def test_a_websocket_that_is_not_read_is_cut(files):
    """Closing it would wait for the client for ever, with megabytes of answers in memory."""
    message = json.dumps({"tokens": [1] * 9_000, "logits": "each"}).encode()  # 5 MB of answer
    frame = b"\x81\xfe" + len(message).to_bytes(2, "big") + bytes(4) + message
    limits = ("--max-seconds", 1, "--max-numbers", 10**7, "--max-connections", 1)
    with serving(files["lm"], *limits) as server, connect(server, buffer=4096) as client:
        client.sendall(request("GET", "/v1/sessions/a/stream", UPGRADE))
        assert client.recv(1 << 12).startswith(b"HTTP/1.1 101 ")
        client.sendall(frame)
        begun = select.select([client], [], [], 20)[0]
        assert begun and server.ask("GET", "/v1/models").status == 503
        end = time.monotonic() + 20
        while server.ask("GET", "/v1/models").status == 503:
            assert time.monotonic() < end, "the connection is still open"
        assert server.stop() == 0


@pytest.mark.parametrize("action", ["feed", "generate"])
def test_a_slow_client_that_reads_steadily(files, action):
    """It gets its whole answer, although it reads less than the server's buffer within --max-seconds."""
    body = {"tokens": [1] * 9_000, "logits": "each"}  # 3 MB of answer
    if action == "generate":
        body = {"n": 100_000, "stream": True}
    limits = ("--max-seconds", 1, "--max-numbers", 10**7, "--max-tokens", 10**6)
    with serving(files["lm"], *limits) as server, connect(server, buffer=4096) as client:
        client.sendall(step("a", action, **body))
        found, end = b"", time.monotonic() + 5
        while time.monotonic() < end:
            found += client.recv(1 << 14)
            time.sleep(0.3)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        while not found.endswith((b"]}", b"}\n\n\r\n0\r\n\r\n")):
            part = client.recv(1 << 16)
            assert part, len(found)
            found += part


def test_events_that_are_not_read(files):
    """The client is cut, its session is free again, and the tokens were not fed."""
    limits = ("--max-seconds", 3, "--max-tokens", 10**9)
    with serving(files["lm"], *limits) as server, connect(server, buffer=4096) as client:
        client.sendall(step("a", "generate", n=10**9, stream=True))
        assert select.select([client], [], [], 20)[0]
        end = time.monotonic() + 20
        while (answer := server.ask("POST", "/v1/sessions/a/feed", {"tokens": [1]})).status == 504:
            assert time.monotonic() < end
        assert answer.json == {"position": 1}
        assert server.stop() == 0
