"""Kills, drains, reloads, a full disk, two servers, clients that leave: no answer is lost and no step
repeated."""

from __future__ import annotations

import http.client
import json
import os
import re
import resource
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from tsm.runtime import Model

from . import stores
from .documented_clients import clients
from .server_process import Server, serving

MESSAGES = 12  # of one user
TALK = clients()["talk"]
ENDLESS = 10**9  # tokens; a generation of this length lasts until its client leaves


def plan(user: int) -> list[dict]:
    """The messages of a user, in order; each can be sent again."""
    draw, position, found = np.random.default_rng(user), 0, []
    for i in range(MESSAGES):
        steps = int(draw.integers(1, 9))
        body = {"request_id": f"{user}-{i}", "expected_position": position}
        if draw.random() < 0.7:
            found.append(("score", {**body, "tokens": draw.integers(0, 27, steps).tolist()}))
        else:
            found.append(("generate", {**body, "n": steps, "seed": i}))
        position += steps
    return found


def undisturbed(model, user: int) -> list:
    stream, found = model.create_stream(), []
    for action, body in plan(user):
        if action == "score":
            found.append(stream.score(body["tokens"]).tolist())
        else:
            found.append(stream.generate(body["n"], seed=body["seed"]).tolist())
    return found


class Clients:
    """Users who resend every unanswered message to the server that is running."""

    def __init__(self, servers: list[Server]) -> None:
        self.servers = servers
        self.answers, self.retries, self.lock = 0, 0, threading.Condition()

    def talk(self, user: int) -> list:
        found = []
        for i, (action, body) in enumerate(plan(user)):
            found.append(self.send(user + i, f"/v1/sessions/u{user}/{action}", body))
        return found

    def send(self, turn: int, path: str, body: dict) -> list:
        while True:
            with self.lock:
                server = self.servers[turn % len(self.servers)]
            try:
                answer = server.ask("POST", path, body)
            except (OSError, http.client.HTTPException):  # it was killed
                with self.lock:
                    self.retries += 1
                    self.lock.wait_for(lambda gone=server: gone not in self.servers, 60)
                continue
            assert answer.status == 200, answer.body
            with self.lock:
                self.answers += 1
                self.lock.notify_all()
            found = answer.json
            assert found["position"] == body["expected_position"] + len(
                body.get("tokens", found.get("tokens", ()))
            )
            return np.float32(found["log_probs"]).tolist() if "tokens" in body else found["tokens"]


def killed_under_load(files, model, folder, users: int, kills: int) -> None:
    """The server, with SQLite, is killed after every few answers; the answers are those of an undisturbed
    run."""
    arguments = (files["lm"], "--store", f"sqlite:{folder}/states.db")
    clients, answers = Clients([]), users * MESSAGES
    with ThreadPoolExecutor(users) as pool:
        talks = None
        for kill in range(1, kills + 2):
            with serving(*arguments) as server:
                with clients.lock:
                    clients.servers[:] = [server]
                    clients.lock.notify_all()
                talks = talks or [pool.submit(clients.talk, user) for user in range(users)]
                enough = answers * kill // (kills + 1)
                with clients.lock:
                    assert clients.lock.wait_for(lambda n=enough: clients.answers >= n, 300)
                server.process.kill()
        said = [talk.result(60) for talk in talks]
    assert clients.retries >= kills
    assert said == [undisturbed(model, user) for user in range(users)]


def test_killed_under_load(files, model, tmp_path):
    killed_under_load(files, model, tmp_path, users=12, kills=2)


@pytest.mark.nightly
def test_killed_ten_times_under_500_streams(files, model, tmp_path):
    killed_under_load(files, model, tmp_path, users=500, kills=10)


def test_two_servers_with_one_store(files, model, durable):
    """Messages of a session alternate between two servers; both can answer, because they share the store."""
    arguments = (files["lm"], "--store", durable.address)
    with serving(*arguments) as first, serving(*arguments) as second, ThreadPoolExecutor(6) as pool:
        said = [*pool.map(Clients([first, second]).talk, range(6))]
        assert said == [undisturbed(model, user) for user in range(6)]
        body = {"tokens": [1], "expected_position": 0}
        sent = [
            pool.submit(server.ask, "POST", "/v1/sessions/race/feed", body)
            for server in (first, second) * 3
        ]
        statuses = [one.result().status for one in sent]
        assert statuses.count(200) == 1 and set(statuses) <= {200, 409, 503}
        assert first.get("/v1/sessions/race")["position"] == 1


def talk_over_sockets(
    netlocs: list[str], user: int, name: str = "u", wait: Callable[[int], object] | None = None
) -> list:
    """Sends with the client of docs/serving.md, in the session NAME+USER; `wait(i)` returns when message i is
    due."""

    def messages() -> Iterator[dict]:
        for i, (action, body) in enumerate(plan(user)):
            if wait is not None:
                wait(i)
            yield {"op": action, **body}

    turns = netlocs[user % len(netlocs) :] + netlocs[: user % len(netlocs)]
    addresses = [f"ws://{netloc}/v1/sessions/{name}{user}/stream" for netloc in turns]
    return [
        np.float32(answer["log_probs"]).tolist() if "log_probs" in answer else answer["tokens"]
        for answer in TALK(addresses, messages())
    ]


@pytest.mark.nightly
def test_a_rolling_update_with_open_sockets(files, model, tmp_path):
    """The first server drains while all clients send; the second one continues. Nobody sees an error."""
    arguments = (files["lm"], "--store", f"sqlite:{tmp_path}/states.db")
    with (
        serving(*arguments) as first,
        serving(*arguments) as second,
        ThreadPoolExecutor(48) as pool,
    ):
        netlocs = [first.netloc, second.netloc]
        talks = [pool.submit(talk_over_sockets, netlocs, user) for user in range(48)]
        assert first.stop() == 0
        assert [talk.result(60) for talk in talks] == [
            undisturbed(model, user) for user in range(48)
        ]


@pytest.mark.skipif(bool(stores.no_redis()), reason=str(stores.no_redis()))
def test_a_store_that_goes_and_comes_back(files, model, tmp_path):
    with (
        stores.RedisProcess(tmp_path) as redis,
        serving(files["lm"], "--store", redis.url) as server,
    ):
        first = server.post("/v1/sessions/a/score", text="before", request_id="1")
        redis.kill()
        for text, request_id in (("before", "1"), ("after", "2")):
            answer = server.ask(
                "POST", "/v1/sessions/a/score", {"text": text, "request_id": request_id}
            )
            assert answer.status == (200 if request_id == "1" else 503), answer.body
        assert answer.headers["retry-after"] == "1" and "store" in answer.json["detail"]
        assert server.ask("GET", "/v1/sessions/a").status == 503
        with stores.RedisProcess(tmp_path):
            again = server.post("/v1/sessions/a/score", text="before", request_id="1")
            assert again == first  # already answered, so not executed again
            stream = model.create_stream()
            stream.score(model.encode("before"))
            answer = server.post("/v1/sessions/a/score", text="after", request_id="2")
            scored = stream.score(model.encode("after")).tolist()
            assert np.float32(answer["log_probs"]).tolist() == scored
            assert answer["position"] == stream.position


def long_generation(server, name, n):
    """A connection that streams a generation, and its response after the first event."""
    connection = server.connect()
    body = json.dumps({"n": n, "seed": 1, "stream": True})
    connection.request("POST", f"/v1/sessions/{name}/generate", body)
    response = connection.getresponse()
    assert response.status == 200 and response.readline().startswith(b"data: ")
    return connection, response


def test_drain(files, tmp_path):
    """After SIGTERM new work is refused, idle sockets are closed, and running requests are finished and
    stored."""
    arguments = (files["lm"], "--store", f"sqlite:{tmp_path}/states.db", "--max-tokens", ENDLESS)
    with serving(*arguments, "--grace", 60) as server:
        with connect(f"ws://{server.netloc}/v1/sessions/w/stream") as websocket:
            held, unread = long_generation(
                server, "held", ENDLESS
            )  # as long as this runs, the server stays up
            _, response = long_generation(server, "long", 3_000)
            server.process.send_signal(signal.SIGTERM)
            with pytest.raises(ConnectionClosed) as closed:
                websocket.recv(timeout=60)
        assert closed.value.rcvd.code == 1012
        refused = server.ask("POST", "/v1/sessions/new/feed", {"tokens": [1]})
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        assert server.ask("GET", "/readyz").status == 503
        assert server.ask("GET", "/healthz").status == 200
        last = response.read().decode().rstrip("\n").split("\n\n")[-1]
        assert last.startswith('event: done\ndata: {"position": 3000')
        unread.close()  # this client leaves: the server has nothing to wait for
        held.close()
        assert server.process.wait(60) == 0
    with serving(*arguments, "--grace", "0.1") as server:
        assert server.get("/v1/sessions/long")["position"] == 3_000
        assert server.ask("GET", "/v1/sessions/held").status == 404  # was not answered
        connection, _ = long_generation(server, "long", ENDLESS)
        server.process.send_signal(signal.SIGTERM)  # does not wait for an endless request
        assert server.process.wait(60) == 0
        connection.close()


def test_requests_that_do_not_end_in_time(files):
    """After SIGTERM and --grace seconds their clients are told, and the log counts them."""
    with (
        serving(files["lm"], "--max-tokens", ENDLESS, "--grace", "0.1") as server,
        ThreadPoolExecutor(1) as pool,
    ):
        connection, response = long_generation(server, "streamed", ENDLESS)
        whole = pool.submit(server.ask, "POST", "/v1/sessions/whole/generate", {"n": ENDLESS})
        both = re.compile(rb'tsm_pool{.*name="requests".*} 2.0')
        while not both.search(server.ask("GET", "/metrics").body):
            pass
        server.process.send_signal(signal.SIGTERM)
        assert b'\n\nevent: error\ndata: {"title": "Service Unavailable"' in response.read()
        assert "request_id" in whole.result().json["detail"]
        assert (whole.result().status, whole.result().headers["retry-after"]) == (503, "1")
        assert server.process.wait(60) == 0
        connection.close()
        lines = [json.loads(line) for line in server.process.stderr]
    assert [line["event"] for line in lines] == ["start", "drain", "server", "end"]
    assert lines[-1]["unfinished"] == 2


def test_a_request_that_has_not_arrived_when_the_server_ends(files):
    with serving(files["lm"], "--grace", "0.1") as server:
        connection = server.connect()
        connection.putrequest("POST", "/v1/sessions/a/feed")
        connection.putheader("content-length", "99")
        connection.endheaders(b"{")
        server.get("/healthz")  # the server has read the other request by now
        server.process.send_signal(signal.SIGTERM)
        response = connection.getresponse()
        assert (response.status, response.headers["retry-after"]) == (503, "1")
        assert server.process.wait(60) == 0
        connection.close()


def test_a_client_that_does_not_read_and_then_leaves(server, name):
    """Other clients are served in the meantime, and the session does not change."""
    server.post(f"/v1/sessions/{name}/feed", tokens=[1, 2])
    connection, response = long_generation(server, name, ENDLESS)
    assert server.post(f"/v1/sessions/{name[:50]}-other/feed", tokens=[1])["position"] == 1
    response.close()
    connection.close()
    answer = server.post(f"/v1/sessions/{name}/feed", tokens=[3])
    assert answer["position"] == 3


def reloaded(server, path, files):
    """Replaces the file of a served model with other weights."""
    new = path.with_name("new")
    new.write_bytes(b"no model")
    new.replace(path)
    server.process.send_signal(signal.SIGHUP)  # the bad file is refused, and nothing changes
    os.link(files["other"], new)
    new.replace(path)
    weights = Model.load(path).fingerprint
    while server.get("/v1/models")["data"][0]["weights"] != weights:
        server.process.send_signal(signal.SIGHUP)


def test_reload(files, tmp_path):
    """Open sessions keep the old weights, even after a restart with both files; new sessions get the new
    ones."""
    path, store = tmp_path / "m.tsm", f"sqlite:{tmp_path}/states.db"
    os.link(files["lm"], path)
    old, new = Model.load(files["lm"]).create_stream(), Model.load(files["other"]).create_stream()

    def same(server, name, stream):
        answer = server.post(f"/v1/sessions/{name}/generate", n=5, seed=7)
        return answer["tokens"] == stream.generate(5, seed=7).tolist()

    with serving(path, "--store", store) as server:
        assert same(server, "a", old)
        reloaded(server, path, files)
        assert same(server, "a", old) and same(server, "b", new)
        server.process.kill()
    with serving(path, "--store", store) as server:
        answer = server.ask("POST", "/v1/sessions/a/generate", {"n": 5, "seed": 9})
        assert answer.status == 409 and "--replay" in answer.json["detail"]
        assert answer.json["position"] == 10
    with serving(path, f"m={files['lm']}", "--store", store) as server:
        assert same(server, "a", old) and same(server, "b", new)


def test_replay(files, tmp_path):
    """After a reload, states are rebuilt from the last inputs, including generated tokens."""
    path = tmp_path / "m.tsm"
    os.link(files["lm"], path)
    with serving(path, "--store", "memory", "--replay", "8") as server:
        server.post("/v1/sessions/a/feed", tokens=[*range(20)], dt=0.5)
        drawn = server.post("/v1/sessions/a/generate", n=3, seed=1)["tokens"]
        reloaded(server, path, files)
        stream = Model.load(path).create_stream()
        stream.feed([*range(15, 20), *drawn], [0.5] * 5 + [1] * 3)
        answer = server.post("/v1/sessions/a/generate", n=5, seed=9)
        assert answer["tokens"] == stream.generate(5, seed=9).tolist()
        assert answer["position"] == 8 + 5


def test_a_full_disk(files, tmp_path):
    """Requests whose results cannot be stored are refused and have no effect; the sessions stay as of their
    last answers."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (250_000, before[1]))
    try:
        with serving(files["lm"], "--store", f"sqlite:{tmp_path}/states.db") as server:
            position = 0
            while (
                answer := server.ask("POST", "/v1/sessions/a/feed", {"tokens": [1] * 70})
            ).status == 200:
                position = answer.json["position"]
                assert position < 70_000
            assert answer.status in (503, 507) and "store" in answer.json["detail"]
            assert server.get("/v1/sessions/a")["position"] == position > 0
            retried = server.ask(
                "POST", "/v1/sessions/a/feed", {"tokens": [1], "expected_position": position}
            )
            assert retried.status in (200, 503, 507)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_ended_sequences_leave_room_for_sessions(files):
    """Their last answers are kept for a minute, up to --max-sessions of them beside the sessions."""
    tensor = {"name": "tokens", "datatype": "INT64", "shape": [1], "data": [1]}

    def end(server, name, **more):
        parameters = {"sequence_id": name, "sequence_end": True, **more}
        body = {"inputs": [tensor], "parameters": parameters}
        return server.ask("POST", "/v2/models/lm/infer", body)

    def feed(server, name):
        return server.ask("POST", f"/v1/sessions/{name}/feed", {"tokens": [1]})

    with serving(files["lm"], "--store", "memory", "--max-sessions", 2) as server:
        assert [end(server, name, request_id="x").status for name in "ab"] == [200] * 2
        assert [feed(server, name).status for name in "cd"] == [200] * 2
        assert "tsm_sessions_stored 2.0" in server.ask("GET", "/metrics").body.decode()
        refused = [feed(server, "e"), end(server, "c", request_id="x")]
        assert [one.status for one in refused] == [507, 503]
        forks = [server.ask("POST", "/v1/sessions/c/fork", {"to": to}).status for to in "de"]
        assert forks == [409, 507]  # d exists: a fork whose answer was lost may be asked for again
        assert all("--max-sessions" in one.json["detail"] for one in refused)
        assert end(server, "a", request_id="x").status == 200  # the same request again
        assert end(server, "c").status == 200  # no answer is kept, and there is room for one
        assert feed(server, "a").status == 200  # takes the place of an ended one
        assert end(server, "d", request_id="x").status == 200
        assert "tsm_sessions_stored 1.0" in server.ask("GET", "/metrics").body.decode()


def test_limits(files, tmp_path):
    """An error names the limit that caused it."""
    limits = {"sessions": 2, "tokens": 50, "numbers": 60, "body": 500, "waiting": 1}
    flags = [str(x) for name, value in limits.items() for x in (f"--max-{name}", value)]
    with serving(files["lm"], "--store", "memory", *flags) as server:
        feed = "/v1/sessions/{}/feed"
        for path, body, status, flag in (
            (feed.format("a"), {"tokens": [1]}, 200, ""),
            (feed.format("b"), {"tokens": [1]}, 200, ""),
            (feed.format("c"), {"tokens": [1]}, 507, "--max-sessions"),
            ("/v1/sessions/a/fork", {"to": "c"}, 507, "--max-sessions"),
            (feed.format("a"), {"tokens": [1] * 51}, 413, "--max-tokens"),
            ("/v1/sessions/a/generate", {"n": 51}, 400, "1 to 50 (--max-tokens)"),
            ("/v1/sessions/a/generate", {"m": 1, "n": 1}, 400, "seed, stop, stream, temperature"),
            (feed.format("a"), {"tokens": [1] * 3, "logits": "each"}, 413, "--max-numbers"),
            (feed.format("a"), {"text": "a" * 500}, 413, "--max-body"),
            ("/v1/completions", {"prompt": "a" * 51}, 413, "--max-tokens"),
        ):
            answer = server.ask("POST", path, body)
            assert answer.status == status and flag in answer.body.decode(), answer.body
        with ThreadPoolExecutor(8) as pool:
            sent = [
                pool.submit(server.ask, "POST", feed.format("a"), {"tokens": [1]})
                for _ in range(80)
            ]
            answers = [one.result() for one in sent]
        assert {one.status for one in answers} <= {200, 429}
        refused = [one for one in answers if one.status == 429]
        assert all(
            "--max-waiting" in one.json["detail"] and one.headers["retry-after"] for one in refused
        )
        position = server.get("/v1/sessions/a")["position"]
        assert position == 1 + sum(one.status == 200 for one in answers)


def test_a_port_that_is_taken(files, capfd):
    from tsm.runtime.serving.cli import main

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        assert main([str(files["lm"]), "--store", "memory", "--port", port]) == 2
    told = f"error: cannot listen on 127.0.0.1:{port}: Address already in use; --port 0 takes any"
    assert told in capfd.readouterr().err


def test_more_sessions_than_streams_in_memory(files, model, tmp_path):
    """Streams that are not in memory are restored from the store; if all streams in memory are in use, a
    request has to wait."""
    arguments = (files["lm"], "--store", f"sqlite:{tmp_path}/states.db", "--max-hot", 2)
    with serving(*arguments) as server:
        users, said = range(5), [[] for _ in range(5)]
        for steps in zip(*map(plan, users), strict=True):
            for user, (action, body) in enumerate(steps):
                answer = server.post(f"/v1/sessions/u{user}/{action}", **body)
                kept = answer.get("log_probs", answer.get("tokens"))
                said[user].append(np.float32(kept).tolist() if action == "score" else kept)
        assert said == [undisturbed(model, user) for user in users]
        with ThreadPoolExecutor(8) as pool:
            sent = [
                pool.submit(server.ask, "POST", f"/v1/sessions/c{i % 8}/generate", {"n": 20})
                for i in range(64)
            ]
            answers = [one.result() for one in sent]
        assert {one.status for one in answers} <= {200, 429}, [one.body for one in answers]
        assert all(one.headers.get("retry-after") for one in answers if one.status == 429)
        for user in range(8):
            good = sum(one.status == 200 for one in answers[user::8])
            found = server.ask("GET", f"/v1/sessions/c{user}")
            assert found.status == 404 if not good else found.json["position"] == 20 * good
