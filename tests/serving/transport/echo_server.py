"""tsm-serve's connections with an application that returns every message, in the same event loop as its
client."""

from __future__ import annotations

import asyncio

import uvloop

from tsm.runtime.serving.server import bound
from tsm.runtime.serving.transport.garbage import Garbage
from tsm.runtime.serving.transport.limits import Limits
from tsm.runtime.serving.transport.uvicorn_server import make_server


async def answer_all(scope, receive, send):
    await receive()
    if scope["type"] == "lifespan":
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})
        return
    await send({"type": "websocket.accept"})
    while (message := await receive())["type"] == "websocket.receive":
        await send({**message, "type": "websocket.send"})


def serve(program, **limits):
    """Runs program(port), with the server and its client in one event loop."""

    async def main():
        listening = bound("127.0.0.1", 0)
        server = make_server(answer_all, Limits(**limits), Garbage())
        running = asyncio.ensure_future(server.serve(sockets=[listening]))
        try:
            await asyncio.wait_for(program(listening.getsockname()[1]), 60)
        finally:
            server.should_exit = True
            await running

    uvloop.run(main())


async def until_quiet(size):
    """Waits until size() has not changed for a while; returns it."""
    same, last = 0, size()
    while same < 40:
        await asyncio.sleep(0.005)
        same = same + 1 if size() == last else 0
        last = size()
    return last
