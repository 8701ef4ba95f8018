"""Access: tokens, principals, Host, Origin, rate; and requests that are not HTTP or hide another one."""

from __future__ import annotations

import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from tsm.runtime.serving.transport.access import Access, new_token, read_tokens
from tsm.runtime.serving.transport.limits import Limits
from tsm.runtime.serving.transport.problems import Problem

from .server_process import command, events, serving


@pytest.fixture(scope="module")
def guarded(files, tmp_path_factory):
    """A server with two users, and their tokens."""
    folder = tmp_path_factory.mktemp("guarded")
    (ann, first), (ben, second) = new_token("ann"), new_token("ben")
    (folder / "tokens").write_text(f"# who may ask\n{first}\n{second}  # until March\n")
    options = ("--store", "memory", "--token-file", folder / "tokens")
    options += ("--allow-origin", "https://page.example")
    with serving(files["lm"], *options) as server:
        yield server, ann, ben
        assert server.stop() == 0


def test_a_session_belongs_to_its_user(guarded):
    server, ann, ben = guarded
    server.token = ann
    server.post("/v1/sessions/s/feed", text="secret")
    server.token = ben
    for method, path in (("GET", ""), ("GET", "/state"), ("GET", "/memory"), ("GET", "/history"),
                         ("DELETE", ""), ("POST", "/reset")):  # fmt: skip
        assert server.ask(method, f"/v1/sessions/s{path}").status == 404
    for disguised in ("ann%2Fs", "..%2Fann%2Fs", "ann/s", "s%00"):
        assert server.ask("GET", f"/v1/sessions/{disguised}").status in (400, 404)
    assert server.post("/v1/sessions/s/feed", text="x")["position"] == 1  # ben's own
    server.token = ann
    assert server.get("/v1/sessions/s")["position"] == 6


def test_tokens(guarded):
    server, ann, _ = guarded
    for value in (None, "Bearer wrong", f"Basic {ann}", f"Bearer {ann}x", "Bearer \xff"):
        server.token = None
        headers = {} if value is None else {"authorization": value}
        for path in ("/v1/sessions/s", "/metrics", "/v1/models", "/v2"):
            refused = server.ask("GET", path, **headers)
            assert (refused.status, refused.headers["www-authenticate"]) == (401, "Bearer")
        assert server.ask("GET", "/healthz", **headers).status == 200
    url = f"ws://{server.netloc}/v1/sessions/s/stream"
    with pytest.raises(InvalidStatus):
        connect(url)
    with connect(url, subprotocols=["tsm", f"bearer.{ann}"]) as websocket:
        assert websocket.subprotocol == "tsm"  # only the protocol is sent back, not the token


def test_origins(guarded):
    server, ann, _ = guarded
    server.token = ann
    answer = server.ask("GET", "/v1/models", origin="https://page.example")
    assert answer.headers["access-control-allow-origin"] == "https://page.example"
    assert server.ask("OPTIONS", "/v1/models", origin="https://page.example").status == 204
    assert server.ask("GET", "/v1/models", origin=server.address).status == 200
    for origin in ("https://other.example", "null", f"{server.address}.evil.example"):
        assert server.ask("GET", "/v1/models", origin=origin).status == 403
    assert server.ask("GET", "/healthz", host="rebound.example").status == 421


def test_rate():
    now = [0.0]
    access = Access({}, [], [], Limits(rate=2.0), lambda: now[0])
    access.count("a")
    access.count("a")
    with pytest.raises(Problem) as caught:
        access.count("a")
    assert (caught.value.status, caught.value.retry_after) == (429, 1)
    assert "--max-rate" in caught.value.detail
    access.count("b")  # another user
    now[0] = 0.6
    access.count("a")


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--host", "0.0.0.0"], "host 0.0.0.0 can be reached from elsewhere"),
        ([], "no model"),
        (["nowhere.tsm"], "nowhere.tsm"),
        (["=x"], "model '=x'; accepted"),
        (["--max-body", "0"], "accepted: an integer from 1"),
        (["--store", "mysql:x"], "store 'mysql:x'; accepted: memory"),
        (["--max-bodies", "7"], "unrecognized arguments: --max-bodies"),
        (["--token-file", "nowhere"], "nowhere: No such file"),
        (["--peer", "127.0.0.1:80"], "peer '127.0.0.1:80'; accepted: http://HOST:PORT"),
        (["--peer", "http://a.example; script-src *"], "accepted: http://HOST:PORT"),
        (["--peer", "http://::1:80"], "or an IPv6 address in []"),
        (["--peer", "http://[::1%lo]:80"], "or an IPv6 address in []"),
        (["--peer", "http://[1::2::3]:80"], "or an IPv6 address in []"),
    ],
)
def test_flags(files, arguments, message, capfd):
    from tsm.runtime.serving.cli import main

    given = [] if arguments in ([], ["nowhere.tsm"], ["=x"]) else [str(files["lm"])]
    assert main([*given, "--store", "memory", *arguments]) == 2
    said = capfd.readouterr()
    assert said.err.startswith("tsm-serve: error: ") and message in said.err and not said.out


@pytest.mark.parametrize(
    "package, store, message",
    [
        ("uvicorn", "memory", "uvicorn is missing: needs pip install 'timescale-models[serve]'"),
        ("prometheus_client", "memory", "prometheus_client is missing: needs pip install"),
        ("redis", "redis://localhost", "redis is not installed; run: pip install redis"),
    ],
)
def test_packages_that_are_missing(files, package, store, message, monkeypatch, capfd):
    from tsm.runtime.serving.cli import main

    monkeypatch.setitem(sys.modules, package, None)
    assert main([str(files["lm"]), "--port", "0", "--store", store]) == 2
    assert f"tsm-serve: error: {message}" in capfd.readouterr().err


def test_new_tokens(tmp_path):
    result = subprocess.run(
        **command("--new-token", "ann"), capture_output=True, text=True, check=True
    )
    (tmp_path / "tokens").write_text(result.stdout)
    assert [*read_tokens(tmp_path / "tokens").values()] == ["ann"]
    assert result.stderr.split()[-1] not in result.stdout  # the token itself is not in the file
    (tmp_path / "tokens").write_text("ann secret\n")
    with pytest.raises(ValueError, match="tokens:1: accepted: NAME SHA256"):
        read_tokens(tmp_path / "tokens")


def said(server, request: bytes) -> bytes:
    """Everything that a server sends in reply to these bytes, until it closes the connection."""
    host, port = server.netloc.split(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(request)
        return b"".join(iter(lambda: connection.recv(1 << 16), b""))


GET, POST = b"GET %s HTTP/1.1\r\nConnection: close\r\n", b"POST /v1/completions HTTP/1.1\r\n"
HOST = b"Host: localhost\r\n"
HIDDEN = b"0\r\n\r\nGET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n"
LENGTH, CODING = b"Content-Length: %s\r\n", b"Transfer-Encoding: %s\r\n"


@pytest.mark.parametrize(
    "parts, status",
    [
        ([b"nonsense\r\n"], b"400"),
        ([b"GET / HTTP/9.9\r\n"], b"400"),
        ([POST, HOST, LENGTH % b"x"], b"400"),
        ([POST, HOST, LENGTH % b"2", LENGTH % b"3", b"\r\n{}"], b"400"),
        ([POST, HOST, LENGTH % b"5", CODING % b"chunked", b"\r\n", HIDDEN], b"400"),
        ([POST, HOST, CODING % b"xchunked", b"\r\n", HIDDEN], b"400"),
        ([POST, HOST, CODING % b"gzip, chunked", b"\r\n", HIDDEN], b"400"),
        ([POST, HOST, CODING % b"gzip", CODING % b"chunked", b"\r\n", HIDDEN], b"400"),
        ([GET % b"/healthz", HOST, HOST], b"400"),
        ([GET % b"/healthz", HOST, b"Host: elsewhere\r\n"], b"400"),
        ([GET % b"http://elsewhere/healthz", HOST], b"400"),
        ([GET % b"/healthz", HOST, b"X: y\n"], b"400"),
        ([GET % b"/healthz", HOST, b" folded\r\n"], b"400"),
        ([GET % b"/healthz", HOST, b"X: ", b" " * 60_000, b"\r\n"], b"431"),
        ([GET % b"/healthz", HOST, b"X:\r\n" * 4_500], b"431"),
        ([POST, HOST, CODING % b"chunked", b"\r\n0\r\n", b"X: x\r\n" * 6_000], b"431"),
        ([POST, HOST, LENGTH % b"9999999"], b"413"),
        ([GET % b"/", HOST, b"X: ", b"y" * 70_000, b"\r\n"], b"431"),
        ([GET % b"/" + b"y" * 70_000, HOST], b"431"),
        ([GET % b"/healthz"], b"421"),  # no Host
        ([GET % b"/v1/sessions/%ff%fe", HOST], b"400"),
    ],
)
def test_requests_that_are_wrong(server, parts, status):
    """There is one answer, with this status, and none to a request hidden in the body of another."""
    answer = said(server, b"".join(parts) + b"\r\n")
    assert answer.startswith(b"HTTP/1.1 " + status), answer
    assert answer.count(b"HTTP/1.1 ") == 1


def test_a_url_at_this_host(server):
    """Clients send one to a proxy; this server is none, and takes its own."""
    answer = said(server, GET % b"http://LOCALHOST/healthz" + HOST + b"\r\n")
    assert answer.startswith(b"HTTP/1.1 200 ")


def test_deadlines(files):
    """Half a request is dropped, half a body is refused and a long generation is stopped; the session does not
    change."""
    options = ("--store", "memory", "--max-seconds", "0.5", "--max-tokens", 10**8)
    with serving(files["lm"], *options) as server:
        late = {"n": 10**8, "text": "abc"}
        answer = server.ask("POST", "/v1/sessions/a/generate", late)
        assert answer.status == 504 and "--max-seconds" in answer.json["detail"]
        answer = server.ask("POST", "/v1/sessions/a/generate", {**late, "stream": True})
        assert events(answer.body)[-1][0] == "error" and events(answer.body)[-1][1]["status"] == 504
        assert server.ask("GET", "/v1/sessions/a").status == 404
        head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{"
        halves = [b"", b"GET / HT", b"GET /healthz HTTP/1.1\r\nHost: loc", head]
        with ThreadPoolExecutor(4) as pool:
            *dropped, refused = pool.map(partial(said, server), halves)
        assert dropped == [b""] * 3  # closed by the server
        assert refused.startswith(b"HTTP/1.1 408 ") and b"--max-seconds" in refused
        assert server.get("/healthz") == {"status": "ok"}
