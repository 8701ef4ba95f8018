"""Every kind of store for the tests: how to open it, open it again, and advance its clock."""

from __future__ import annotations

import hashlib
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tsm.runtime.serving.store.base import StateStore, StoreError
from tsm.runtime.serving.store.memory import MemoryStore
from tsm.runtime.serving.store.redis_lua import RedisStore
from tsm.runtime.serving.store.sqlite import SqliteStore


@dataclass
class Clock:
    """A clock that the test moves."""

    now: float = 1e9

    def __call__(self) -> float:
        return self.now


@dataclass
class Opened:
    """`open()` gives another handle to the same states, as another process would have."""

    address: str
    open: Callable[[], StateStore]
    forward: Callable[[float], None]


@contextmanager
def memory(folder: Path) -> Iterator[Opened]:
    clock = Clock()
    store = MemoryStore(clock)
    yield Opened("memory", lambda: store, lambda s: setattr(clock, "now", clock.now + s))


@contextmanager
def sqlite(folder: Path) -> Iterator[Opened]:
    clock, path = Clock(), folder / "states.db"
    yield Opened(
        f"sqlite:{path}",
        lambda: SqliteStore(path, clock),
        lambda s: setattr(clock, "now", clock.now + s),
    )


@contextmanager
def redis(folder: Path) -> Iterator[Opened]:
    with RedisProcess(folder) as process:
        yield Opened(process.url, lambda: RedisStore(process.url), process.forward)


def no_redis() -> str | None:
    found = shutil.which("redis-server")
    return None if found else "no redis-server on this machine: apt-get install redis-server"


class RedisProcess:
    """A private redis-server with its data in a folder; it syncs every write.

    It listens on a Unix socket or on a `port` of 127.0.0.1.
    """

    def __init__(self, folder: Path, port: int = 0) -> None:
        name = hashlib.sha256(str(folder).encode()).hexdigest()[
            :16
        ]  # a socket's path must be short
        self.folder, self.socket = folder, f"{tempfile.gettempdir()}/tsm-{name}.sock"
        self.port, self.url = port, f"unix://{self.socket}"
        if port:
            self.url = f"redis://127.0.0.1:{port}/0"

    def __enter__(self) -> RedisProcess:
        options = f"--port {self.port} --bind 127.0.0.1 --unixsocket {self.socket}"
        options += f" --dir {self.folder} --save ''"
        options += " --appendonly yes --appendfsync always"
        self.process = subprocess.Popen(
            ["redis-server", *options.replace("''", "").split(" ")], stdout=subprocess.DEVNULL
        )
        for _ in range(500):
            try:
                RedisStore(self.url).close()
                return self
            except StoreError:  # not up yet
                assert self.process.poll() is None
                time.sleep(0.01)
        raise AssertionError("redis-server does not answer")

    def __exit__(self, *_: object) -> None:
        self.kill()
        Path(self.socket).unlink(missing_ok=True)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def forward(self, seconds: float) -> None:
        """Make everything expire `seconds` sooner."""
        client = RedisStore(self.url).client
        for key in client.scan_iter("tsm:[sh]:*"):
            if (left := client.pttl(key)) > 0:
                client.pexpire(key, max(0, left - round(seconds * 1000)))
        for name in ("tsm:all", "tsm:ending", *client.scan_iter("tsm:e:*")):
            for key, at in client.zrange(name, 0, -1, withscores=True):
                client.zadd(name, {key: at - seconds * 1000})
        client.close()


KINDS = {"memory": memory, "sqlite": sqlite, "redis": redis}
DURABLE = [name for name in KINDS if name != "memory"]
