"""The load generator, a separate process driven by JSON lines: `python -m tsm.benchmarks.load.generator`.

It reads its job from stdin, one line, and reports its progress on stdout:

    {"phase": "checked", ...}    a first answer, for comparison with the model
    {"phase": "connected"}       all connections are open
    {"phase": "stored"}          each idle session has sent its one message
    {"at": 3.0, "answered": 5960, ...}   every second
    {"result": {...}}

After each phase it waits for a line, so that its parent can inspect the server. Every message has a time at
which it should be sent, and its latency counts from then, even if the previous message has not been answered
yet. So a stall of the server shows in every message that is due during the stall.
"""

from __future__ import annotations

import asyncio
import gc
import heapq
import json
import resource
import sys
import time
from collections import Counter, deque
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from .histogram import Histogram
from .plan import Chunk, Draws, Load
from .talks import TALKS, Talk

CONNECTING = 64  # connections that are opened at the same time
SLOW = 2.0  # seconds between two reads of a slow session
LIFE = 5  # messages after which a dying session drops its connection
PATIENCE = 30.0  # seconds to wait for answers after the last message
CONNECT_SECONDS = 120.0  # for all connections
AGAIN = 0.1  # seconds until a failed connection is retried
now = time.perf_counter


@dataclass(frozen=True)
class Target:
    """The server's address, and its protocol (`TALKS`)."""

    host: str
    port: int
    talk: str
    path: str  # with {} for the session


class Session:
    """One stream on the server, over one connection at a time."""

    def __init__(self, run: Run, number: int, manners: str) -> None:
        self.run, self.number, self.manners = run, number, manners
        self.name = f"{run.prefix}{number}"
        self.talk: Talk | None = None
        self.unsent: list[tuple[float, Chunk]] = []
        self.pending: deque[tuple[float, Chunk]] = deque()
        self.position: int | None = 0
        self.sent = 0
        self.ended = False
        self.open: asyncio.Event = asyncio.Event()
        self.last = b""

    async def connect(self, after: float = 0.0) -> None:
        await asyncio.sleep(after)
        target, talk = self.run.target, TALKS[self.run.target.talk]
        host = f"{target.host}:{target.port}"
        while not self.ended:
            try:
                await self.run.loop.create_connection(
                    lambda: self._born(talk(self, host, target.path)), target.host, target.port
                )
            except OSError as error:
                self.run.errors[f"connect: {type(error).__name__}"] += 1
                await asyncio.sleep(AGAIN)
            else:
                return

    def _born(self, talk: Talk) -> Talk:
        self.born = talk
        return talk

    def opened(self) -> None:
        self.talk = self.born
        self.open.set()
        unsent, self.unsent = self.unsent, []
        for intended, chunk in unsent:
            self._send(intended, chunk)

    def lost(self) -> None:
        """The connection has ended; unanswered messages stay unanswered."""
        self.talk = None
        self.open.clear()
        if self.ended:
            return
        if self.manners != "dying":
            self.run.errors["closed by the server"] += 1
        self.run.gave_up(self)
        self.position = None
        self.run.keep(self.connect(0.0 if self.manners == "dying" else AGAIN))

    def send(self, intended: float, chunk: Chunk) -> None:
        """Send now, or as soon as there is a connection."""
        if self.talk is None:
            self.unsent.append((intended, chunk))
        else:
            self._send(intended, chunk)

    def _send(self, intended: float, chunk: Chunk) -> None:
        talk = self.talk
        assert talk is not None
        self.pending.append((intended, chunk))
        talk.ask(chunk, first=self.sent == 0)
        self.sent += 1
        if self.manners == "dying" and self.sent % LIFE == 0:
            talk.transport.abort()
        elif self.manners == "slow":
            talk.transport.pause_reading()
            self.run.loop.call_later(SLOW, self._read)

    def _read(self) -> None:
        if self.talk is not None:
            self.talk.transport.resume_reading()

    def answered(self, answer: bytes, status: int) -> None:
        intended, chunk = self.pending.popleft()
        self.last = answer
        right = status == 200
        if right:
            if self.position is not None:
                self.position += len(chunk.tokens)
            assert self.talk is not None
            right = self.talk.right(answer, self.position, len(chunk.tokens))
        self.run.answered(self, intended, chunk, "" if right else _kind(status))

    def end(self) -> None:
        self.ended = True
        if self.talk is not None:
            self.talk.transport.abort()


def _kind(status: int) -> str:
    return f"status {status}" if status != 200 else "wrong position"


class Run:
    """A load on one server."""

    def __init__(self, load: Load, target: Target, prefix: str) -> None:
        self.load, self.target, self.prefix = load, target, prefix
        self.loop = asyncio.get_running_loop()
        self.draws = Draws(load)
        self.errors: Counter[str] = Counter()
        self.latency, self.slow, self.late = Histogram(), Histogram(), Histogram()
        self.messages = self.tokens = self.abandoned = self.in_all = 0
        self.begin = self.first = self.end = float("inf")
        self.due: list[tuple[float, int]] = []
        self.tasks: set[asyncio.Task[None]] = set()
        self.active = [Session(self, i, load.manners(i)) for i in range(load.active)]
        self.idle = [Session(self, load.active + i, "good") for i in range(load.idle)]

    async def connect(self) -> None:
        """Open all connections, without sending anything."""
        waiting = iter([*self.idle, *self.active])

        async def some() -> None:
            for session in waiting:
                await session.connect()
                await session.open.wait()

        together = asyncio.gather(*(some() for _ in range(CONNECTING)))
        try:
            await asyncio.wait_for(together, CONNECT_SECONDS)
        except asyncio.TimeoutError:
            wanted = len(self.idle) + len(self.active)
            raise RuntimeError(
                f"no {wanted} connections in {CONNECT_SECONDS:g} s: {dict(self.errors)}"
            ) from None

    async def store(self) -> None:
        """Send one message from every idle session, a few at a time."""
        for start in range(0, len(self.idle), CONNECTING):
            some = self.idle[start : start + CONNECTING]
            for session in some:
                session.send(now(), self.draws.chunk())
            late = now() + PATIENCE
            while any(session.pending for session in some):
                if now() > late:
                    raise RuntimeError(f"an idle session got no answer in {PATIENCE:g} s")
                await asyncio.sleep(0.002)

    async def drive(self, tell: Any) -> None:
        """Send for load.ramp + load.seconds, then wait for the last answers."""
        load = self.load
        self.messages = self.tokens = self.in_all = 0
        self.begin = now()
        self.first = self.begin + load.ramp
        self.end = self.first + load.seconds
        self.due = [(self.begin + self.draws.first(i), i) for i in range(load.active)]
        heapq.heapify(self.due)
        self._tick()
        while now() < self.end:
            await asyncio.sleep(min(1.0, max(0.0, self.end - now())))
            tell(at=round(now() - self.begin, 2), answered=self.in_all)
        late = now() + PATIENCE
        while now() < late and any(s.pending or s.unsent for s in self.active):
            await asyncio.sleep(0.01)
        for session in self.active:
            waiting = [*session.pending, *session.unsent]
            if waiting and session.manners != "dying":
                self.errors["not answered"] += len(waiting)
                for intended, _ in waiting:
                    self._record(session, intended)

    def _tick(self) -> None:
        """Send what is due; schedule a call for the next message."""
        due, time, thinking = self.due, now(), self.load.think is not None
        while due and due[0][0] <= time:
            intended, number = heapq.heappop(due)
            if intended < self.end:
                self.send(number, intended)
                if not thinking:
                    heapq.heappush(due, (intended + self.draws.gap(), number))
        if due:
            self.loop.call_later(max(0.0, due[0][0] - now()), self._tick)

    def send(self, number: int, intended: float) -> None:
        if self.first <= intended:
            self.late.record(now() - intended)
        self.active[number].send(intended, self.draws.chunk())

    def answered(self, session: Session, intended: float, chunk: Chunk, error: str) -> None:
        self.in_all += 1
        if error:
            self.errors[error] += 1
        if session.number >= self.load.active:
            return
        self._record(session, intended)
        if self.first <= intended and now() <= self.end:
            self.messages += 1
            self.tokens += len(chunk.tokens)
        if self.load.think is not None and now() < self.end:
            self._think(session.number)

    def _think(self, number: int) -> None:
        gap = self.draws.gap()
        if gap:
            self.loop.call_later(gap, self.send, number, now() + gap)
        else:
            self.send(number, now())

    def _record(self, session: Session, intended: float) -> None:
        if self.first <= intended:
            into = self.slow if session.manners == "slow" else self.latency
            into.record(now() - intended)

    def keep(self, what: Coroutine[Any, Any, None]) -> None:
        """Run it beside the load."""
        task = self.loop.create_task(what)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def gave_up(self, session: Session) -> None:
        """Ends the wait for answers. With `think`, a session that waited for one sends its next message; others
        have one scheduled, or are idle."""
        waited = bool(session.pending) and session.number < self.load.active
        if session.manners == "dying":
            self.abandoned += len(session.pending)
        else:
            self.errors["not answered"] += len(session.pending)
            for intended, _ in session.pending:
                self._record(session, intended)
        session.pending.clear()
        if waited and self.load.think is not None and now() < self.end:
            self._think(session.number)

    async def close(self) -> None:
        for session in [*self.active, *self.idle]:
            session.end()
        for task in [*self.tasks]:
            task.cancel()
        await asyncio.sleep(0)

    def result(self, cpu: float) -> dict[str, Any]:
        return {
            "messages": self.messages,
            "tokens": self.tokens,
            "in all": self.in_all,
            "abandoned": self.abandoned,
            "errors": dict(self.errors),
            "latency": self.latency.plain(),
            "slow": self.slow.plain(),
            "late": self.late.plain(),
            "cpu": cpu,
        }


async def check(target: Target, prefix: str, chunk: Chunk) -> list[float]:
    """Sends one message to a new session; returns the numbers in the answer."""
    run = Run(Load(1, 1.0), target, prefix + "c")
    (session,) = run.active
    await session.connect()
    await session.open.wait()
    session.send(now(), chunk)
    late = now() + PATIENCE
    while session.pending and now() < late:
        await asyncio.sleep(0.001)
    if session.talk is None or session.pending:
        raise RuntimeError(f"the first message was not answered: {dict(run.errors)}")
    found = session.talk.numbers(session.last) if not run.errors else []
    if run.errors:
        raise RuntimeError(f"the first message was not answered correctly: {session.last[:300]!r}")
    await run.close()
    return found


async def main() -> None:
    def tell(**facts: Any) -> None:
        print(json.dumps(facts), flush=True)

    def wait() -> None:
        """Waits for the parent, while no message is in flight."""
        if not sys.stdin.readline():
            raise SystemExit(1)

    asked = json.loads(sys.stdin.readline())
    target, load = Target(**asked["target"]), Load.of(asked["load"])
    if asked["check"]:
        tell(
            phase="checked",
            numbers=await check(target, asked["prefix"], Chunk(tuple(asked["check"]))),
        )
        wait()
    run = Run(load, target, asked["prefix"])
    await run.connect()
    tell(phase="connected")
    wait()
    await run.store()
    tell(phase="stored")
    wait()
    gc.collect()
    gc.freeze()
    cpu = time.process_time()
    await run.drive(tell)
    result = run.result(time.process_time() - cpu)
    await run.close()
    tell(result=result)


if __name__ == "__main__":
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    try:
        import uvloop
    except ModuleNotFoundError:
        asyncio.run(main())
    else:
        uvloop.run(main())
