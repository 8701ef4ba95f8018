"""The servers that are measured; each runs as a process for one turn."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from . import triton
from .generator import Target

STREAM, SCORE = "/v1/sessions/{}/stream", "/v1/sessions/{}/score"
START_SECONDS = 60.0


@dataclass(frozen=True)
class Kind:
    """A way to serve."""

    title: str
    talk: str
    path: str
    arguments: tuple[str, ...] = ()  # after python -m; {model}, {folder}, {threads} are filled in

    def why_not(self, repository: Path | None) -> str | None:
        """Why this server cannot be measured here; None if it can."""
        if self.talk != "triton":
            return None
        if repository is None:
            return "the repository is exported from a model of --sizes, not from a file"
        return triton.why_not()


def _tsm(store: str) -> tuple[str, ...]:
    flags = ("--store", store, "--port", "0", "--log", "events", "--max-sessions", "10000000")
    return ("tsm.runtime.serving.cli", "m={model}", *flags, "--threads", "{threads}")


def _rival(kind: str) -> tuple[str, ...]:
    return ("tsm.benchmarks.load.rival_server", kind, "{model}")


OURS = "tsm-serve"
SQLITE, MEMORY = "sqlite:{folder}/states.db", "memory"
KINDS = {
    OURS: Kind("tsm-serve, SQLite, WebSocket", "websocket", STREAM, _tsm(SQLITE)),
    "memory": Kind("tsm-serve, memory, WebSocket", "websocket", STREAM, _tsm(MEMORY)),
    "http": Kind("tsm-serve, SQLite, HTTP", "http", SCORE, _tsm(SQLITE)),
    "per-request": Kind(
        "one call per request, stores nothing", "websocket", STREAM, _rival("per-request")
    ),
    "polling": Kind("polling every 10 ms, stores nothing", "websocket", STREAM, _rival("polling")),
    "triton": Kind("Triton, Python backend, stores nothing", "triton", "/v2/models/{model}/infer"),
}


@dataclass(frozen=True)
class Running:
    pid: int
    target: Target
    database: Path | None  # of SQLite

    def stored_bytes(self) -> int | None:
        """Bytes in the database, without its log."""
        if self.database is None or not self.database.exists():
            return None
        import sqlite3

        db = sqlite3.connect(f"file:{self.database}?mode=ro", uri=True)
        try:
            (pages,), (size,) = (
                db.execute(f"PRAGMA {name}").fetchone() for name in ("page_count", "page_size")
            )
        finally:
            db.close()
        return int(pages) * int(size)


@contextmanager
def running(
    kind: Kind, model: Path, repository: Path | None, folder: Path, threads: int = 0
) -> Iterator[Running]:
    """Runs a server in a new, empty folder."""
    env, path = dict(os.environ), kind.path
    if kind.talk == "triton":
        assert repository is not None
        (home,) = repository.iterdir()
        port = triton.free_port()
        command = triton.command(repository, folder, port)
        env, path = triton.process_environment(), path.format(model=home.name)
        address = f"http://127.0.0.1:{port}"
    else:
        facts = {"model": model, "folder": folder, "threads": threads}
        words = [word.format(**facts) for word in kind.arguments]
        command, address = [sys.executable, "-m", *words], ""
    log = folder / "log"
    with (
        log.open("wb") as errors,
        subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=errors) as process,
    ):
        try:
            if address:
                _wait_until_ready(process, f"{address}/v2/models/{home.name}/ready")
            else:
                assert process.stdout is not None
                address = process.stdout.readline().decode().strip().rpartition(" ")[2]
            if not address:
                raise RuntimeError(f"the server did not start: {log.read_text()[-2000:]}")
            place = urlsplit(address)
            assert place.hostname is not None and place.port is not None
            target = Target(place.hostname, place.port, kind.talk, path)
            yield Running(process.pid, target, folder / "states.db")
        finally:
            process.terminate()
            try:
                process.wait(timeout=40)
            except subprocess.TimeoutExpired:
                process.kill()


def _wait_until_ready(process: subprocess.Popen[bytes], url: str) -> None:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end and process.poll() is None:
        try:
            urllib.request.urlopen(url, timeout=5).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise RuntimeError(f"nothing answers at {url}")
