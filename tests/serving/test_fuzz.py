"""Fuzzed requests: never a 500, never another user's state, and the server keeps running."""

from __future__ import annotations

import http.client
import itertools
import json
import random
import re
import socket
from urllib.parse import quote

import pytest

from tsm.runtime.serving.app import ROUTES
from tsm.runtime.serving.transport.access import new_token

from .server_process import Server, serving

SECRET = "the secret of ann"
NAMES = [
    "ann",
    "s",
    "",
    "..",
    "a b",
    "%2e%2e",
    "ann%2Fs",
    "é",
    "x" * 65,
    "~",
    "local",
    "\0",
    "a?b",
    "'",
]
VALUES = [
    None,
    True,
    0,
    1,
    -1,
    2**31,
    2**63,
    2**64,
    -(2**70),
    0.5,
    1e308,
    -0.0,
    "",
    "a",
    "é",
    "\ud800",
]
VALUES += [
    "the",
    "x" * 300,
    [],
    [1],
    [1, 2, 3],
    [-1],
    [99],
    [1.5],
    [True],
    [[1]],
    [[]],
    [None],
    ["a"],
]
VALUES += [10**23, [10**23], ["\ud800"], "9" * 5000, [[10**23] * 5]]
VALUES += [{}, {"a": 1}, [0] * 300, [[0.0] * 5] * 3, "last", "each", [[1e39] * 5], float("nan")]
FIELDS = [
    "tokens", "text", "values", "dt", "logits", "top", "n", "temperature", "top_k", "top_p", "seed", "stop",
    "model", "request_id", "expected_position", "to", "version", "stream", "prompt", "max_tokens", "echo",
    "logprobs", "inputs", "parameters", "id", "nonsense",
]  # fmt: skip
ACTIONS = [
    "feed",
    "score",
    "generate",
    "state",
    "fork",
    "reset",
    "restore",
    "history",
    "memory",
    "x",
    "",
]
OTHERS = [
    "/v1/completions",
    "/v1/models",
    "/v1/models/lm",
    "/v1/models/lm/decode",
    "/v1/peers",
    "/v2/models/lm/infer",
    "/v2",
    "/metrics",
    "/",
]
METHODS = ["POST"] * 6 + ["GET", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS"]


def request(draw: random.Random, blob: bytes) -> tuple[str, str, bytes, dict[str, str]]:
    """Draws a method, a path, a body and headers; most of them are almost valid."""
    path = f"/v1/sessions/{draw.choice(NAMES)}/{draw.choice(ACTIONS)}".rstrip("/")
    if draw.random() < 0.3:
        path = draw.choice(OTHERS)
    fields = draw.sample(FIELDS, draw.randrange(0, 5))
    values = {name: draw.choice(VALUES) for name in fields}
    if draw.random() < 0.5:
        good = {"tokens": [1, 2], "n": 3, "prompt": "ab", "to": f"f{draw.randrange(9)}"}
        name = draw.choice([*good])
        values[name] = good[name]
    if draw.random() < 0.1:
        tensor = {
            "name": "tokens",
            "datatype": "INT64",
            "shape": draw.choice(VALUES),
            "data": [1, 2],
        }
        values["inputs"] = [tensor, draw.choice(VALUES)][: draw.randrange(1, 3)]
    body = json.dumps(values).encode()
    kind = draw.random()
    if kind < 0.15:
        body = bytearray(body)
        for _ in range(draw.randrange(1, 4)):
            body[draw.randrange(len(body))] = draw.randrange(256)
    elif kind < 0.2:
        body = draw.choice(
            [b"", b"[" * 5000, b"7", draw.randbytes(50), b'{"a":1,"a":2}', b"{}" * 9]
        )
    elif kind < 0.25:
        body = bytearray(blob)
        body[draw.randrange(len(body))] ^= 1 << draw.randrange(8)
    headers = {}
    if draw.random() < 0.2:
        name = draw.choice(
            ["if-match", "if-none-match", "origin", "accept", "content-type", "expect"]
        )
        headers[name] = draw.choice(
            ['"1"', "*", "x", "text/event-stream", "null", '"' + "9" * 40 + '"']
        )
    return draw.choice(METHODS), path, bytes(body), headers


def fuzz(files, folder, count: int) -> None:
    (ann, first), (ben, second) = new_token("ann"), new_token("ben")
    (folder / "tokens").write_text(f"{first}\n{second}\n")
    options = ("--store", f"sqlite:{folder}/states.db", "--token-file", folder / "tokens")
    models = (files["lm"], files["tagger"])
    with serving(*models, *options, "--max-tokens", 200, "--max-seconds", 20) as server:
        mine = Server(server.process, server.address, ann)
        mine.post("/v1/sessions/ann/feed", text=SECRET)
        before = mine.ask("GET", "/v1/sessions/ann/state")
        draw, statuses = random.Random(22), {}
        connection = server.connect()
        for number in range(count):
            method, path, body, headers = request(draw, before.body)
            headers["authorization"] = f"Bearer {ben}"
            try:
                connection.request(method, path, body, headers)
            except (http.client.InvalidURL, UnicodeEncodeError):
                connection.close()  # not even http.client would send it
                continue
            response = connection.getresponse()
            answer = response.read()
            statuses[response.status] = statuses.get(response.status, 0) + 1
            said = f"{number}: {method} {path} {body[:300]!r} {headers} -> {response.status} {answer[:300]!r}"
            assert response.status < 500, said
            assert SECRET.encode() not in answer and before.body not in answer, said
            if response.status >= 400 and method != "HEAD":
                assert json.loads(answer)["detail"], said
        after = mine.ask("GET", "/v1/sessions/ann/state")
        assert (after.body, after.headers["etag"]) == (before.body, before.headers["etag"])
        assert {200, 400, 404, 405} <= statuses.keys(), statuses
        assert server.stop() == 0
        assert '"event": "error"' not in server.process.stderr.read()


def test_fuzzed_requests(files, tmp_path):
    fuzz(files, tmp_path, 400)


@pytest.mark.nightly
def test_many_fuzzed_requests(files, tmp_path):
    fuzz(files, tmp_path, 10_000)


TENSOR = {"name": "tokens", "datatype": "INT64", "shape": [1], "data": [1]}
NEEDED = {  # what a route refuses to be without
    "generate": {"n": 1},
    "infer": {"inputs": [TENSOR], "parameters": {}},
    "decode": {"tokens": [1]},
}
MORE = {"completions": [{"max_tokens": 0, "echo": True}, {"echo": True, "stream": True}]}


def paths(pattern: str) -> list[str]:
    """Paths that a route's pattern matches."""
    pattern = pattern.replace("(?:/versions/([^/]+))?", "")
    found = [pattern.replace("models/([^/]+)", "models/lm").replace("([^/]+)", "fuzz")]
    if choice := re.search(r"\((\w+)\|(\w+)\)", pattern):
        found = [found[0].replace(choice[0], one) for one in choice.groups()]
    return found


def fields_of(server, path: str, body: dict, inner=lambda body: body) -> list[str]:
    """The fields that the route takes, by its own words."""
    inner(body)["nonsense"] = 1
    answer = server.ask("POST", path, body)
    assert answer.status == 400, answer.body
    return re.fullmatch(r"unknown field 'nonsense'; accepted: (.*)", answer.json["detail"])[
        1
    ].split(", ")


@pytest.mark.parametrize("model", ["lm", "ids", "tagger"])
def test_every_value_in_every_field(server, model):
    """No field of any route makes a plain request end in a 500."""
    connection, seen = server.connect(), set()

    def check(method: str, path: str, body: object = None) -> None:
        connection.request(method, path, None if body is None else json.dumps(body))
        response = connection.getresponse()
        answer = response.read()
        assert response.status < 500, (method, path, body, answer[:300])
        assert b'"status": 5' not in answer and b"server_error" not in answer, (path, body, answer)

    def copied(values: dict) -> dict:
        return json.loads(json.dumps(values))

    for method, pattern, route, _ in ROUTES:
        for path in paths(pattern.pattern):
            path = path.replace("/lm", f"/{model}").replace("fuzz", f"fuzz-{model}")
            if method == "GET" and model == "lm":
                for value in map(str, [*VALUES, "000000001999999", "1" + "9" * 5000]):
                    for name in ("limit", "after", "model"):
                        check("GET", f"{path}?{name}={quote(value[:6000], errors='replace')}")
            if method != "POST":
                continue
            needed = NEEDED.get(route, {})
            places = [lambda body: body]
            if route == "infer":
                places += [lambda body: body["inputs"][0], lambda body: body["parameters"]]
            for place in places:
                names = fields_of(server, path, copied(needed), place)
                served = {"model": model} if "model" in names else {}
                for name, value in itertools.product(names, VALUES):
                    for more in [{}, *MORE.get(route, [])]:
                        body = copied({**served, **needed, **more})
                        place(body)[name] = value
                        check("POST", path, body)
                seen |= {(route, name) for name in names}
    assert {("completions", "stop"), ("generate", "stop"), ("infer", "shape")} <= seen


def test_fuzzed_bytes(server):
    """Bytes that are not HTTP, or HTTP with changed bytes, get an answer or a closed socket; the server keeps
    running."""
    draw = random.Random(7)
    good = b"POST /v1/sessions/f/feed HTTP/1.1\r\nHost: localhost\r\nContent-Length: 15\r\n"
    good += b'Connection: close\r\n\r\n{"tokens": [1]}'
    host, port = server.netloc.split(":")
    for _ in range(100):
        data = bytearray(good if draw.random() < 0.8 else draw.randbytes(80))
        for _ in range(draw.randrange(1, 5)):
            data[draw.randrange(len(data))] = draw.randrange(256)
        with socket.create_connection((host, int(port)), timeout=60) as connection:
            connection.sendall(bytes(data))
            connection.shutdown(socket.SHUT_WR)
            answer = b"".join(iter(lambda c=connection: c.recv(1 << 16), b""))
        assert not answer.startswith(b"HTTP/1.1 5"), (bytes(data), answer)
    assert server.get("/healthz") == {"status": "ok"}
