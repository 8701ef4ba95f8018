"""Servers of the usual kinds to compare with tsm-serve: the same front end (uvicorn, WebSockets), but streams
only in memory.

    python -m tsm.benchmarks.load.rival_server per-request|polling FILE.tsm

`per-request` calls Stream.score for every message. `polling` checks every 10 ms which streams have input and
feeds them as one batch, as the WebSocket server of sherpa-onnx does (its batches are at most 5 by default, here
they are unbounded). Neither stores, checks or limits anything.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import numpy as np

from ...runtime import Model, Stream
from ...runtime.serving.server import allow_files, bound
from ...runtime.serving.transport.garbage import Garbage
from ...runtime.serving.transport.limits import Limits
from ...runtime.serving.transport.uvicorn_server import make_server

INTERVAL = 0.01  # seconds


class PerRequest:
    def __init__(self, model: Model) -> None:
        self.model = model

    async def score(self, stream: Stream, tokens: np.ndarray) -> np.ndarray:
        return stream.score(tokens)


class Polling:
    def __init__(self, model: Model) -> None:
        self.model = model
        self.ready: list[tuple[Stream, np.ndarray, asyncio.Future[np.ndarray]]] = []
        self.task: asyncio.Task[None] | None = None

    async def score(self, stream: Stream, tokens: np.ndarray) -> np.ndarray:
        if self.task is None:
            self.task = asyncio.ensure_future(self.poll())
        future: asyncio.Future[np.ndarray] = asyncio.get_running_loop().create_future()
        self.ready.append((stream, tokens, future))
        return await future

    async def poll(self) -> None:
        while True:
            await asyncio.sleep(INTERVAL)
            ready, self.ready = self.ready, []
            if ready:
                streams, chunks, futures = zip(*ready, strict=True)
                found = self.model.feed_many(streams, chunks, log_probs=True)
                for future, log_probs in zip(futures, found, strict=True):
                    if not future.done():
                        future.set_result(log_probs)


KINDS: dict[str, type[PerRequest] | type[Polling]] = {"per-request": PerRequest, "polling": Polling}


class App:
    """`/v1/sessions/ID/stream` as in tsm-serve, but it only scores `tokens`."""

    def __init__(self, kind: str, model: Model) -> None:
        self.model, self.kind = model, KINDS[kind](model)
        self.streams: dict[str, tuple[Stream, asyncio.Lock]] = {}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await receive()
            Garbage().begin()
            await send({"type": "lifespan.startup.complete"})
            await receive()
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.accept"})
            await self.messages(scope["path"], receive, send)

    async def messages(self, name: str, receive: Any, send: Any) -> None:
        if name not in self.streams:
            self.streams[name] = self.model.create_stream(), asyncio.Lock()
        stream, turn = self.streams[name]
        while (message := await receive())["type"] == "websocket.receive":
            tokens = np.array(json.loads(message["text"])["tokens"], np.int64)
            async with turn:  # a message from before a reconnect may still be in progress
                log_probs = await self.kind.score(stream, tokens)
            answer = {"position": stream.position, "log_probs": log_probs.tolist()}
            await send({"type": "websocket.send", "text": json.dumps(answer)})


def main(kind: str, path: str) -> None:
    limits = Limits()
    allow_files(limits.connections)
    listening = bound("127.0.0.1", 0)
    print(f"serving on http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
    make_server(App(kind, Model.load(path)), limits, Garbage()).run(sockets=[listening])


if __name__ == "__main__":
    main(*sys.argv[1:])
