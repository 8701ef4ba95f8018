"""The server says that it is ready only while its store accepts writes, and notices that files are gone."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3

import pytest

from tsm.runtime.serving.store import commits
from tsm.runtime.serving.store.base import Put, Row, StoreError
from tsm.runtime.serving.store.commits import Commits
from tsm.runtime.serving.store.memory import MemoryStore
from tsm.runtime.serving.store.sqlite import SqliteStore

from . import stores
from .server_process import free_port, serving

READY = ("/readyz", "/v2/health/ready", "/v2/models/lm/ready")


def states(server):
    return {server.ask("GET", path).status for path in READY}


def wait_for(server, status):
    while states(server) != {status}:
        pass


@pytest.mark.parametrize("intact", [0, 4096], ids=["all", "all but the first page"])
def test_a_damaged_file(files, tmp_path, intact):
    path = tmp_path / "states.db"
    with serving(files["lm"], "--store", f"sqlite:{path}") as server:
        server.post("/v1/sessions/a/feed", text="abc")
        assert states(server) == {200}
        with contextlib.closing(sqlite3.connect(path)) as other:
            other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        with path.open("r+b") as file:
            file.seek(intact)
            file.write(b"\xff" * (path.stat().st_size - intact))
        for name in "ab":
            assert server.ask("POST", f"/v1/sessions/{name}/feed", {"text": "abc"}).status == 503
        wait_for(server, 503)
        assert server.get("/healthz") == {"status": "ok"}
        assert "states.db: " in server.ask("GET", "/readyz").json["detail"]


@pytest.mark.skipif(bool(stores.no_redis()), reason=str(stores.no_redis()))
def test_redis_that_goes_and_comes_back(files, tmp_path):
    port = free_port()
    with (
        stores.RedisProcess(tmp_path, port) as redis,
        serving(files["lm"], "--store", redis.url) as server,
    ):
        assert states(server) == {200}
        redis.kill()
        wait_for(server, 503)
        with stores.RedisProcess(tmp_path, port):
            wait_for(server, 200)


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm"])
@pytest.mark.parametrize("replaced", [False, True])
def test_a_file_that_is_deleted(files, tmp_path, suffix, replaced):
    """Nothing is answered as done that would be gone after a restart."""
    path = tmp_path / f"states.db{suffix}"
    with serving(files["lm"], "--store", f"sqlite:{tmp_path}/states.db") as server:
        server.post("/v1/sessions/a/feed", text="abc")
        path.rename(tmp_path / "old")
        if replaced:
            path.write_bytes((tmp_path / "old").read_bytes())
        for name in "ab":
            answer = server.ask("POST", f"/v1/sessions/{name}/feed", {"text": "abc"})
            assert answer.status == 503 and "deleted or replaced" in answer.json["detail"]
            assert path.name in answer.json["detail"]
            for read in (f"/v1/sessions/{name}", f"/v1/sessions/{name}/memory", "/v1/sessions"):
                assert server.ask("GET", read).status == 503
        wait_for(server, 503)
        os.replace(tmp_path / "old", path)  # the file that the server has open
        wait_for(server, 200)
        assert server.post("/v1/sessions/a/feed", text="abc")["position"] == 6


def test_a_link_is_followed(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "link.db").symlink_to(tmp_path / "folder" / "states.db")
    store = SqliteStore(tmp_path / "link.db")
    store.apply([Put("a", Row(1, b"x"))])
    os.unlink(tmp_path / "folder" / "states.db-wal")
    for call in (
        lambda: store.apply([Put("b", Row(1, b"x"))]),
        lambda: store.read("a"),
        store.count,
    ):
        with pytest.raises(StoreError, match=r"folder/states\.db-wal was deleted"):
            call()
    store.close()


def test_a_store_is_checked_once_a_second(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(commits, "monotonic", lambda: now[0])

    class Failing(MemoryStore):
        failure = None

        def apply(self, operations):
            if self.failure:
                raise self.failure
            return super().apply(operations)

    async def main():
        store = Failing()
        line = Commits(store)
        await asyncio.gather(*(line.check() for _ in range(50)))
        assert (line.batches, line.operations, store.count()) == (1, 1, 0)
        store.failure = StoreError("gone")
        await line.check()  # of this second
        now[0] = commits.CHECKED
        outcomes = await asyncio.gather(*(line.check() for _ in range(50)), return_exceptions=True)
        assert outcomes == [store.failure] * 50
        store.failure, now[0] = None, 2 * commits.CHECKED
        waits = asyncio.ensure_future(line.check())
        await asyncio.sleep(0)
        waits.cancel()  # a probe that gave up does not stop the others
        await line.check()
        await line.close()

    asyncio.run(main())
