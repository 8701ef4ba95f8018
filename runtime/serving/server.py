"""The server process: runs the application in uvicorn and handles signals, draining, reloading and limits on
connections."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import signal
import socket
import sys
import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from .app import App
from .logs import Log
from .metrics import Metrics
from .rpc.server import RpcServer
from .rpc.server import package as rpc_package
from .service import Service
from .session.sessions import Sessions
from .store.commits import Commits
from .store.registry import open_store
from .streams.models import Models, Source
from .transport.access import LOOPBACK, Access, is_loopback, origin_of, read_tokens
from .transport.garbage import Garbage
from .transport.limits import Keeping, Limits, check, setting

SWEEP = 60.0  # seconds between searches for expired sessions
BACKLOG = 2048  # connections that wait to be accepted
SWITCH = 0.0005  # seconds that the store's thread may wait for the GIL; Python's default is 0.005
SPARE_FILES = 256  # open files besides the connections
LOOK = 0.02  # seconds between checks that a drain is done
LOOK_FILES = 1.0  # seconds between checks that a file can be opened
SENDING = 1.0  # seconds to send the last answers over gRPC


@dataclass
class Options:
    """What `tsm-serve` was told."""

    sources: list[Source]
    store: str = "memory"
    host: str = "127.0.0.1"
    port: int = 8080
    grpc_port: int | None = None
    token_file: Path | None = None
    hosts: list[str] = field(default_factory=list)
    origins: list[str] = field(default_factory=list)
    peers: list[str] = field(default_factory=list)
    dtype: str = "float32"
    threads: int = setting(1, 0, 1024)  # 0: as many as Model.load chooses
    grace: float = setting(10.0, 0, 86_400)
    log: str = "info"
    limits: Limits = field(default_factory=Limits)
    keeping: Keeping = field(default_factory=Keeping)

    def __post_init__(self) -> None:
        check(self)
        for name in ("hosts", "origins", "peers"):
            value = getattr(self, name)
            if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
                raise ValueError(f"{name} = {value!r:.80}; accepted: a list of texts")
        self.peers = [origin_of(peer) for peer in self.peers]
        if not is_loopback(self.host) and self.token_file is None:
            raise ValueError(
                f"host {self.host} can be reached from elsewhere; accepted: 127.0.0.1, or --token-file"
            )

    def access(self) -> Access:
        hosts = [host.lower() for host in self.hosts]
        if is_loopback(self.host):
            hosts += [name for name in {*LOOPBACK, self.host} if name not in hosts]
        tokens = read_tokens(self.token_file) if self.token_file else {}
        return Access(tokens, hosts, [*self.origins, *self.peers], self.limits)


class Replica:
    """A service with models and a store, as an application that runs in any ASGI server."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.log = Log(options.log)
        self.access = options.access()
        self.models = Models(options.sources, options.limits, options.dtype, options.threads)
        self.store = open_store(options.store)
        self.app = App(self.start, self.end)
        self.tasks: list[asyncio.Task[None]] = []
        self.unfinished = 0  # requests that ran when the time for them had passed

    async def start(self) -> Service:
        """Runs in the event loop that serves."""
        sys.setswitchinterval(SWITCH)
        options, limits = self.options, self.options.limits
        commits = Commits(self.store)
        sessions = Sessions(self.models, commits, limits, options.keeping, self.access.users)
        await sessions.room.sweep()
        shared = (self.models, sessions, self.access, limits, Metrics(sessions), self.log)
        self.service = Service(*shared, peers=options.peers)
        self._task(self.sweep)
        self._task(self.watch_files)
        models = [(engine.name, engine.model) for engine in self.models.all()]
        names = ", ".join(f"{name} ({m.checksum}, threads {m.threads})" for name, m in models)
        if self.store.warning:
            self.log("store", warning=self.store.warning)
        self.log("start", models=names, store=options.store.partition("@")[2] or options.store)
        return self.service

    def _task(self, function: Any) -> None:
        self.tasks = [task for task in self.tasks if not task.done()]
        self.tasks.append(asyncio.ensure_future(function()))

    async def sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP)
            try:
                await self.service.sessions.room.sweep()
            except OSError as error:
                self.log("store", error=str(error))

    async def watch_files(self) -> None:
        """Without a free file descriptor the event loop closes new connections, and says nothing."""
        while True:
            await asyncio.sleep(LOOK_FILES)
            try:
                os.close(os.open(os.devnull, os.O_RDONLY))
            except OSError as error:
                self.log("files", error=f"new connections are closed: {error.strerror}")
                await asyncio.sleep(SWEEP)

    async def end(self, service: Service) -> None:
        for task in self.tasks:
            task.cancel()
        unwritten = await service.sessions.writes.settle_all()
        await self.models.close()
        await service.sessions.commits.close()
        unfinished = max(self.unfinished, service.running)
        self.log("end", unfinished=unfinished, unwritten=unwritten)
        self.log.close()


class Process(Replica):
    """A server in its own process, from start to end, with its socket and signals."""

    def __init__(self, options: Options) -> None:
        if options.grpc_port is not None:
            rpc_package()
        super().__init__(options)
        self.rpc: RpcServer | None = None
        self.garbage = Garbage()

    def run(self) -> int:
        """Serve until a signal ends it; returns the exit code: 1 if answered steps could not be stored."""
        from .transport.uvicorn_server import make_server

        servers = 1 if self.options.grpc_port is None else 2
        allow_files(servers * self.options.limits.connections + SPARE_FILES)
        listening = bound(self.options.host, self.options.port)
        host = f"[{self.options.host}]" if ":" in self.options.host else self.options.host
        self.address = f"http://{host}:{listening.getsockname()[1]}"
        self.server = make_server(self.app, self.options.limits, self.garbage)
        try:
            self.server.run(sockets=[listening])
        except SystemExit:  # how uvicorn reports a failed start
            if self.app.failure is None:
                raise
            raise self.app.failure from None
        finally:
            self.log.close()
        return int(bool(self.service.sessions.writes.unsettled))

    async def start(self) -> Service:
        service = await super().start()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.begin_drain)
        loop.add_signal_handler(signal.SIGHUP, self._task, self.reload)
        said = [f"serving on {self.address}"]
        if self.options.grpc_port is not None:
            self.rpc = RpcServer(service, self.garbage)
            port = await self.rpc.start(self.options.host, self.options.grpc_port)
            said.append(f"gRPC on {self.options.host}:{port}")
        loop.call_soon(self.garbage.begin)
        loop.call_soon(partial(print, *said, sep="\n", flush=True))
        return service

    async def reload(self) -> None:
        """Load models and tokens that have changed on disk; if one cannot be read, nothing changes."""
        try:
            access = self.options.access()
            changed = await self.service.sessions.reload()
        except (ValueError, OSError) as error:
            self.log("reload", error=str(error))
            return
        self.access.tokens = access.tokens
        self.service.metrics.reloads.inc(len(changed))
        self.log("reload", models=changed)

    def begin_drain(self) -> None:
        """Refuse new work; a second signal exits at once."""
        if self.service.draining:
            self.server.force_exit = self.server.should_exit = True
            return
        self.service.draining = True
        self.log("drain", running=self.service.running, seconds=self.options.grace)
        for websocket in [*self.service.websockets]:
            self._task(websocket.leave)
        self._task(self.drain)

    async def drain(self) -> None:
        """Wait for running requests, at most --grace seconds."""
        end = time.monotonic() + self.options.grace
        while time.monotonic() < end and (self.service.running or self.service.websockets):
            await asyncio.sleep(LOOK)
        self.unfinished = self.service.running
        if self.rpc is not None:
            await self.rpc.stop(SENDING)
        self.server.should_exit = True


def allow_files(count: int) -> None:
    """Raise the process's limit on open files as far as allowed: every connection is a file."""
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count if most == resource.RLIM_INFINITY else min(count, most)
    if now != resource.RLIM_INFINITY and now < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


def bound(host: str, port: int) -> socket.socket:
    """A listening socket: clients that connect before the server runs are served once it does."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((host, port))
        found.listen(BACKLOG)
    except OSError as error:
        found.close()
        other = "; --port 0 takes any free port" * (error.errno == errno.EADDRINUSE)
        raise OSError(f"cannot listen on {host}:{port}: {error.strerror}{other}") from error
    return found
