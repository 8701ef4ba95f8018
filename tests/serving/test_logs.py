"""The log: JSON lines, which neither an unread pipe nor a full disk stops, and which are counted if lost."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import os
import time

from tsm.runtime.serving import logs
from tsm.runtime.serving.logs import Log

from .server_process import serving


def test_logs_are_json_lines(files, tmp_path):
    with serving(files["lm"], "--store", "memory", "--log", "info") as server:
        server.post("/v1/sessions/a/feed", text="abc")
        server.stop()
        lines = [json.loads(line) for line in server.process.stderr.read().splitlines()]
    assert [line["event"] for line in lines] == ["start", "request", "drain", "end"]
    assert {"method": "POST", "path": "/v1/sessions/a/feed", "status": 200}.items() <= lines[
        1
    ].items()


def test_errors_of_uvicorn_are_logged_with_their_trace():
    out = io.StringIO()
    log = Log(out=out)
    for error in (ValueError("why"), asyncio.CancelledError()):  # the second: cut off at the end
        logging.getLogger("uvicorn.error").error("Exception in ASGI application", exc_info=error)
    log.close()
    (line,) = map(json.loads, out.getvalue().splitlines())
    assert line["event"] == "server" and line["trace"].endswith("ValueError: why\n")


def test_a_log_that_nobody_reads_any_more(files):
    """Requests are answered, and SIGTERM ends the server."""
    with serving(files["lm"], "--log", "info") as server:
        server.process.stderr.close()
        assert server.post("/v1/sessions/a/feed", text="abc") == {"position": 3}
        assert server.stop() == 0


def test_a_log_that_nobody_reads(files):
    """Requests are answered although the pipe is full, and SIGTERM ends the server."""
    with serving(files["lm"], "--log", "info") as server:
        for _ in range(600):  # over 100 KB of log; a pipe holds 64 KB
            assert server.ask("GET", "/healthz").status == 200
        assert server.stop() == 0


def test_lines_of_a_log_that_were_lost(monkeypatch):
    """They are counted, and memory is bounded."""
    monkeypatch.setattr(logs, "MOST", 3)
    read, write = os.pipe()
    with open(write, "w") as out, open(read) as pipe:
        os.set_blocking(write, False)
        while True:
            try:
                os.write(write, b"x" * 4096)
            except BlockingIOError:
                break
        os.set_blocking(write, True)
        log = Log(out=out)
        for number in range(100):
            log("event", number=number)
        assert log.lines.qsize() <= 4
        os.read(read, 1 << 20)
        end = time.monotonic() + 20
        while log.lines.qsize() >= 3:
            assert time.monotonic() < end
        log("last")
        log.close()
        out.close()
        lines = [json.loads(line) for line in pipe]
    kept = [line["number"] for line in lines if line["event"] == "event"]
    lost = sum(line["lost"] for line in lines if line["event"] == "log")
    assert kept[0] == 0 and len(kept) + lost == 100 and lost > 90
    assert [line["event"] for line in lines[-2:]] == ["log", "last"]


def test_lines_of_a_log_that_cannot_be_written():
    """They are counted, and the log goes on once its disk has room again."""

    class Full(io.StringIO):
        full = True

        def write(self, text: str) -> int:
            if self.full:
                raise OSError(28, "No space left on device")
            return super().write(text)

    out = Full()
    log = Log(out=out)
    log("first")
    end = time.monotonic() + 20
    while not log.failed:
        assert time.monotonic() < end
    out.full = False
    log("second")
    log.close()
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [(line["event"], line.get("lost")) for line in lines] == [("log", 1), ("second", None)]
