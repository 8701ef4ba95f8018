"""All stores behave alike: compare-and-set, claims, history, time to live."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import pytest

from tsm.runtime.serving.store import redis_lua, sqlite
from tsm.runtime.serving.store.base import (
    Claim,
    Conflict,
    Crowded,
    Past,
    Put,
    Remove,
    Row,
    StoreOfOther,
)
from tsm.runtime.serving.store.memory import MemoryStore
from tsm.runtime.serving.store.registry import STORES, open_store

from . import stores

AWKWARD = Row(
    2**53 + 1,
    b"\0\n\xff" * 700,
    "name",
    "ab:cd",
    "avx2",
    "id\n\u00e9\U0001f600",
    b'{"a": 1}\n',
    b"\0\1",
)


def put(store, key, row, **options):
    (result,) = store.apply([Put(key, row, **options)])
    return result


def claim(store, key):
    (row,) = store.apply([Claim(key)])
    return row


def sweep(store):
    while store.sweep():
        pass


def test_every_store_is_tested():
    assert {STORES[name] for name in STORES} == {STORES[name] for name in stores.KINDS}


def test_what_was_put_is_read(store):
    assert store.read("a") is None and store.count() == 0
    version = put(store, "a", AWKWARD)
    assert store.read("a") == AWKWARD._replace(version=version)
    assert store.read("A") is None and store.count() == 1
    assert store.apply([Remove("a"), Remove("a")]) == [True, False]
    assert store.read("a") is None and store.count() == 0


def test_compare_and_set(store):
    first = put(store, "a", Row(3, b"x"))
    # "a" already exists, and "b" does not
    assert put(store, "a", Row(9, b"y")) == Conflict(first, 0, 3)
    assert put(store, "b", Row(9, b"y", version=first)) == Conflict(0, 0, 0)
    second = put(store, "a", Row(0, b"reset", version=first))  # a position may decrease
    assert second > first
    assert put(store, "a", Row(9, b"y", version=first)) == Conflict(second, 0, 0)
    assert store.read("a").blob == b"reset"


def test_no_version_is_given_twice(store):
    """A writer that saw a stream before it was removed and created again is refused."""
    stale = put(store, "a", Row(1, b"old"))
    store.apply([Remove("a")])
    fresh = put(store, "a", Row(1, b"new"))
    assert fresh > stale
    assert put(store, "a", Row(2, b"late", version=stale)) == Conflict(fresh, 0, 1)


def test_a_claim_takes_over(store):
    assert claim(store, "a") is None
    version = put(store, "a", Row(1, b"x"))
    mine = claim(store, "a")
    assert mine.version == version and mine.epoch > version
    his = claim(store, "a")
    assert his.epoch > mine.epoch
    assert put(store, "a", mine._replace(position=2)) == Conflict(version, his.epoch, 1)
    assert put(store, "a", his._replace(position=2)) > his.epoch
    assert store.read("a").position == 2


def test_a_removal_may_be_conditional(store):
    version = put(store, "a", Row(3, b"x", "m"), history=2)
    mine, his = claim(store, "a"), claim(store, "a")
    stale = [Remove("a", version), Remove("a", version, mine.epoch), Remove("a", his.epoch)]
    conflict = Conflict(version, his.epoch, 3)
    assert store.apply(stale) == [conflict] * 3 and len(store.history("a")) == 1
    again = Remove("a", version, his.epoch)
    assert store.apply([again, again]) == [True, Conflict(0, 0, 0)]
    assert store.read("a") is None and store.history("a") == [] and store.count() == 0


def test_a_refused_put_does_not_undo_the_others(store):
    batch = [Put("a", Row(1, b"")), Put("a", Row(2, b"")), Put("b", Row(3, b"")), Claim("b")]
    first, refused, second, row = store.apply(batch)
    assert refused == Conflict(first, 0, 1)
    assert (row.version, row.position) == (second, 3)


def test_time_to_live(opened, store):
    put(store, "brief", Row(1, b"x"), seconds=100, history=2)
    put(store, "long", Row(1, b"x"), seconds=10_000)
    put(store, "ever", Row(1, b"x"))
    renewed = put(store, "renewed", Row(1, b"x"), seconds=100)
    put(store, "renewed", Row(2, b"y", version=renewed))
    opened.forward(99)
    assert store.read("brief").position == 1 and len(store.history("brief")) == 1
    opened.forward(2)
    assert store.read("brief") is None and store.history("brief") == []
    assert store.count() == 4
    sweep(store)
    assert store.count() == 3
    opened.forward(5000)
    assert [store.read(key) is not None for key in ("long", "ever", "renewed")] == [True] * 3
    assert put(store, "brief", Row(1, b"again"), history=2) and len(store.history("brief")) == 1


def test_ended_sessions_are_counted_apart(opened, store):
    """Their rows have no model; they may be used again, removed, or expire."""
    version = put(store, "a", Row(1, b"x", "m"))
    put(store, "b", Row(1, b"x", "m"))
    assert (store.count(), store.ended()) == (2, 0)
    version = put(store, "a", Row(0, b"", version=version), seconds=60)
    put(store, "c", Row(0, b""), seconds=60)
    assert (store.count(), store.ended()) == (3, 2)
    version = put(store, "a", Row(1, b"x", "m", version=version))
    assert (store.count(), store.ended()) == (3, 1)
    put(store, "a", Row(0, b"", version=version), seconds=60)
    store.apply([Remove("c")])
    assert (store.count(), store.ended()) == (2, 1)
    opened.forward(61)
    sweep(store)
    assert (store.count(), store.ended()) == (1, 0)


def test_a_user_has_at_most_so_many_rows(opened, store):
    """Sessions and ended sessions are counted apart, by all handles to the store; a row that is there already,
    a refused one and those of other users change nothing."""
    other = opened.open()
    first = put(store, "u/a", Row(1, b"x", "m"), most=2, seconds=100)
    assert isinstance(put(other, "u/b", Row(1, b"x", "m"), most=2), int)
    for key in ("v/a", "u2/a", "u"):
        assert isinstance(put(other, key, Row(1, b"x", "m"), most=1), int)
    assert put(store, "u/c", Row(1, b"x", "m"), most=2) == Crowded(2)
    assert put(store, "u/a", Row(1, b"x", "m"), most=2) == Conflict(first, 0, 1)
    assert store.read("u/c") is None and store.rows_of("u") == other.rows_of("u") == (2, 0)
    again = put(store, "u/a", Row(2, b"y", "m", version=first), most=2, seconds=100)
    ended = put(other, "u/a", Row(0, b"", version=again), most=1, seconds=60)
    assert store.rows_of("u") == (1, 1)
    assert put(store, "u/d", Row(0, b""), most=1, seconds=60) == Crowded(1)
    assert isinstance(put(store, "u/c", Row(1, b"x", "m"), most=2, seconds=100), int)
    assert put(store, "u/a", Row(1, b"x", "m", version=ended), most=2) == Crowded(2)
    assert store.read("u/a").version == ended and store.rows_of("u") == (2, 1)
    opened.forward(61)
    assert isinstance(put(other, "u/d", Row(0, b""), most=2, seconds=60), int)
    opened.forward(40)
    sweep(store)
    assert store.rows_of("u") == other.rows_of("u") == (1, 1)
    assert store.apply([Remove("u/b"), Remove("u/d"), Remove("u/d")]) == [True, True, False]
    assert store.rows_of("u") == (0, 0) == store.rows_of("w") and store.rows_of("v") == (1, 0)
    expired = put(store, "u/e", Row(1, b"x", "m"), seconds=1, most=1)
    opened.forward(2)
    assert expired and isinstance(put(store, "u/e", Row(1, b"x", "m"), most=1), int)
    assert store.rows_of("u") == (1, 0)


def test_a_count_takes_the_same_time_for_any_number_of_rows(tmp_path):
    store, steps = sqlite.SqliteStore(tmp_path / "states.db"), []
    store.apply([Put(f"u/{i}", Row(1, b"x", "m" * (i > 1))) for i in range(2000)])
    store.db.set_progress_handler(lambda: steps.append(1), 1)
    assert store.rows_of("u") == (1998, 2) and len(steps) < 50
    store.close()


def test_rows_of_many_users_in_one_batch(store):
    batch = [Put(f"{user}/{i}", Row(1, b"x", "m"), most=3) for user in "uv" for i in range(5)]
    results = store.apply(batch)
    assert [isinstance(one, int) for one in results] == [True, True, True, False, False] * 2
    assert store.rows_of("u") == store.rows_of("v") == (3, 0)


def test_weights_in_use(store, monkeypatch):
    for module in (redis_lua, sqlite):
        monkeypatch.setattr(module, "SWEPT", 7)
    assert store.weights("") == (set(), "")
    for i in range(300):
        put(store, f"u/{i:03}", Row(1, b"x", "m", f"weights {i // 100}"))
    found, after, parts = set(), "", 0
    while after or not parts:
        part, after = store.weights(after)
        found, parts = found | part, parts + 1
    assert found == {("m", f"weights {i}") for i in range(3)}
    assert parts == 1 or parts > 10


def test_history_is_bounded_and_outlives_a_reset(store):
    version, kept = 0, []
    for position in (10, 20, 30, 0, 5):
        row = Row(
            position, b"state %d" % position, "m", "f", "avx2", "id", b"answer", b"tail", version
        )
        version = put(store, "a", row, history=3 * (position != 5))
        kept.append(Past(version, position))
    assert store.history("a") == kept[1:4]
    assert store.past("a", kept[2].version) == Row(
        30, b"state 30", "m", "f", "avx2", version=kept[2].version
    )
    assert store.past("a", kept[0].version) is None and store.past("b", kept[2].version) is None
    version = put(store, "a", Row(0, b"", version=version), seconds=60)  # ended
    assert store.history("a") == []
    put(store, "a", Row(1, b"x", "m", version=version), history=3)
    assert len(store.history("a")) == 1
    store.apply([Remove("a")])
    assert store.history("a") == []


def test_pages(opened, store):
    for key in ("u/b", "u/a", "v/a", "u/*", "ux/a", "u", "u/ended"):
        put(
            store, key, Row(3, b"x", "" if key == "u/ended" else "m", "f", "avx2", "id", b"y", b"z")
        )
    put(store, "u/gone", Row(3, b"x", "m"), seconds=1)
    opened.forward(2)
    (first, row), *rest = store.page("u/", "", 9)
    assert [first, *(key for key, _ in rest)] == ["u/*", "u/a", "u/b"]
    assert row == Row(3, b"", "m", "f", "avx2", version=row.version) and row.version
    assert [key for key, _ in store.page("u/", "*", 1)] == ["u/a"]
    assert store.page("u/", "b", 9) == [] == store.page("w/", "", 9)


@pytest.mark.skipif(bool(stores.no_redis()), reason=str(stores.no_redis()))
def test_redis_lists_a_user_without_reading_the_others(tmp_path, monkeypatch):
    """The work depends only on the page size; expired rows are removed from both sets."""
    monkeypatch.setattr(redis_lua, "SWEPT", 7)
    with stores.redis(tmp_path) as opened:
        store = opened.open()
        rows = [("v", i, 0.0) for i in range(300)]
        rows += [("u", i, 1.0) for i in range(20)] + [("u", i, 0.0) for i in range(20, 30)]
        store.apply([Put(f"{u}/{i:03}", Row(1, b"x", "m"), seconds=s) for u, i, s in rows])
        opened.forward(2)
        store.client.config_resetstat()
        page = store.page("u/", "", 4)
        assert [key for key, _ in page] == [f"u/0{i}" for i in range(20, 24)]
        calls = {name: one["calls"] for name, one in store.client.info("commandstats").items()}
        assert calls["cmdstat_hmget"] == 24 and calls["cmdstat_zrangebylex"] == 6
        assert "cmdstat_zscan" not in calls
        sizes = [store.client.zcard(f"tsm:{name}") for name in ("all", "i:u", "i:v")]
        assert [store.sweep() for _ in range(3)] == [True, True, False]
        assert sizes == [330, 30, 300]
        assert [store.client.zcard(f"tsm:{name}") for name in ("all", "i:u", "i:v")] == [
            310,
            10,
            300,
        ]
        store.apply([Remove(f"u/0{i}") for i in range(20, 30)])
        assert not store.client.exists("tsm:i:u")
        store.close()


def test_a_store_of_another_format_is_refused(durable):
    """It stays as it is."""
    durable.open().apply([Put("u/a", Row(1, b"x", "m"))])
    store = durable.open()
    if isinstance(store, sqlite.SqliteStore):
        store.db.execute("PRAGMA user_version = 1")
    else:
        store.client.delete("tsm:format")
    with pytest.raises(StoreOfOther, match="accepted: "):
        durable.open()
    assert store.read("u/a").position == 1
    store.close()


def test_concurrent_writers(opened):
    """Each writer reads, adds one and writes; a writer that is refused tries again. Nothing is lost."""
    opened.open().apply([Put("a", Row(0, b""))])

    def add(_):
        store, done = opened.open(), 0
        while done < 12:
            row = store.read("a")
            result = put(store, "a", row._replace(position=row.position + 1))
            done += not isinstance(result, Conflict)
        return done

    with ThreadPoolExecutor(1 if opened.address == "memory" else 4) as pool:
        done = sum(pool.map(add, range(4)))
    assert opened.open().read("a").position == done == 48


@pytest.mark.parametrize("seed", range(3))
def test_all_stores_do_what_memory_does(opened, store, seed):
    """Random batches with stale and fresh versions give the same results, including version numbers."""
    draw, model, seen = random.Random(seed), MemoryStore(), [(0, 0)]
    for _ in range(40):
        batch = []
        for _ in range(draw.randrange(1, 6)):
            key, (version, epoch) = draw.choice("abc"), draw.choice(seen[-4:])
            name = draw.choice(("", "m"))
            row = Row(draw.randrange(99), draw.randbytes(20), name, version=version, epoch=epoch)
            most = draw.choice((0, 0, 1, 2))
            kinds = (
                [Put(key, row, history=draw.randrange(3), most=most)] * 6
                + [Claim(key)] * 2
                + [Remove(key), Remove(key, version, epoch)]
            )
            batch.append(draw.choice(kinds))
        results = model.apply(batch)
        assert store.apply(batch) == results
        for found in map(model.read, "abc"):
            seen.append((found.version, found.epoch) if found else (0, 0))
        for key in "abc":
            assert store.read(key) == model.read(key)
            assert store.history(key) == model.history(key)
        assert store.rows_of("") == model.rows_of("")
    assert store.count() == model.count() and store.ended() == model.ended()


@pytest.mark.parametrize("seed", range(3))
def test_many_rows_at_once(opened, store, seed):
    """As above, with batches that a store may write in one statement; if a row is stale, only that row is
    refused."""
    draw, model, refused = random.Random(seed), MemoryStore(), 0
    keys = [f"k{i}" for i in range(150)]
    for store_of in (store, model):
        store_of.apply([Put(key, Row(0, b"first")) for key in keys])
    for turn in range(12):
        stale = {draw.choice(keys)} if turn % 2 else set()
        batch = []
        for key in draw.sample(keys, draw.choice([1, 2, 3, 64, 100, 150])):
            seen = model.read(key).version - (key in stale)
            row = Row(turn, draw.randbytes(20), tail=b"%d" % turn, version=seen)
            batch.append(Put(key, row, history=draw.choice([0, 0, 2, 3])))
        results = model.apply(batch)
        assert store.apply(batch) == results
        refused += sum(isinstance(one, Conflict) for one in results)
    assert refused
    for key in keys:
        assert store.read(key) == model.read(key)
        assert store.history(key) == model.history(key)


@pytest.mark.parametrize("address", ["", "file", "sqlite:", "sqlite", "memory:x", "mysql://x"])
def test_addresses_that_are_refused(address):
    with pytest.raises(ValueError, match="accepted: memory, sqlite:FILE, redis:"):
        open_store(address)
