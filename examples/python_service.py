"""A small HTTP service: one stream per user, stored before it is answered. Standard library and tsm.runtime.

    python examples/python_service.py model.tsm --port 8080 --snapshots DIR

    curl -X POST localhost:8080/users/ada/score    -d '{"tokens": [3, 1, 4]}'
    curl -X POST localhost:8080/users/ada/score    -d '{"tokens": [1, 5], "position": 3}'   # safe to retry
    curl -X POST localhost:8080/users/ada/generate -d '{"n": 5, "temperature": 0.8, "seed": 1}'
    curl         localhost:8080/users/ada                    # where the stream stands
    curl         localhost:8080/users/ada/state > ada.bin    # take it along ...
    curl -X PUT  localhost:8080/users/bob/state --data-binary @ada.bin   # ... and go on elsewhere
    curl -X DELETE localhost:8080/users/ada

What was answered is in the snapshot folder, synced: a kill at any moment loses nothing, and a request that
cannot be stored (507) changes nothing, unless the answer says that it was stored. Memory holds the streams used
last, the folder holds all. A request with "position" is refused (409) where the stream does not stand there, so
that one whose answer was lost can be sent again. The first good POST or PUT makes a user. A snapshot of another
model, or a damaged one, is left as it is and refused (409) until PUT replaces or DELETE removes it.

Every size and time has a limit (`--help`, bounded_http.py). There is no TLS and no authentication: that is a
proxy's work. tsm releases the GIL while it computes, so that requests of different users run at once.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import re
import signal
import sys
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from bounded_http import Answer, Handler, Refused, Service

from tsm.runtime import Model, Stream, TsmError

ROUTE = re.compile(r"/users/([A-Za-z0-9_-]{1,64})(?:/(score|generate|state))?")
METHODS = {
    None: ("GET", "DELETE"),
    "state": ("GET", "PUT"),
    "score": ("POST",),
    "generate": ("POST",),
}


class Snapshots:
    """NAME.state files in a folder that no other service uses. Each is replaced whole, and synced."""

    def __init__(self, folder: Path, most: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.most = folder, most
        self.entry = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(self.entry, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.exit(f"error: {folder} is in use by another service")
        for torn in folder.glob("*.new"):  # of a write that was killed
            torn.unlink()
        self.names = {path.stem for path in folder.glob("*.state")}
        self.lock = threading.Lock()  # of the names

    def path(self, name: str) -> Path:
        return self.folder / f"{name}.state"

    def read(self, name: str) -> bytes | None:
        with refused_by_disk("read"), suppress(FileNotFoundError):
            return self.path(name).read_bytes() if name in self.names else None
        return None

    def write(self, name: str, blob: bytes) -> None:
        with self.lock:
            if name not in self.names and len(self.names) >= self.most:
                raise Refused(507, f"there are {self.most} users, the most that --users allows")
            new = name not in self.names
            self.names.add(name)
        fresh = self.path(name).with_suffix(".new")
        try:
            with refused_by_disk("stored"):
                with fresh.open("wb") as file:
                    file.write(blob)
                    file.flush()
                    os.fsync(file.fileno())
                fresh.replace(self.path(name))
        except Refused:
            if new:
                self.names.discard(name)
            with suppress(OSError):
                fresh.unlink()
            raise
        self._sync("stored")

    def remove(self, name: str) -> None:
        with refused_by_disk("removed"):
            self.path(name).unlink(missing_ok=True)
        self.names.discard(name)
        self._sync("removed")

    def _sync(self, what: str) -> None:
        """What was done stands; whether a crash of the machine keeps it, the disk does not say."""
        with refused_by_disk(f"{what} for certain, though it was {what}"):
            os.fsync(self.entry)


@contextmanager
def refused_by_disk(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Refused(507, f"the state could not be {what}: {error.strerror}") from error


class User:
    """A stream (None: as the snapshot says), the lock of the request that has it, and how many want it."""

    def __init__(self) -> None:
        self.stream: Stream | None = None
        self.lock = threading.Lock()
        self.holders = 0


class Users:
    """The streams by user name: the `most` that were used last, the others in their snapshots."""

    def __init__(self, model: Model, snapshots: Snapshots, most: int, seconds: float) -> None:
        self.model, self.snapshots = model, snapshots
        self.most, self.seconds = most, seconds
        self.users: OrderedDict[str, User] = OrderedDict()
        self.lock = threading.Lock()  # nobody waits for a user's lock with this one in hand

    @contextmanager
    def use(self, name: str) -> Iterator[User]:
        """The user, for this request alone. Where it fails, the stream is what the snapshot says again."""
        with self.lock:
            user = self.users.setdefault(name, User())
            self.users.move_to_end(name)
            user.holders += 1
        try:
            if not user.lock.acquire(timeout=self.seconds):
                raise Refused(503, f"other requests of {name} took {self.seconds:g} s")
            try:
                yield user
            except BaseException:
                user.stream = None
                raise
            finally:
                user.lock.release()
        finally:
            with self.lock:
                user.holders -= 1
                if user.stream is None and not user.holders:
                    del self.users[name]
                self.evict()

    def evict(self) -> None:
        """Forget, of those that no request has, the ones that were used first. Their snapshots have them."""
        while len(self.users) > self.most:
            idle = next((name for name, user in self.users.items() if not user.holders), None)
            if idle is None:
                return
            del self.users[idle]

    def stream(self, name: str, user: User, create: bool) -> Stream:
        """The stream of a user in hand, from the snapshot where it is not in memory."""
        if user.stream is None:
            blob, stream = self.snapshots.read(name), self.model.create_stream()
            if blob is not None:
                try:
                    stream.load_state(blob)
                except TsmError as error:
                    raise Refused(409, f"the snapshot of {name}: {error}") from error
            elif not create:
                raise Refused(404, f"there is no user {name}")
            user.stream = stream
        return user.stream


class StreamHandler(Handler):
    """HTTP on one side, a stream on the other."""

    bad_request = (TsmError, ValueError, KeyError, TypeError, OverflowError, RecursionError)

    def __init__(self, *args: Any, users: Users, most_tokens: int) -> None:
        self.users, self.most_tokens = users, most_tokens
        super().__init__(*args)

    def act(self, body: bytes) -> Answer:
        match = ROUTE.fullmatch(self.path)
        if match is None:
            raise Refused(404, f"{self.path}; accepted: /users/NAME[/ACTION]")
        name, action = match.groups()
        if self.command not in METHODS[action]:
            raise Refused(405, f"{self.command} on {action or 'a user'}")
        users, snapshots = self.users, self.users.snapshots
        with users.use(name) as user:
            if self.command == "DELETE":
                snapshots.remove(name)
                user.stream = None
                return {}
            if self.command == "PUT":
                user.stream = users.model.create_stream()
                user.stream.load_state(body)
                snapshots.write(name, body)
                return {"position": user.stream.position}
            stream = users.stream(name, user, create=self.command == "POST")
            if action is None:
                return {"position": stream.position}
            if action == "state":
                return stream.save_state()
            answer = self.advance(stream, action, json.loads(body))
            snapshots.write(name, stream.save_state())
            return {"position": stream.position, **answer}

    def advance(self, stream: Stream, action: str, options: Any) -> dict[str, Any]:
        if not isinstance(options, dict):
            raise ValueError("the body is JSON, but no object")
        expected = options.pop("position", stream.position)
        if expected != stream.position:
            raise Refused(409, f"position = {expected}, but the stream is at {stream.position}")
        count = len(options["tokens"]) if action == "score" else options["n"]
        if count > self.most_tokens:
            raise ValueError(f"{count} tokens; accepted: 0 to {self.most_tokens}")
        if action == "score":
            return {"log_probs": stream.score(options["tokens"]).tolist()}
        return {"tokens": stream.generate(**options).tolist()}


def at_least_one(text: str) -> int:
    if (value := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"{text}; accepted: an integer of at least 1")
    return value


def main() -> None:
    p = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    p.add_argument("model", help="a .tsm file")
    p.add_argument("--host", default="127.0.0.1")
    p.add_argument("--port", type=int, default=8080, help="0: any that is free")
    p.add_argument("--dtype", default="float32", choices=["float32", "bfloat16", "int8"])
    p.add_argument("--snapshots", type=Path, help="folder of the states (default: a temporary one)")
    for flag, most, what in (
        ("--tokens", 10_000, "that one request may score or generate"),
        ("--streams", 10_000, "in memory"),
        ("--users", 100_000, "in the folder"),
        ("--connections", 128, "at once"),
        ("--seconds", 10, "for a request to arrive, to wait for its user, and to be answered"),
        ("--grace", 5, "seconds for requests to end after SIGTERM"),
    ):
        p.add_argument(flag, type=at_least_one, default=most, help=f"{what} (default {most})")
    args = p.parse_args()

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as temporary:
        snapshots = Snapshots(args.snapshots or Path(temporary), args.users)
        model = Model.load(args.model, dtype=args.dtype)
        users = Users(model, snapshots, args.streams, args.seconds)
        handler = partial(StreamHandler, users=users, most_tokens=args.tokens)
        service = Service((args.host, args.port), handler, args.connections, args.seconds)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: threading.Thread(target=service.end).start())
        print(f"serving on http://{args.host}:{service.server_port}", flush=True)
        service.serve_forever()
        service.server_close()
        finished = service.drained(args.grace)
    if not finished:
        os._exit(
            0
        )  # what still runs was not answered; its streams are on disk as they were before it


if __name__ == "__main__":
    main()
