"""tsm-serve as a process, and requests to it."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Server:
    """A running server; each request uses a new connection."""

    process: subprocess.Popen[str]
    address: str
    token: str | None = None

    @property
    def netloc(self) -> str:
        return urlsplit(self.address).netloc

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self.netloc, timeout=60)

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        if self.token:
            headers.setdefault("authorization", f"Bearer {self.token}")
        connection = self.connect()
        try:
            names = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, data, names)
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, found, response.read())
        finally:
            connection.close()

    def post(self, path: str, **body: Any) -> Any:
        """The answer of a good request."""
        answer = self.ask("POST", path, body)
        assert answer.status in (200, 201), answer.body
        return answer.json

    def get(self, path: str) -> Any:
        answer = self.ask("GET", path)
        assert answer.status == 200, answer.body
        return answer.json

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=60)


def command(*arguments: object) -> dict[str, Any]:
    """Arguments of subprocess.Popen."""
    args = [sys.executable, "-m", "tsm.runtime.serving.cli", *map(str, arguments)]
    return {"args": args, "env": {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}}


@contextmanager
def serving(*arguments: object, token: str | None = None) -> Iterator[Server]:
    """A server on a free port, with states in memory by default; killed if it still runs at the end."""
    log = () if "--log" in arguments else ("--log", "events")  # else the pipe would fill
    store = () if "--store" in arguments else ("--store", "memory")
    port = () if "--port" in arguments else ("--port", 0)
    begin = command(*arguments, *port, *log, *store)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(**begin, **pipes) as process:
        try:
            line = process.stdout.readline()
            assert line.startswith("serving on "), line + process.stderr.read()
            yield Server(process, line.split()[-1], token)
        finally:
            process.kill()


def free_port() -> int:
    """A free port, for a server whose address others must know before it starts."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        found: int = probe.getsockname()[1]
        return found


def events(body: bytes) -> list[tuple[str, Any]]:
    """Server-sent events: (name, data)."""
    found = []
    for block in body.decode().split("\n\n")[:-1]:
        lines = dict(line.split(": ", 1) for line in block.split("\n"))
        data = lines["data"]
        found.append((lines.get("event", ""), data if data == "[DONE]" else json.loads(data)))
    return found
