"""A small HTTP service: one stream a user, kept over restarts. Standard library and tsm.runtime only.

    python examples/python_service.py model.tsm --port 8080 --snapshots DIR

    curl -X POST localhost:8080/users/ada/score    -d '{"tokens": [3, 1, 4]}'
    curl -X POST localhost:8080/users/ada/generate -d '{"n": 5, "temperature": 0.8, "seed": 1}'
    curl         localhost:8080/users/ada                    # where the stream stands
    curl         localhost:8080/users/ada/state > ada.bin    # take it along ...
    curl -X PUT  localhost:8080/users/bob/state --data-binary @ada.bin   # ... and go on elsewhere
    curl -X DELETE localhost:8080/users/ada

A thread serves a connection. The model is shared by all of them; a stream belongs to one request at a time,
which its lock sees to. tsm releases the GIL while it computes, so that requests of different users run at once.
The first good POST or PUT makes a user. On SIGTERM or Ctrl-C the states go to the snapshot folder, and the next
start finds them there; one that it cannot load is set aside as NAME.bad. What was answered is in them: a
request that comes too late for that is refused (503).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tsm.runtime import Model, Stream, TsmError

ROUTE = re.compile(r"/users/([A-Za-z0-9_-]{1,64})(?:/(score|generate|state))?")
METHODS = {
    None: ("GET", "DELETE"),
    "state": ("GET", "PUT"),
    "score": ("POST",),
    "generate": ("POST",),
}
LONGEST_BODY = 16 << 20
MOST_TOKENS = 10_000
"""That one request may generate."""


class Refused(Exception):
    """A request that is answered by this status."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class User:
    """A stream and the lock of whoever is using it. New: no request went well yet."""

    def __init__(self, stream: Stream, new: bool) -> None:
        self.stream = stream
        self.new = new
        self.lock = threading.Lock()


class Users:
    """The streams by user name, from the snapshot folder where one is there."""

    def __init__(self, model: Model, folder: Path | None) -> None:
        self.model = model
        self.folder = folder
        self.users: dict[str, User] = {}
        self.closed = False
        self.lock = threading.Lock()  # nobody waits for a user's lock with this one in hand
        for path in sorted(folder.glob("*.state")) if folder else []:
            self.load(path)

    def load(self, path: Path) -> None:
        """A state that does not fit (another model's, a damaged file) is set aside; the others go on."""
        stream = self.model.create_stream()
        try:
            stream.load_state(path.read_bytes())
        except TsmError as error:
            aside = path.replace(path.with_suffix(".bad"))
            print(f"{path} is set aside as {aside.name}: {error}", file=sys.stderr, flush=True)
        else:
            self.users[path.stem] = User(stream, new=False)

    @contextmanager
    def use(self, name: str, create: bool) -> Iterator[Stream]:
        """The user's stream, for this request alone. Who is new stays if the request goes well."""
        while True:
            user = self.get(name, create)
            with user.lock:
                if self.users.get(name) is not user:  # gone while this request waited
                    continue
                try:
                    yield user.stream
                    user.new = user.new and not create
                finally:
                    if user.new:
                        self.drop(name, user)
                return

    def get(self, name: str, create: bool) -> User:
        with self.lock:
            self.check_open()
            if create and name not in self.users:
                self.users[name] = User(self.model.create_stream(), new=True)
            if name not in self.users:
                raise Refused(404, f"there is no user {name}")
            return self.users[name]

    def drop(self, name: str, user: User) -> None:
        with self.lock:
            if self.users.get(name) is user:
                del self.users[name]

    def forget(self, name: str) -> None:
        with self.lock:
            self.check_open()
            self.users.pop(name, None)
            if self.folder:
                (self.folder / f"{name}.state").unlink(missing_ok=True)

    def check_open(self) -> None:
        if self.closed:
            raise Refused(503, "the service is ending")

    def close(self) -> None:
        """Refuse what comes; then each state goes to a new file that takes the old one's place."""
        with self.lock:
            self.closed = True
            users, self.users = self.users, {}
        if self.folder is None:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        for name, user in users.items():
            with user.lock:  # who has it is answered first
                if user.new:
                    continue
                blob = user.stream.save_state()
            path = self.folder / f"{name}.state"
            fresh = path.with_suffix(".new")
            with fresh.open("wb") as file:
                file.write(blob)
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(path)


class Handler(BaseHTTPRequestHandler):
    """HTTP on one side, a stream on the other."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # head and body of an answer are two writes
    server: Service

    def handle_request(self) -> None:
        match = ROUTE.fullmatch(self.path)
        if match is None:
            return self.answer(404, {"error": f"{self.path}; accepted: /users/NAME[/ACTION]"})
        name, action = match.groups()
        try:
            body = self.body()
            if self.command not in METHODS[action]:
                return self.answer(405, {"error": f"{self.command} on {action or 'a user'}"})
            if self.command == "DELETE":
                self.server.users.forget(name)
                return self.answer(200, {})
            with self.server.users.use(name, create=self.command != "GET") as stream:
                return self.act(stream, action, body)
        except Refused as error:
            self.answer(error.status, {"error": str(error)})
        except (TsmError, ValueError, KeyError, TypeError, RecursionError) as error:
            self.answer(400, {"error": f"{type(error).__name__}: {error}"})

    do_GET = do_POST = do_PUT = do_DELETE = handle_request

    def act(self, stream: Stream, action: str | None, body: bytes) -> None:
        if (self.command, action) == ("GET", "state"):
            return self.answer(200, stream.save_state())
        answer: dict[str, Any] = {}
        if action == "state":
            stream.load_state(body)
        elif action == "score":
            answer["log_probs"] = stream.score(json.loads(body)["tokens"]).tolist()
        elif action == "generate":
            options = json.loads(body)
            if options["n"] > MOST_TOKENS:
                raise ValueError(f"n = {options['n']}; accepted: 0 to {MOST_TOKENS}")
            answer["tokens"] = stream.generate(**options).tolist()
        self.answer(200, {"position": stream.position, **answer})

    def body(self) -> bytes:
        length = int(self.headers.get("Content-Length", 0))
        if not 0 <= length <= LONGEST_BODY:
            self.close_connection = True
            raise ValueError(f"Content-Length {length}; accepted: 0 to {LONGEST_BODY}")
        return self.rfile.read(length)

    def answer(self, status: int, what: bytes | dict[str, Any]) -> None:
        raw = what if isinstance(what, bytes) else json.dumps(what).encode()
        self.send_response(status)
        kind = "octet-stream" if isinstance(what, bytes) else "json"
        self.send_header("Content-Type", f"application/{kind}")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, format: str, *args: Any) -> None:
        """Not a line a request."""


class Service(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], users: Users) -> None:
        super().__init__(address, Handler)
        self.users = users


def main() -> None:
    p = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    p.add_argument("model", help="a .tsm file")
    p.add_argument("--host", default="127.0.0.1")
    p.add_argument("--port", type=int, default=8080, help="0: any that is free")
    p.add_argument("--dtype", default="float32", choices=["float32", "bfloat16", "int8"])
    p.add_argument("--snapshots", type=Path, help="folder for the states")
    args = p.parse_args()

    users = Users(Model.load(args.model, dtype=args.dtype), args.snapshots)
    service = Service((args.host, args.port), users)
    # shutdown() waits for the loop to end, so it must not run on the loop's own thread.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: threading.Thread(target=service.shutdown).start())
    print(f"serving on http://{args.host}:{service.server_port}", flush=True)
    service.serve_forever()
    service.server_close()
    users.close()


if __name__ == "__main__":
    main()
