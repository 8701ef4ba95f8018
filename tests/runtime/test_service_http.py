"""examples/bounded_http.py under the service: requests made to be misread, slow clients, many clients."""

from __future__ import annotations

import signal
import socket
from pathlib import Path

import pytest

from service_process import call, running, service

VICTIM = b"DELETE /users/victim HTTP/1.1\r\nHost: x\r\n\r\n"
CHUNKED = b"%x\r\n%b\r\n0\r\n\r\n" % (len(VICTIM), VICTIM)
GOOD = b'{"tokens": [1]}'


def head(line, *headers):
    return b"\r\n".join([line + b" HTTP/1.1", b"Host: x", *headers, b"", b""])


def sized(line, body, *headers):
    return head(line, b"Content-Length: %d" % len(body), *headers) + body


MISREAD = {
    "Transfer-Encoding": (
        head(b"POST /users/a/score", b"Transfer-Encoding: chunked") + CHUNKED,
        501,
    ),
    "both": (sized(b"POST /users/a/score", CHUNKED, b"Transfer-Encoding: chunked"), 501),
    "two lengths": (sized(b"POST /users/a/score", VICTIM, b"Content-Length: 0"), 400),
    "the same twice": (sized(b"POST /users/a/score", GOOD, b"Content-Length: 15") + VICTIM, 400),
    "a list": (head(b"POST /users/a/score", b"Content-Length: 0, 0") + VICTIM, 400),
    "with a sign": (head(b"POST /users/a/score", b"Content-Length: +0") + VICTIM, 400),
    "negative": (head(b"POST /users/a/score", b"Content-Length: -1") + VICTIM, 400),
    "underscore": (head(b"POST /users/a/score", b"Content-Length: 1_0") + VICTIM, 400),
    "no number": (head(b"POST /users/a/score", b"Content-Length: ten") + VICTIM, 400),
    "empty": (head(b"POST /users/a/score", b"Content-Length:") + VICTIM, 400),
    "space before the colon": (head(b"POST /users/a/score", b"Content-Length : 5") + VICTIM, 400),
    "no such route": (sized(b"POST /elsewhere", VICTIM), 404),
    "body on GET": (sized(b"GET /users/victim", VICTIM), 200),
    "body on a wrong method": (sized(b"POST /users/a", VICTIM), 405),
    "too long": (head(b"PUT /users/a/state", b"Content-Length: 9999999") + VICTIM, 413),
    "unknown method": (sized(b"PATCH /users/a", VICTIM), 501),
    "pipelined": (sized(b"POST /users/a/score", GOOD) + VICTIM, 200),
}


def ask(address, request):
    """All that the service says until it closes the connection."""
    with socket.create_connection(address.removeprefix("http://").split(":"), timeout=20) as client:
        client.sendall(request)
        return b"".join(iter(lambda: client.recv(1 << 16), b""))


@pytest.fixture(scope="module")
def address(files, tmp_path_factory):
    with service(files["lm"], tmp_path_factory.mktemp("states"), "--seconds", "60") as found:
        call("POST", f"{found}/users/victim/score", {"tokens": [1]})
        yield found


@pytest.mark.parametrize("name", MISREAD)
def test_nothing_in_a_body_is_a_request(address, name):
    """One answer, the connection closed, and the request inside the body not heard."""
    request, status = MISREAD[name]
    assert VICTIM in request
    said = ask(address, request)
    assert said.startswith(b"HTTP/1.1 %d " % status) and said.count(b"HTTP/1.1 ") == 1, said
    assert call("GET", f"{address}/users/victim") == {"position": 1}


def test_a_body_that_ends_early(address):
    with socket.create_connection(address.removeprefix("http://").split(":"), timeout=20) as client:
        client.sendall(sized(b"POST /users/a/score", GOOD)[:-1])
        client.shutdown(socket.SHUT_WR)
        assert client.recv(1 << 16).startswith(b"HTTP/1.1 400 ")


def test_who_says_nothing_is_dropped(files, tmp_path):
    """As many silent connections as are allowed: the next client is served all the same."""
    begun = [b"", b"POST /users/a/score HTTP/1.1\r\nA: b", head(b"POST /x", b"Content-Length: 5")]
    with service(files["lm"], tmp_path, "--seconds", "1", "--connections", "3") as address:
        where = address.removeprefix("http://").split(":")
        silent = [socket.create_connection(where, timeout=20) for _ in begun]
        for client, part in zip(silent, begun, strict=True):
            client.sendall(part)
        assert call("POST", f"{address}/users/ada/score", {"tokens": [1]})["position"] == 1
        for client in silent:
            assert client.recv(1) == b""
            client.close()


def test_many_clients_at_once(files, tmp_path):
    """200 connect while the service is not looking; all are answered."""
    allowed = int(Path("/proc/sys/net/core/somaxconn").read_text())
    with running(files["lm"], tmp_path) as (process, address):
        process.send_signal(signal.SIGSTOP)
        where = address.removeprefix("http://").split(":")
        clients = [socket.create_connection(where, timeout=20) for _ in range(min(200, allowed))]
        process.send_signal(signal.SIGCONT)
        for client in clients:
            client.settimeout(60)
            client.sendall(head(b"GET /users/nobody"))
        for client in clients:
            assert client.recv(1 << 16).startswith(b"HTTP/1.1 404 ")
            client.close()
