"""The stores by name: `memory`, `sqlite:FILE`, `redis://HOST:PORT/DB` (`rediss://`, `unix://SOCKET`)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from .base import StateStore
from .memory import MemoryStore
from .redis_lua import RedisStore
from .sqlite import SqliteStore

ACCEPTED = "memory, sqlite:FILE, redis://HOST:PORT/DB"


def _memory(address: str) -> StateStore:
    if address != "memory":
        raise ValueError(f"store {address!r}: memory takes no address; accepted: {ACCEPTED}")
    return MemoryStore()


def _sqlite(address: str) -> StateStore:
    path = Path(address.partition(":")[2])
    if not path.name:
        raise ValueError(f"store {address!r} names no file; accepted: {ACCEPTED}")
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)  # states are confidential
    return SqliteStore(path)


STORES: dict[str, Callable[[str], StateStore]] = {
    "memory": _memory,
    "sqlite": _sqlite,
    "redis": RedisStore,
    "rediss": RedisStore,
    "unix": RedisStore,
}


def open_store(address: str) -> StateStore:
    kind = STORES.get(address.partition(":")[0])
    if kind is None:
        raise ValueError(f"store {address!r}; accepted: {ACCEPTED}")
    return kind(address)
