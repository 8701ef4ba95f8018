"""HTTP by the standard library, with a bound on everything: what python_service.py stands on.

A connection carries one request, so that nothing in a body can pass for the next one. It must arrive before a
deadline; its length must be said in one way, and is limited; so is the number of connections, beyond which
clients wait in the backlog.
"""

from __future__ import annotations

import io
import json
import re
import socket
import sys
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = bytes | dict[str, Any]
LONGEST_BODY = 1 << 20


class Refused(Exception):
    """A request that is answered by this status."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class Handler(BaseHTTPRequestHandler):
    """One request: `act` gives the answer, or raises Refused, or one of `bad_request` (400)."""

    protocol_version = "HTTP/1.1"
    bad_request: tuple[type[Exception], ...] = ()
    server: Service

    def act(self, body: bytes) -> Answer:
        raise NotImplementedError

    def setup(self) -> None:
        super().setup()
        self.rfile.close()
        self.rfile = io.BufferedReader(Arriving(self.connection, self.server.seconds))

    def handle_request(self) -> None:
        self.close_connection = True
        try:
            self.answer(200, self.act(self.body()))
        except Refused as error:
            self.answer(error.status, {"error": str(error)})
        except self.bad_request as error:
            self.answer(400, {"error": f"{type(error).__name__}: {error}"})

    do_GET = do_POST = do_PUT = do_DELETE = handle_request

    def body(self) -> bytes:
        """All of it, or a refusal: never a guess at where it ends."""
        if self.headers.defects or self.headers.get_payload():
            raise Refused(400, "a header that cannot be read")
        if "Transfer-Encoding" in self.headers:
            raise Refused(501, "Transfer-Encoding; accepted: Content-Length")
        length = ", ".join(self.headers.get_all("Content-Length", ["0"]))
        if not re.fullmatch("[0-9]{1,18}", length):
            raise Refused(400, f"Content-Length {length}; accepted: one number")
        if int(length) > LONGEST_BODY:
            raise Refused(413, f"Content-Length {length}; accepted: 0 to {LONGEST_BODY}")
        body = self.rfile.read(int(length))
        if len(body) < int(length):
            raise Refused(400, f"{len(body)} bytes came of Content-Length {length}")
        return body

    def answer(self, status: int, what: Answer) -> None:
        raw = what if isinstance(what, bytes) else json.dumps(what).encode()
        self.connection.settimeout(self.server.seconds)
        self.send_response(status)
        kind = "octet-stream" if isinstance(what, bytes) else "json"
        self.send_header("Content-Type", f"application/{kind}")
        self.send_header("Content-Length", str(len(raw)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, format: str, *args: Any) -> None:
        """Not a line per request."""


class Arriving(io.RawIOBase):
    """What a connection sends, all of it before a deadline."""

    def __init__(self, connection: socket.socket, seconds: float) -> None:
        self.connection, self.deadline = connection, time.monotonic() + seconds

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self.connection.settimeout(max(self.deadline - time.monotonic(), 1e-3))
        return self.connection.recv_into(buffer)


class Service(ThreadingHTTPServer):
    """A thread per connection, at most `connections` of them, each with `seconds` to come and to go."""

    request_queue_size = 1024
    daemon_threads = True

    def __init__(
        self, address: tuple[str, int], handler: type[Handler], connections: int, seconds: float
    ) -> None:
        super().__init__(address, handler)
        self.connections, self.seconds = connections, seconds
        self.running, self.ending = 0, False
        self.change = threading.Condition()

    def process_request(self, request: Any, client_address: Any) -> None:
        with self.change:
            self.change.wait_for(lambda: self.running < self.connections or self.ending)
            self.running += 1
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread could be started
            self.leave()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.leave()

    def leave(self) -> None:
        with self.change:
            self.running -= 1
            self.change.notify_all()

    def shutdown_request(self, request: Any) -> None:
        """Read on for a moment: closing with bytes unread resets the connection, and the answer may be lost."""
        deadline = time.monotonic() + 1
        with suppress(OSError):
            request.shutdown(socket.SHUT_WR)
            while (left := deadline - time.monotonic()) > 0:
                request.settimeout(left)
                if not request.recv(1 << 16):
                    break
        self.close_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], ConnectionError | TimeoutError):  # a client that left
            super().handle_error(request, client_address)

    def end(self) -> None:
        """Take no more connections. Not from the thread that serves, which this waits for."""
        with self.change:
            self.ending = True
            self.change.notify_all()
        self.shutdown()

    def drained(self, seconds: float) -> bool:
        """Whether all requests ended within that time."""
        with self.change:
            return self.change.wait_for(lambda: not self.running, seconds)
