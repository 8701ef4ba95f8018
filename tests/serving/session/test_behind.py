"""--store-writes behind: answers are sent before their state is stored; tests the effects of a kill, a stop and
a dead store."""

from __future__ import annotations

import asyncio
import http.client
import json
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import numpy as np
import pytest

from tsm.runtime.serving.session.sessions import Sessions
from tsm.runtime.serving.store.base import Put, StoreError
from tsm.runtime.serving.store.commits import Commits
from tsm.runtime.serving.store.memory import MemoryStore
from tsm.runtime.serving.streams.models import Models, Source
from tsm.runtime.serving.streams.steps import parse
from tsm.runtime.serving.transport.limits import Keeping, Limits
from tsm.runtime.serving.transport.problems import Problem

from .. import stores
from ..server_process import Server, serving

USERS, MESSAGES = 8, 60


def text_of(user: int) -> list[int]:
    return np.random.default_rng(user).integers(0, 27, MESSAGES * 3).tolist()


class Client:
    """A client that feeds its text from the stream's position to the end, or until the server dies."""

    def __init__(self, user: int) -> None:
        self.user, self.tokens = user, text_of(user)
        self.sent = self.durable = 0
        self.log_probs: dict[int, float] = {}

    def talk(self, server: Server, answers: threading.Semaphore) -> None:
        with suppress(OSError, http.client.HTTPException):  # it was killed
            self.feed(server, answers)

    def feed(self, server: Server, answers: threading.Semaphore) -> None:
        at = f"/v1/sessions/u{self.user}"
        found = server.ask("GET", at)
        position = found.json["position"] if found.status == 200 else 0
        assert self.durable <= position <= self.sent
        assert position % 3 == 0 or position == len(self.tokens)  # the end of a message
        while position < len(self.tokens):
            chunk = self.tokens[position : position + 3]
            self.sent = max(self.sent, position + len(chunk))
            body = {"tokens": chunk, "expected_position": position, "request_id": f"{position}"}
            answer = server.ask("POST", f"{at}/score", body)
            assert answer.status == 200, answer.body
            said = answer.json
            self.log_probs |= dict(enumerate(np.float32(said["log_probs"]).tolist(), position))
            position = said["position"]
            assert self.durable <= said["durable_position"] <= position
            self.durable = said["durable_position"]
            answers.release()


def test_killed_under_load(files, model, tmp_path):
    """After a kill, a stream is at the last reported durable position or later, and its client continues from
    there."""
    arguments = (files["lm"], "--store", f"sqlite:{tmp_path}/states.db", "--store-writes", "behind")
    clients = [Client(user) for user in range(USERS)]
    for last in (False, False, True):
        answers = threading.Semaphore(0)
        with serving(*arguments) as server, ThreadPoolExecutor(USERS) as pool:
            talks = [pool.submit(client.talk, server, answers) for client in clients]
            if not last:
                for _ in range(USERS * MESSAGES // 5):
                    assert answers.acquire(timeout=60)
                server.process.kill()
            for talk in talks:
                talk.result(60)
    for client in clients:
        scored = model.create_stream().score(client.tokens).tolist()
        assert [client.log_probs[i] for i in range(len(scored))] == scored


def test_a_stop_loses_nothing(files, tmp_path):
    arguments = (files["lm"], "--store", f"sqlite:{tmp_path}/states.db", "--store-writes", "behind")
    with serving(*arguments) as server:
        for i in range(20):
            answer = server.post("/v1/sessions/a/feed", tokens=[i])
        assert answer["durable_position"] <= answer["position"] == 20
        assert server.get("/v1/sessions/a")["position"] == 20  # a look waits for the store
        server.post("/v1/sessions/a/feed", tokens=[1])
        assert server.stop() == 0
    with serving(*arguments) as server:
        assert server.get("/v1/sessions/a")["position"] == 21


@pytest.mark.skipif(bool(stores.no_redis()), reason=str(stores.no_redis()))
@pytest.mark.parametrize("again", [False, True])
def test_the_exit_code_says_that_answered_steps_are_lost(files, tmp_path, again):
    """again: a second signal ends the server before it has tried to store them."""
    with stores.RedisProcess(tmp_path) as redis:
        arguments = (files["lm"], "--store", redis.url, "--store-writes", "behind")
        with serving(*arguments, "--grace", 30, "--max-tokens", 10**9) as server:
            connection = server.connect()
            if again:  # a request that does not end keeps the server waiting
                body = json.dumps({"n": 10**9, "stream": True})
                connection.request("POST", "/v1/sessions/b/generate", body)
                connection.getresponse()
            server.post("/v1/sessions/a/feed", tokens=[1])
            assert server.get("/v1/sessions/a")["position"] == 1  # it is stored
            redis.process.send_signal(signal.SIGSTOP if again else signal.SIGKILL)
            assert server.post("/v1/sessions/a/feed", tokens=[1])["durable_position"] == 1
            if again:
                server.process.send_signal(signal.SIGTERM)
                end = time.monotonic() + 20
                while server.ask("GET", "/readyz").status == 200:
                    assert time.monotonic() < end
            assert server.stop() == 1
            connection.close()


class Gate(MemoryStore):
    """A store whose writes wait, or fail."""

    def __init__(self) -> None:
        super().__init__()
        self.open, self.fails, self.puts = threading.Event(), False, []
        self.loses_answer = False  # of the next write
        # The next write: it fails, and is done before the one after it.
        self.delays, self.late = False, []

    def apply(self, operations):
        puts = [one for one in operations if isinstance(one, Put)]
        if puts:
            assert self.open.wait(60)
            if self.fails:
                raise StoreError("gone")
            if self.delays:
                self.delays, self.late = False, [operations]
                raise StoreError("timeout")
            while self.late:
                super().apply(self.late.pop())
        self.puts += [one.row.position for one in puts]
        results = super().apply(operations)
        if puts and self.loses_answer:
            self.loses_answer = False
            raise StoreError("timeout")
        return results


def run(files, check):
    async def all() -> None:
        store, limits = Gate(), Limits()
        models = Models([Source("lm", str(files["lm"]))], limits, "float32", 1)
        sessions = Sessions(models, Commits(store), limits, Keeping(behind=True))
        await check(sessions, store)
        store.open.set()
        await models.close()
        await sessions.commits.close()

    asyncio.run(all())


async def feed(sessions: Sessions, **values: object) -> dict[str, int]:
    step = parse("feed", {"tokens": [1], **values}, Limits())
    answer: dict[str, int] = json.loads(await sessions.step("user", "s", step))
    return answer


def test_only_the_newest_state_is_written(files):
    async def check(sessions: Sessions, store: Gate) -> None:
        for position in range(1, 6):  # while the first write is in progress
            assert await feed(sessions) == {"position": position, "durable_position": 0}
        store.open.set()
        await sessions.writes.settle("user/s")
        assert store.puts == [1, 5] and not sessions.writes.unsettled
        assert (await feed(sessions))["durable_position"] == 5
        sessions.hot.clear()  # as if other streams needed the memory
        assert (await feed(sessions))["position"] == 7

    run(files, check)


def test_a_store_that_fails(files):
    """When writes fail, answered steps are kept and written later; until then no more requests are answered."""

    async def check(sessions: Sessions, store: Gate) -> None:
        store.open.set()
        store.fails = True
        assert (await feed(sessions))["position"] == 1
        for _ in range(2):
            with pytest.raises(Problem, match="the store does not answer: gone") as refused:
                await sessions.look("user", "s")
            assert refused.value.status == 503
            with pytest.raises(Problem, match="gone"):
                await feed(sessions)
        store.fails = False
        assert await feed(sessions) == {"position": 2, "durable_position": 1}
        assert (await sessions.look("user", "s")).position == 2

    run(files, check)


@pytest.mark.parametrize("new", [False, True])
@pytest.mark.parametrize("fault", ["loses_answer", "delays"])
def test_a_store_whose_answer_is_lost(files, new, fault):
    """The server recognises its own write, even a late one, and does not take it for that of another server."""

    async def check(sessions: Sessions, store: Gate) -> None:
        store.open.set()
        if not new:
            await feed(sessions)
            await sessions.look("user", "s")
        before = 0 if new else 1
        store.open.clear()
        for position in range(before + 1, before + 4):  # while the first of them is written
            assert (await feed(sessions))["position"] == position
        setattr(store, fault, True)
        store.open.set()
        while not sessions.writes.failed("user/s"):
            await asyncio.sleep(0.001)
        assert (await feed(sessions))["position"] == before + 4
        assert (await sessions.look("user", "s")).position == before + 4
        assert sessions.room.stored == 1 and not sessions.writes.unsettled

    run(files, check)


def test_another_server_writes(files):
    """Steps that the other server did not see are lost, and the next request reports this."""

    async def check(sessions: Sessions, store: Gate) -> None:
        store.open.set()
        await feed(sessions)
        row = await sessions.look("user", "s")
        store.open.clear()
        await feed(sessions)
        store.entries["user/s"].row = row.__class__(
            7, row.blob, row.model, row.fingerprint, version=99, epoch=1
        )
        store.open.set()
        looks = (sessions.look("user", "s") for _ in range(2))
        told = await asyncio.gather(*looks, return_exceptions=True)
        assert [(type(one), one.status, one.more["position"]) for one in told] == [
            (Problem, 409, 7)
        ] * 2
        assert "answered after position 1 is lost" in str(told[0])
        assert (await sessions.look("user", "s")).version == 99

    run(files, check)


def test_a_stream_that_begins_anew(files):
    """The restarted stream is stored before the answer is sent, so that the old session, at a later position,
    is not mistaken for it."""

    async def check(sessions: Sessions, store: Gate) -> None:
        store.open.set()
        assert (await feed(sessions, tokens=[1] * 9))["position"] == 9
        step = parse("feed", {"tokens": [1, 2]}, Limits())._replace(start=True)
        answer = json.loads(await sessions.step("user", "s", step))
        assert answer == {"position": 2, "durable_position": 2}
        assert store.entries["user/s"].row.position == 2

    run(files, check)
