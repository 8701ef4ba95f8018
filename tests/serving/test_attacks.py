"""Hostile requests, clients that do not read, two servers at once, little memory: no token is repeated, and no
answer is a 500."""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import socket
import stat
import threading
import time
from typing import Any

import pytest

from tsm.runtime import Model
from tsm.runtime.serving.routes.openai import together
from tsm.runtime.serving.session.sessions import Sessions
from tsm.runtime.serving.store.commits import Commits
from tsm.runtime.serving.store.registry import open_store
from tsm.runtime.serving.streams.engine import Engine
from tsm.runtime.serving.streams.models import Models, Source
from tsm.runtime.serving.streams.scoring import score
from tsm.runtime.serving.streams.steps import Step, parse
from tsm.runtime.serving.streams.text import Telling
from tsm.runtime.serving.transport.access import new_token
from tsm.runtime.serving.transport.limits import Keeping, Limits
from tsm.runtime.serving.transport.problems import Problem

from .server_process import serving

FEED, COMPLETIONS = "/v1/sessions/attack/feed", "/v1/completions"


def _nested(depth: int) -> bytes:
    return b'{"values": ' + b"[" * depth + b"]" * depth + b"}"


def _tensor(shape: list[int], data: list[object]) -> bytes:
    tensor = {"name": "tokens", "datatype": "INT64", "shape": shape, "data": data}
    return json.dumps({"inputs": [tensor]}).encode()


VALUES = b'{"inputs": [{"name": "values", "datatype": "FP32", "shape": [2], "data": [1, 2]}]}'


@pytest.mark.parametrize(
    ("method", "path", "body", "detail"),
    [
        ("POST", FEED, b'{"text": "a", "dt": 1' + b"0" * 400 + b"}", "dt = 1000"),
        ("PUT", "/v1/sessions/a/state?" + "&".join(["a=1"] * 30), b"x", "over 20 fields"),
        ("POST", "/v2/models/ids/infer", _tensor([9] * 5000, [1]), "at most 3 dimensions"),
        ("POST", "/v2/models/ids/infer", _tensor([1, 2], [[1, 2], 3]), "list of integers"),
        ("POST", "/v2/models/ids/infer", VALUES, "tokens or text, which the model takes"),
        ("POST", COMPLETIONS, b'{"prompt": "\\ud800"}', "half of a surrogate pair"),
        ("POST", COMPLETIONS, b'{"prompt": [27], "echo": true, "max_tokens": 0}', "tokens 0 to 26"),
        ("POST", COMPLETIONS, b'{"prompt": [27], "echo": true, "stream": true}', "tokens 0 to 26"),
        ("POST", "/v1/sessions/a/generate", b'{"n": 1, "stop": [1' + b"0" * 23 + b"]}", "64 bits"),
        ("GET", "/v1/sessions?limit=000000001" + "9" * 5000, None, "1 to 1000"),
        ("GET", "/v1/sessions?limit=000000001999999", None, "1 to 1000"),
    ],
    ids=[
        "dt",
        "query",
        "dimensions",
        "ragged",
        "values of a model of tokens",
        "half",
        "echo",
        "echo, streamed",
        "stop",
        "many digits",
        "hidden digits",
    ],
)
def test_refused(server, method, path, body, detail):
    answer = server.ask(method, path, body)
    assert answer.status == 400 and detail in answer.json["detail"], answer.body


def test_nested_bodies(server):
    """Nested bodies are refused at every depth, even if they can be parsed but not shown in an error."""
    assert {server.ask("POST", FEED, _nested(depth)).status for depth in range(965, 1000)} == {400}


def _two_servers(files, tmp_path, check):
    """Runs check(first, second), where the arguments are the `Sessions` of two servers with the same store."""

    async def run() -> None:
        limits, sources = Limits(), [Source("lm", str(files["lm"]))]
        both = [
            Sessions(
                Models(sources, limits, "float32", 1),
                Commits(open_store(f"sqlite:{tmp_path}/states.db")),
                limits,
                Keeping(),
            )
            for _ in range(2)
        ]
        await check(*both)
        for one in both:
            await one.models.close()
            await one.commits.close()

    asyncio.run(run())


def _step(action: str, **values: object) -> tuple[str, str, Step]:
    return "user", "s", parse(action, values, Limits())


@pytest.mark.parametrize("removed", [False, True], ids=["went on", "removed"])
def test_tokens_of_a_stream_come_once(files, tmp_path, removed):
    """The first server's stream is stale: the second server has continued or removed the session."""

    async def check(first: Sessions, second: Sessions) -> None:
        await first.step(*_step("feed", text="abc"))
        if removed:
            first.hot.clear()  # as if other streams needed the memory
            await second.remove("user", "s")
        else:
            await second.step(*_step("feed", text="xyz"))
        sent: list[int] = []

        async def send(part: dict[str, object]) -> None:
            sent.extend(part["tokens"])

        answer = json.loads(await first.step(*_step("generate", n=4), Telling(send)))
        assert answer["position"] == (4 if removed else 10)
        assert sent == answer["tokens"]

    _two_servers(files, tmp_path, check)


def test_another_server_writes_while_tokens_are_sent(files, tmp_path):
    """Sent tokens cannot be taken back: the request is refused, and its result is not kept."""

    async def check(first: Sessions, second: Sessions) -> None:
        sent: list[int] = []

        async def send(part: dict[str, object]) -> None:
            if not sent:
                await second.step(*_step("feed", text="xyz"))
            sent.extend(part["tokens"])

        with pytest.raises(Problem, match="another server wrote") as refused:
            await first.step(*_step("generate", n=4), Telling(send))
        assert refused.value.status == 409 and len(sent) == 4
        assert (await first.look("user", "s")).position == 3

    _two_servers(files, tmp_path, check)


def test_a_stream_makes_room_while_tokens_are_sent(files, tmp_path):
    """The stream is dropped between its input and its generation: the error does not accuse another server."""

    async def check(only: Sessions, _: Sessions) -> None:
        await only.step(*_step("feed", text="abc"))
        engine = only.models.newest(None)
        pool, feed = engine.pool, engine.pool.feed

        async def fed(key: bytes, *arguments: Any, **options: Any) -> Any:
            event = await feed(key, *arguments, **options)
            engine.streams.drop(key)
            return event

        pool.feed = fed  # type: ignore[method-assign]

        async def send(part: dict[str, object]) -> None: ...

        with pytest.raises(Problem, match=r"made room for others \(--max-hot\)") as refused:
            await only.step(*_step("generate", text="d", n=4), Telling(send))
        assert refused.value.status == 503
        assert (await only.look("user", "s")).position == 3

    _two_servers(files, tmp_path, check)


def test_streams_with_little_room(files):
    """The streams evict each other from memory while their tokens are sent."""
    with serving(files["lm"], "--max-hot", 1) as server:
        found = {}

        def stream(name: str) -> None:
            path = f"/v1/sessions/{name}/generate"
            found[name] = server.ask("POST", path, {"n": 1000, "stream": True}).status

        threads = [threading.Thread(target=stream, args=(name,)) for name in "abcd"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert {*found.values()} <= {200, 429} and 200 in found.values(), found


def test_a_scored_text_whose_stream_was_dropped(files):
    """The stream is evicted between two chunks, because other streams need its memory."""
    limits = Limits(hot=1, numbers=27)  # a chunk is one token

    async def check() -> None:
        engine = Engine("lm", Model.load(files["lm"]), limits)
        run = engine.run

        async def run_and_lose(*arguments):
            done = await run(*arguments)
            engine.put("another", engine.fresh())
            return done

        engine.run = run_and_lose
        with pytest.raises(Problem, match="--max-hot") as refused:
            await score(engine, [1, 2, 3], 0, 0, "user", limits)
        assert refused.value.status == 503
        await engine.close(drain=False)

    asyncio.run(check())


def test_a_damaged_state_is_refused(model):
    engine = Engine("lm", model, Limits())
    with pytest.raises(Problem, match="checksum") as refused:
        engine.memory(engine.fresh()[:-1] + b"?")
    assert refused.value.status == 409


def test_choices_end_together():
    """If one choice fails, the others are cancelled first: no part of the request keeps running."""
    ended = []

    async def choice(fails: bool) -> None:
        try:
            await asyncio.sleep(0 if fails else 60)
            raise Problem(503, "no room")
        finally:
            ended.append(fails)

    async def check() -> None:
        with pytest.raises(Problem, match="no room"):
            await together([choice(False), choice(True), choice(False)])
        assert ended == [True, False, False]

    asyncio.run(check())


@pytest.mark.parametrize("connection", ["keep-alive", "close"])
def test_an_answer_that_is_not_read(files, connection):
    """The client's connection is dropped; until then it blocks others, since the server accepts only one."""
    options = ("--max-seconds", 2, "--max-connections", 1, "--max-numbers", 10**7)
    body = json.dumps({"tokens": [1] * 9_000, "logits": "each"}).encode()  # 5 MB of answer
    with serving(files["lm"], "--store", "memory", *options) as server, socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        host, port = server.netloc.split(":")
        client.connect((host, int(port)))
        head = f"POST {FEED} HTTP/1.1\r\nHost: localhost\r\nConnection: {connection}\r\n"
        client.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        assert select.select([client], [], [], 60)[0]  # the answer has begun
        refused = server.ask("GET", "/v1/models")
        assert (refused.status, refused.headers["connection"]) == (503, "close")
        assert refused.headers["content-type"] == "application/problem+json"
        assert "--max-connections" in refused.json["detail"]
        assert (
            server.ask("GET", "/healthz").status == 200
        )  # the server still reports that it is alive
        end = time.monotonic() + 60
        while server.ask("GET", "/v1/models").status == 503:
            assert time.monotonic() < end


def test_a_body_that_comes_after_its_answer(server):
    """The rest of the body is not mistaken for the next request, and the answer is not lost."""
    host, port = server.netloc.split(":")
    with socket.create_connection((host, int(port)), timeout=60) as client:
        client.sendall(
            b"POST /nothing HTTP/1.1\r\nHost: localhost\r\nContent-Length: 200000\r\n\r\n{"
        )
        answer = client.recv(1 << 16)
        assert answer.startswith(b"HTTP/1.1 404 ") and b"connection: close" in answer
        client.sendall(b"x" * 199_999)
        client.shutdown(socket.SHUT_WR)
        answer += b"".join(iter(lambda: client.recv(1 << 16), b""))
        assert answer.count(b"HTTP/1.1 ") == 1


def test_a_file_that_others_may_read(files, tmp_path):
    store = f"sqlite:{tmp_path}/states.db"
    open_store(store).close()
    (tmp_path / "states.db").chmod(0o644)
    with serving(files["lm"], "--store", store) as server:
        assert server.stop() == 0
        lines = [json.loads(line) for line in server.process.stderr]
    assert [line["event"] for line in lines] == ["store", "start", "drain", "end"]
    assert "has mode 644: others may read states; chmod 600 it" in lines[0]["warning"]


def test_the_file_is_for_its_owner(tmp_path):
    before = os.umask(0o022)
    try:
        store = open_store(f"sqlite:{tmp_path}/states.db")
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    store.close()
    assert {*modes.values()} == {0o600} and "states.db" in modes, modes


def test_a_link_to_a_file_that_does_not_exist_yet(tmp_path):
    (tmp_path / "link.db").symlink_to(tmp_path / "states.db")
    open_store(f"sqlite:{tmp_path}/link.db").close()
    assert stat.S_IMODE((tmp_path / "states.db").stat().st_mode) == 0o600


def test_a_token_that_was_taken_back(files, tmp_path):
    """A removed token is refused even on WebSockets that are already open."""
    connect = pytest.importorskip("websockets.sync.client").connect
    (token, line), (_, other) = new_token("anna"), new_token("bert")
    tokens = tmp_path / "tokens"
    tokens.write_text(f"{line}\n{other}\n")
    with serving(files["lm"], "--token-file", tokens, token=token) as server:
        address = f"ws://{server.netloc}/v1/sessions/s/stream"
        with connect(address, additional_headers={"Authorization": f"Bearer {token}"}) as socket:
            socket.send('{"text": "a"}')
            first = json.loads(socket.recv())
            assert first["position"] == 1, first
            tokens.write_text(f"{other}\n")
            server.process.send_signal(signal.SIGHUP)
            assert any('"event": "reload"' in line for line in server.process.stderr)
            socket.send('{"text": "b"}')
            assert json.loads(socket.recv())["error"]["status"] == 401
