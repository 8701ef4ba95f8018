"""One JSON object per line on stderr. A reader that is slow, or does not read, never stops the server."""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from asyncio import CancelledError
from queue import SimpleQueue
from traceback import format_exception
from typing import Any, TextIO

# uvicorn 0.54 logs this when a WebSocket is refused with an HTTP status, which is not an error.
REFUSED = "ASGI callable returned without completing handshake."
MOST = 10_000  # lines that wait to be written
LAST = 1.0  # seconds to write the last lines
RETRY = 0.05  # seconds


class _Forward(logging.Handler):
    """Forwards uvicorn's warnings to our log."""

    def __init__(self, log: Log) -> None:
        super().__init__(logging.WARNING)
        self.log = log

    def emit(self, record: logging.LogRecord) -> None:
        message, error = record.getMessage(), record.exc_info and record.exc_info[1]
        if message == REFUSED or isinstance(error, CancelledError):  # cut off at the end
            return
        trace = {"trace": "".join(format_exception(error))[-2000:]} if error else {}
        self.log("server", message=message[:2000], **trace)


class Log:
    """Lines are written by a thread, since nobody may be reading the pipe. If too many wait, or they cannot
    be written, lines are lost; the next one that is kept says how many."""

    def __init__(self, level: str = "info", out: TextIO | None = None) -> None:
        self.out = out  # None: stderr, which may be replaced later
        self.requests = level == "info"
        self.quiet = level == "off"
        self.dropped = 0  # lines, since too many waited
        self.failed = 0  # lines that could not be written; only the thread changes this
        self.told = 0  # of both
        self.lines: SimpleQueue[str] = SimpleQueue()  # an empty line means the end
        self.thread: threading.Thread | None = None
        server = logging.getLogger("uvicorn")
        server.propagate = False
        server.handlers = [_Forward(self)]

    def __call__(self, event: str, **facts: Any) -> None:
        if self.quiet:
            return
        if self.lines.qsize() >= MOST:
            self.dropped += 1
            return
        if self.thread is None:
            self.thread = threading.Thread(target=self._run, name="tsm-log", daemon=True)
            self.thread.start()
        if (lost := self.dropped + self.failed - self.told) > 0:
            self.lines.put(_line("log", lost=lost))
            self.told += lost
        self.lines.put(_line(event, **facts))

    def close(self) -> None:
        """Waits until all lines are written, but not long: the process must end."""
        if self.thread is not None:
            self.lines.put("")
            self.thread.join(LAST)
            self.thread = None

    def _run(self) -> None:
        ending = False
        while not ending:
            lines = [self.lines.get()]
            while len(lines) < MOST and not self.lines.empty():
                lines.append(self.lines.get())
            ending = "" in lines
            try:
                _write(self.out or sys.stderr, "".join(lines))
            except (OSError, ValueError):  # closed, or its disk is full: the server goes on
                self.failed += len(lines) - ending


def _line(event: str, **facts: Any) -> str:
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return json.dumps({"time": now, "event": event, **facts}) + "\n"


def _write(out: TextIO | None, text: str) -> None:
    """Without the buffer of `out`: a thread that waits in it for a reader would stop the process at its end.
    Without stderr (2>&-), nothing is written."""
    if out is None:
        return
    raw = getattr(getattr(out, "buffer", None), "raw", None)
    if raw is None:
        out.write(text)
        out.flush()
        return
    rest = memoryview(text.encode())
    while rest:
        if (written := raw.write(rest)) is None:  # the pipe is full, and does not wait
            time.sleep(RETRY)
        rest = rest[written or 0 :]
