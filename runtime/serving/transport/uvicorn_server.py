"""uvicorn, which parses HTTP and WebSockets and runs the application, behind our own connections."""

from __future__ import annotations

from functools import partial
from typing import Any

from .connection import Connection, connected
from .garbage import Garbage
from .limits import Limits


def make_server(app: Any, limits: Limits, garbage: Garbage) -> Any:
    import uvicorn
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

    opened: set[Connection] = set()
    http: Any = partial(Connection, HttpToolsProtocol, limits, garbage, opened)
    config = uvicorn.Config(
        connected(app),
        interface="asgi3",
        http=http,
        ws="websockets-sansio",
        ws_ping_interval=None,  # a Connection pings
        ws_max_size=limits.body,
        ws_per_message_deflate=False,
        lifespan="on",
        log_config=None,
        access_log=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=1,
        server_header=False,
        proxy_headers=False,
    )
    return uvicorn.Server(config)
