"""tsm.runtime.serving.ray: which replica gets a session, and the application's arguments.

With Ray itself, marked `nightly`: replicas are killed, added, removed and replaced under load.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib.util
import itertools
import json
import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from documented import ROOT
from tsm.runtime.serving.ray import application, build
from tsm.runtime.serving.ray.application import Local
from tsm.runtime.serving.ray.router import session_of
from tsm.runtime.serving.transport.limits import Limits

from . import stores
from .documented_clients import clients
from .server_process import free_port
from .test_faults import MESSAGES, plan, talk_over_sockets, undisturbed

STREAMS, AT_ONCE, KILLS = 500, 50, 10
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Ray's own, of pydantic


def no_ray() -> str:
    """Why a test cannot run; "" if it can."""
    if importlib.util.find_spec("ray") is None:
        return "no ray: `make cluster-env` installs it"
    return stores.no_redis() or ""


with_ray = pytest.mark.skipif(bool(no_ray()), reason=no_ray())


def packed(path: str, **more: object) -> bytes:
    """A request as Ray's proxy passes it on."""
    return pickle.dumps({"type": "http", "path": path, "raw_path": path.encode(), **more})


def test_the_session_of_a_request():
    elsewhere = [(b"referer", b"http://h/v1/sessions/other/x")]
    assert session_of(packed("/v1/sessions/ann/score", headers=elsewhere)) == "ann"
    assert session_of(packed("/v1/sessions/a.b~c-d_E9")) == "a.b~c-d_E9"
    assert session_of(packed("/v1/completions")) is None
    assert session_of(packed("/v1/sessions/")) is None
    assert session_of("/v1/sessions/ann") is None  # an argument of another type


def test_without_ray(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'timescale-models\[ray\]'"):
        application("a.tsm", store="redis://127.0.0.1:1/0")


@pytest.mark.parametrize(
    "client, admitted", [("127.0.0.1", True), ("::1", True), ("10.0.0.7", False)]
)
@pytest.mark.parametrize("kind", ["http", "websocket"])
def test_without_tokens_it_is_for_this_machine(kind, client, admitted):
    """Clients on other machines are refused, since Ray's proxy may listen on all addresses."""
    reached, sent = [], []

    async def app(scope, receive, send):
        reached.append(scope)

    async def receive():
        return {"type": f"{kind}.connect"}

    async def send(message):
        sent.append(message)

    scope = {"type": kind, "client": (client, 9), "method": "GET", "path": "/", "headers": []}
    asyncio.run(Local(app, Limits())(scope, receive, send))
    assert bool(reached) == admitted
    if not admitted and kind == "http":
        assert sent[0]["status"] == 403 and b"token_file" in sent[1]["body"]
    if not admitted and kind == "websocket":
        assert [one["type"] for one in sent] == ["websocket.close"]  # before it was accepted


@with_ray
def test_an_application(files, tmp_path):
    """An application is created by one call or from the YAML file; errors are reported before anything runs."""
    import yaml
    from ray.serve.deployment import Application

    store = "redis://127.0.0.1:1/0"
    scaled = {"autoscaling_config": {"min_replicas": 1, "max_replicas": 3}}
    assert isinstance(application(str(files["lm"]), store, deployment=scaled), Application)
    config = yaml.safe_load((ROOT / "deploy" / "ray.yaml").read_text())
    (one,) = config["applications"]
    assert one["import_path"] == f"{build.__module__.rpartition('.')[0]}:build"
    assert isinstance(build(one["args"]), Application)
    good = {"models": "a.tsm", "store": store}
    (tmp_path / "bad").write_text("ann secret\n")
    for arguments, sentence in (
        ({"models": "a.tsm", "store": "memory"}, "store 'memory' is not shared by machines"),
        ({"models": "a.tsm", "store": "sqlite:/s.db"}, "store 'sqlite' is not shared by machines"),
        ({"models": "a.tsm", "store": "mysql://u:secret@h"}, "store 'mysql' .*: redis://HOST"),
        ({"models": "a.tsm", "store": None}, "store 'None' is not shared"),
        ({**good, "limits": {"tokens": "7"}}, "tokens = '7'; accepted: an integer from 1 to"),
        ({**good, "limits": {"rate": -1}}, "rate = -1; accepted: a number from 0 to"),
        ({**good, "keeping": {"history": 1e9}}, "history = .*; accepted: an integer from 0 to"),
        ({**good, "keeping": {"behind": "no"}}, "behind = 'no'; accepted: true or false"),
        ({**good, "dtype": "float64"}, "dtype = 'float64'; accepted: float32, bfloat16, int8"),
        ({**good, "threads": -1}, "threads = -1; accepted: an integer from 0 to 1024"),
        ({**good, "grace": "10"}, "grace = '10'; accepted: a number"),
        ({**good, "hosts": "a.example"}, "hosts = 'a.example'; accepted: a list of texts"),
        ({**good, "token_file": ""}, "token_file = ''; accepted: the path of a file"),
        ({**good, "token_file": str(tmp_path / "bad")}, "bad:1: accepted: NAME SHA256"),
        ({"models": [], "store": store}, "models is empty"),
        ({"store": store}, "args has no models"),
        ({"models": "a.tsm", "store": store, "limits": {"toknes": 1}}, "toknes is not a setting"),
        (
            {"models": "a.tsm", "store": store, "prot": 1},
            "prot is not a setting; accepted: .*threads",
        ),
    ):
        with pytest.raises(ValueError, match=sentence) as caught:
            build(arguments)
        assert "secret@" not in str(caught.value)


@with_ray
def test_a_replica_that_joins_takes_its_share_of_the_sessions():
    """Other sessions stay where they are, and every process agrees on the assignment."""
    from ray.serve._private.common import DeploymentID, ReplicaID

    from tsm.runtime.serving.ray.router import SessionRouter

    def owners(count: int) -> list[str]:
        router = SessionRouter.__new__(SessionRouter)
        router._deployment_id = DeploymentID("Streams")
        router._num_virtual_nodes, router._num_fallback_replicas = 100, 2
        router._rebuild_ring(
            frozenset(ReplicaID(f"r{i}", router._deployment_id) for i in range(count))
        )
        return [router._lookup_ranked_replicas(f"user-{i}")[0].unique_id for i in range(10_000)]

    four, five = owners(4), owners(5)
    assert four == owners(4)
    moved = [after for before, after in zip(four, five, strict=True) if before != after]
    assert set(moved) == {"r4"} and 0.1 < len(moved) / 10_000 < 0.3
    assert min(map(four.count, set(four))) > 1_000


# ---- with replicas


class Cluster:
    """Ray Serve with the application, on free ports of 127.0.0.1."""

    def __init__(self, model: Path, store: str) -> None:
        self.model, self.store, self.port = str(model), store, free_port()
        self.netloc = f"127.0.0.1:{self.port}"

    def deploy(self, replicas: int, **arguments: object) -> None:
        """Deploys as `serve deploy` does with a YAML file; returns once the application is running."""
        from ray.serve.context import _get_global_client
        from ray.serve.schema import ServeDeploySchema

        arguments = {
            "models": [self.model],
            "store": self.store,
            "cpus": 0.1,
            "grace": 3,
            **arguments,
        }
        one = {"name": "tsm", "route_prefix": "/", "args": arguments}
        one["import_path"] = "tsm.runtime.serving.ray:build"
        one["deployments"] = [{"name": "Streams", "num_replicas": replicas}]
        client = _get_global_client()
        client.deploy_apps(ServeDeploySchema(applications=[one]), _blocking=True)
        waited(lambda: len(replica_pids()) == replicas)


def waited(condition: Callable[[], bool], seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.05)


def descendants(pid: int) -> Iterator[int]:
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, read(path).split()):
            yield child
            yield from descendants(child)


def read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except (FileNotFoundError, ProcessLookupError):  # it has ended
        return b""


def replica_pids() -> list[int]:
    """The process ids of this cluster's replicas: Ray's processes are descendants of this one."""
    return [
        pid
        for pid in descendants(os.getpid())
        if read(Path(f"/proc/{pid}/cmdline")).startswith(b"ray::ServeReplica")
    ]


@pytest.fixture(scope="module")
def cluster(files, tmp_path_factory):
    # Send no usage statistics, write no token to the home folder, and let the proxy answer health checks
    # slowly, since the machine may be shared.
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ["RAY_AUTH_MODE"] = "disabled"
    for check in ("READY", "HEALTH"):
        os.environ[f"RAY_SERVE_PROXY_{check}_CHECK_TIMEOUT_S"] = "60"
    import ray
    from ray import serve

    with stores.RedisProcess(tmp_path_factory.mktemp("redis"), free_port()) as redis:
        found = Cluster(files["lm"], redis.url)
        ray.init(
            num_cpus=2,
            include_dashboard=False,
            object_store_memory=100 << 20,
            log_to_driver=False,
            _node_ip_address="127.0.0.1",
        )
        try:
            serve.start(http_options={"host": "127.0.0.1", "port": found.port})
            yield found
            serve.shutdown()
        finally:
            ray.shutdown()


class Users:
    """Users with the client of docs/serving.md; counts the answers and the messages sent."""

    def __init__(self, netloc: str) -> None:
        self.space, self.lock = clients(netloc), threading.Condition()
        self.answers = self.sent = 0
        self.ended = False
        self.ask = self.space["ask"]
        self.space["ask"] = self.counted

    def counted(self, path: str, **body: object) -> dict:
        with self.lock:
            assert not self.ended, "the test has ended"
            self.sent += 1
        answer = self.ask(path, **body)
        with self.lock:
            self.answers += 1
            self.lock.notify_all()
        return answer

    def say(self, user: int, name: str, i: int) -> list:
        """Message i of a user."""
        action, body = plan(user)[i]
        answer = self.space["send"](f"/v1/sessions/{name}{user}/{action}", **body)
        fed = body.get("tokens", answer.get("tokens"))
        assert answer["position"] == body["expected_position"] + len(fed)
        scored = action == "score"
        return np.float32(answer["log_probs"]).tolist() if scored else answer["tokens"]

    def talk(self, users: Iterable[int], name: str) -> list[list]:
        """Sends the messages of several users in turn; returns their answers."""
        said = [[self.say(user, name, i) for user in users] for i in range(MESSAGES)]
        return [list(one) for one in zip(*said, strict=True)]

    def wait(self, answers: int) -> None:
        with self.lock:
            assert self.lock.wait_for(lambda: self.answers >= answers, 600)


def digest(said: list) -> str:
    return hashlib.sha256(json.dumps(said).encode()).hexdigest()


@with_ray
@pytest.mark.nightly
def test_a_session_stays_with_its_replica(cluster, model):
    """If another replica took a session over, the session's epoch in the store would grow."""
    from tsm.runtime.serving.store.redis_lua import RedisStore

    cluster.deploy(2)
    with ThreadPoolExecutor(8) as pool:
        users = Users(cluster.netloc)
        said = [users.talk([user], "w")[0] for user in range(16)]
        over_sockets = [*pool.map(lambda u: talk_over_sockets([cluster.netloc], u), range(16, 32))]
    assert said + over_sockets == [undisturbed(model, user) for user in range(32)]
    store = RedisStore(cluster.store)
    names = [f"w{user}" for user in range(16)] + [f"u{user}" for user in range(16, 32)]
    rows = [store.read(f"local/{name}") for name in names]
    store.close()
    assert [row.epoch for row in rows] == [0] * 32


@with_ray
@pytest.mark.nightly
def test_replicas_killed_ten_times_under_500_streams(cluster, model):
    """One of two replicas, and then its successors, are killed with kill -9; no answered request is lost or
    executed twice."""
    cluster.deploy(2)
    users, begin, killed = Users(cluster.netloc), time.monotonic(), []
    with ThreadPoolExecutor(AT_ONCE) as pool:
        try:
            shares = [range(first, STREAMS, AT_ONCE) for first in range(AT_ONCE)]
            talks = [pool.submit(users.talk, share, "k") for share in shares]
            for kill in range(KILLS):
                users.wait(STREAMS * MESSAGES * (kill + 1) // (KILLS + 1))
                waited(lambda: {*replica_pids()} - {*killed} != set())
                killed.append(min({*replica_pids()} - {*killed}))
                os.kill(killed[-1], signal.SIGKILL)
            shared = [talk.result(600) for talk in talks]
        finally:
            users.ended = True
    said = [shared[user % AT_ONCE][user // AT_ONCE] for user in range(STREAMS)]
    seconds = time.monotonic() - begin
    again = users.sent - users.answers
    expected = [undisturbed(model, user) for user in range(STREAMS)]
    print(
        f"{STREAMS} streams, {AT_ONCE} at once, {len(set(killed))} kills: {users.answers} answers,"
        f" {again} sent again, {seconds:.0f} s; {digest(said)[:16]}, undisturbed {digest(expected)[:16]}"
    )
    assert users.answers == STREAMS * MESSAGES and len(set(killed)) == KILLS and again > 0
    assert digest(said) == digest(expected)


@with_ray
@pytest.mark.nightly
def test_replicas_come_and_go_with_open_sockets(cluster, model):
    """Two replicas are added, then only one is left, then a new version is deployed: idle sockets survive, and
    busy users see no error."""
    cluster.deploy(1)
    users, numbers = Users(cluster.netloc), itertools.count()
    changes = [
        lambda: cluster.deploy(3),
        lambda: cluster.deploy(1),
        lambda: cluster.deploy(2, limits={"tokens": 5_000}),
    ]
    changed = [threading.Event() for _ in changes]
    stages = MESSAGES // (len(changes) + 1)
    idle, busy = range(12), range(12, 16)
    reached = threading.Barrier(len(idle) + 1)

    def wait(i: int) -> None:
        """Waits between two stages until a change has been made; the socket stays open."""
        if i and i % stages == 0:
            reached.wait(300)
            assert changed[i // stages - 1].wait(300)

    def again_and_again(user: int, socket: bool) -> list:
        found = []
        while not changed[-1].is_set():
            name = f"b{next(numbers)}-"
            found.append(
                talk_over_sockets([cluster.netloc], user, name)
                if socket
                else users.talk([user], name)[0]
            )
        return found

    with ThreadPoolExecutor(32) as pool:
        waiting = [
            pool.submit(talk_over_sockets, [cluster.netloc], user, "i", wait) for user in idle
        ]
        talking = [
            (user, pool.submit(again_and_again, user, socket))
            for user in busy
            for socket in (True, False)
        ]
        try:
            for change, event in zip(changes, changed, strict=True):
                reached.wait(300)
                change()
                event.set()
        finally:  # if a change fails, no thread keeps waiting
            reached.abort()
            for event in changed:
                event.set()
        assert [one.result(300) for one in waiting] == [undisturbed(model, user) for user in idle]
        talks = 0
        for user, one in talking:
            talks += len(found := one.result(300))
            assert all(said == undisturbed(model, user) for said in found) and found
    print(
        f"{len(idle)} idle sockets, {talks} talks meanwhile, {users.sent - users.answers} sent again"
    )
