"""tsm-serve's WebSockets with an application that returns every message, in the same event loop as its
client."""

from __future__ import annotations

import asyncio

import uvicorn
import uvloop

from tsm.runtime.serving.transport import keepalive

PING, PONG = 0.1, 0.2  # seconds


async def answer_all(scope, receive, send):
    assert scope["type"] == "websocket"
    await receive()
    await send({"type": "websocket.accept"})
    while (message := await receive())["type"] == "websocket.receive":
        await send({**message, "type": "websocket.send"})


def serve(program, **settings):
    """Runs program(port, connections), with the server and its client in one event loop."""

    async def main():
        given = {"lifespan": "off", "log_config": None, "port": 0}
        given |= {"ws_ping_interval": PING, "ws_ping_timeout": PONG, **settings}
        config = uvicorn.Config(answer_all, ws=keepalive.make_protocol(), **given)
        server = uvicorn.Server(config)
        config.load()
        server.lifespan = config.lifespan_class(config)
        await server.startup()
        (port,) = [one.getsockname()[1] for s in server.servers for one in s.sockets]
        try:
            await asyncio.wait_for(program(port, server.server_state.connections), 60)
        finally:
            await server.shutdown()

    uvloop.run(main())
