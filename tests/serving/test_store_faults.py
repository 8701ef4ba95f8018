"""Stores under kill -9, with full disks and with files of other programs; and the grouping of operations into
transactions."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
import threading
from itertools import groupby
from pathlib import Path

import pytest

from tsm.runtime.serving.store import commits
from tsm.runtime.serving.store.base import (
    Conflict,
    Put,
    Remove,
    Row,
    StoreError,
    StoreFull,
    StoreOfOther,
)
from tsm.runtime.serving.store.commits import Commits, ConflictError
from tsm.runtime.serving.store.memory import MemoryStore
from tsm.runtime.serving.store.sqlite import SqliteStore

from . import stores
from .server_process import serving
from .store_writer import state

ENV = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


def writer(address, last=0):
    program = Path(__file__).with_name("store_writer.py")
    command = [sys.executable, program, address, str(last)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=ENV)


def test_a_killed_writer_loses_nothing_that_was_answered(durable):
    assert durable.open().durable
    with writer(durable.address) as process:
        for _ in range(30):
            answered = int(process.stdout.readline())
        process.kill()
    row = durable.open().read("a")
    assert row.position >= answered == 30
    assert row.blob == state(row.position)
    assert [past.position for past in durable.open().history("a")][-1] == row.position


def test_two_stores_in_one_process(tmp_path):
    """Opening the second one must not release the locks of the first: another process that closes the file
    would delete the log into which the first one writes."""
    path = tmp_path / "states.db"
    first = SqliteStore(path)
    first.apply([Put("a", Row(1, b"x"))])
    second = SqliteStore(path)
    program = "import sys; from tsm.runtime.serving.store.sqlite import SqliteStore\n"
    program += "store = SqliteStore(sys.argv[1]); print(store.count()); store.close()"

    def rows_elsewhere():
        command = [sys.executable, "-c", program, str(path)]
        return int(subprocess.run(command, stdout=subprocess.PIPE, check=True, env=ENV).stdout)

    assert rows_elsewhere() == second.count() == 1
    first.apply([Put("b", Row(1, b"x"))])
    assert rows_elsewhere() == second.count() == 2


def test_a_kill_between_write_and_commit(tmp_path):
    with writer(f"sqlite:{tmp_path}/states.db", last=8) as process:
        said = process.stdout.read().split()
    assert process.returncode == -9 and said[-1] == "7"
    store = SqliteStore(tmp_path / "states.db")
    assert (store.read("a").position, store.read("a").blob) == (7, state(7))
    assert [past.position for past in store.history("a")] == [4, 5, 6, 7]


@pytest.mark.skipif(bool(stores.no_redis()), reason=str(stores.no_redis()))
def test_a_killed_redis(tmp_path):
    """Redis syncs every write here: acknowledged writes survive a restart; in between, writes are refused."""
    with stores.RedisProcess(tmp_path) as first, writer(first.url) as process:
        for _ in range(30):
            answered = int(process.stdout.readline())
        handle = stores.RedisStore(first.url)
        first.kill()
        process.kill()
        with pytest.raises(StoreError):
            handle.read("a")
    with stores.RedisProcess(tmp_path):
        row = handle.read("a")  # the same handle goes on
        assert row.position >= answered and row.blob == state(row.position)


def test_a_full_disk(tmp_path):
    store = SqliteStore(tmp_path / "states.db")
    (version,) = store.apply([Put("a", Row(1, b"kept"))])
    (pages,) = store.db.execute("PRAGMA page_count").fetchone()
    store.db.execute(f"PRAGMA max_page_count = {pages + 2}")
    large = [Put("a", Row(2, b"new", version=version)), Put("b", Row(1, bytes(100_000)))]
    with pytest.raises(StoreFull, match=r"states\.db: database or disk is full"):
        store.apply(large)
    assert (store.read("a").blob, store.read("b")) == (b"kept", None)
    store.db.execute("PRAGMA max_page_count = 100000")
    assert len(store.apply(large)) == 2 and store.read("a").blob == b"new"


def test_one_stale_row_of_many_costs_few_statements(tmp_path):
    store = SqliteStore(tmp_path / "states.db")
    keys = [f"k{i}" for i in range(512)]
    versions = store.apply([Put(key, Row(0, b"", "m")) for key in keys])
    versions[300] += 1000
    statements: list[str] = []
    store.db.set_trace_callback(statements.append)
    rows = [Put(key, Row(1, b"", "m", version=at)) for key, at in zip(keys, versions, strict=True)]
    results = store.apply(rows)
    assert [i for i, one in enumerate(results) if isinstance(one, Conflict)] == [300]
    own = [*groupby(statements)]  # a trigger shows its statement again
    assert len(own) < 50, len(own)
    assert [store.read(key).position for key in keys] == [int(i != 300) for i in range(512)]
    store.close()


def test_files_of_others(tmp_path):
    (tmp_path / "text").write_text("not a database, but long enough to be looked at" * 30)
    with sqlite3.connect(tmp_path / "other.db") as db:
        db.execute("CREATE TABLE mine (x)")
    for name in ("text", "other.db"):
        before = (tmp_path / name).read_bytes()
        with pytest.raises(StoreOfOther, match="accepted: a store of tsm-serve"):
            SqliteStore(tmp_path / name)
        assert (tmp_path / name).read_bytes() == before
    with pytest.raises(StoreError, match="No such file"):
        SqliteStore(tmp_path / "no" / "folder.db")


def test_a_file_that_becomes_something_else(files, tmp_path):
    """The store has failed, not the server: no answer is a 500."""
    with serving(files["lm"], "--store", f"sqlite:{tmp_path}/states.db") as server:
        server.post("/v1/sessions/a/feed", text="abc")
        for file in tmp_path.glob("states.db*"):
            with file.open("r+b") as overwritten:
                overwritten.write(b"\xff" * file.stat().st_size)
        for name in "ab":
            answer = server.ask("POST", f"/v1/sessions/{name}/feed", {"text": "abc"})
            assert answer.status == 503 and "file is not a database" in answer.json["detail"]
        assert server.stop() == 0


class Slow(MemoryStore):
    """Records the sizes of its batches; can fail."""

    def __init__(self):
        super().__init__()
        self.sizes, self.failure = [], None

    def apply(self, operations):
        self.sizes.append(len(operations))
        if self.failure:
            raise self.failure
        return super().apply(operations)


def test_operations_that_wait_make_one_transaction():
    async def main():
        store = Slow()
        commits = Commits(store)
        versions = await asyncio.gather(*(commits.put(Put(f"{i}", Row(i, b""))) for i in range(50)))
        assert store.sizes == [50] and len(set(versions)) == 50
        assert (commits.batches, commits.operations) == (1, 50)
        with pytest.raises(ConflictError, match="another writer stored version"):
            await commits.put(Put("7", Row(8, b"")))
        assert (await commits.claim("7")).position == 7
        assert await commits.call(lambda s: s.count()) == 50
        with pytest.raises(ConflictError):
            await commits.remove(Remove("7", versions[7]))  # claimed since
        assert [await commits.remove(Remove("7")) for _ in range(2)] == [True, False]
        store.failure = StoreFull("no space")
        failed = await asyncio.gather(
            *(commits.put(Put(f"x{i}", Row(1, b""))) for i in range(3)), return_exceptions=True
        )
        assert failed == [store.failure] * 3
        store.failure = None
        last = asyncio.ensure_future(commits.put(Put("last", Row(1, b""))))
        await asyncio.sleep(0)
        await commits.close()  # waits for what was submitted
        assert await last
        with pytest.raises(StoreError, match="closed"):
            await commits.put(Put("late", Row(1, b"")))

    asyncio.run(main())


def test_operations_that_arrive_during_a_transaction_make_the_next_one():
    begun, go_on = threading.Event(), threading.Event()

    class Stuck(Slow):
        def apply(self, operations):
            begun.set()
            assert go_on.wait(60)
            return super().apply(operations)

    async def main():
        store = Stuck()
        commits = Commits(store)
        puts = [asyncio.ensure_future(commits.put(Put("first", Row(1, b""))))]
        await asyncio.to_thread(begun.wait, 60)
        for i in range(3):
            puts.append(asyncio.ensure_future(commits.put(Put(f"{i}", Row(i, b"")))))
            for _ in range(3):  # each is handed over in its own iteration of the loop
                await asyncio.sleep(0)
        go_on.set()
        assert len(set(await asyncio.gather(*puts))) == 4
        assert store.sizes == [1, 3]
        await commits.close()

    asyncio.run(main())


@pytest.mark.parametrize("write", [False, True])
def test_a_store_that_hangs_is_waited_for_once(monkeypatch, write):
    """What was asked at the same time fails with the first; later, the store is asked again. A store that is
    full or fails at once answers."""
    now = [0.0]
    monkeypatch.setattr(commits, "monotonic", lambda: now[0])

    class Failing(MemoryStore):
        def __init__(self, error, seconds):
            self.error, self.seconds, self.asked = error, seconds, 0

        def read(self, key):
            self.asked += 1
            now[0] += self.seconds
            raise self.error

        def apply(self, operations):
            return [self.read(one.key) for one in operations]

        def close(self):
            pass

    async def asked(error, seconds):
        store = Failing(error, seconds)
        line = Commits(store)
        for _ in range(2):
            reads = [line.call(lambda store: store.read("a")) for _ in range(8)]
            puts = [line.put(Put("b", Row(1, b"")))] if write else []
            assert {*await asyncio.gather(*reads, *puts, return_exceptions=True)} == {error}
        await line.close()
        return store.asked

    assert asyncio.run(asked(StoreError("no answer"), 10.0)) == 2
    assert asyncio.run(asked(StoreError("refused"), 0.1)) == 2 * (8 + write)
    assert asyncio.run(asked(StoreFull("no space"), 10.0)) == 2 * (8 + write)
