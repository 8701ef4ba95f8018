"""One JSON object per line on stderr."""

from __future__ import annotations

import json
import logging
import sys
import time
from asyncio import CancelledError
from contextlib import suppress
from traceback import format_exception
from typing import Any, TextIO

# uvicorn 0.54 logs this when a WebSocket is refused with an HTTP status, which is not an error.
REFUSED = "ASGI callable returned without completing handshake."


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
    def __init__(self, level: str = "info", out: TextIO | None = None) -> None:
        self.out = out  # None: stderr, which may be replaced later
        self.requests = level == "info"
        self.quiet = level == "off"
        server = logging.getLogger("uvicorn")
        server.propagate = False
        server.handlers = [_Forward(self)]

    def __call__(self, event: str, **facts: Any) -> None:
        if self.quiet:
            return
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        line = json.dumps({"time": now, "event": event, **facts})
        with suppress(OSError):  # nobody reads the log, or its disk is full: the server goes on
            print(line, file=self.out or sys.stderr, flush=True)
