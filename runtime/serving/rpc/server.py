"""The gRPC server beside the HTTP server: same service, limits, tokens and errors."""

from __future__ import annotations

import asyncio
import json
import time
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from ..service import Service
from ..transport.garbage import Garbage
from ..transport.problems import Problem
from .kserve import Calls
from .messages import INFERENCE, Messages

SERVICE, HEALTH = "inference.GRPCInferenceService", "grpc.health.v1.Health"
SERVING, NOT_SERVING, UNKNOWN = 1, 2, 3
LOOK = 0.2  # seconds between checks for a change in health status
MOST_WATCHES = 64
MOST_PEERS = 10_000  # addresses of clients that are remembered
LEFT = 499  # the status of a call that its client ended, in the log and the metrics
IDLE = 300  # seconds after which a connection without a call is closed
# HTTP status -> name of the gRPC status
CODES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    404: "NOT_FOUND",
    408: "DEADLINE_EXCEEDED",
    409: "FAILED_PRECONDITION",
    413: "INVALID_ARGUMENT",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
    507: "RESOURCE_EXHAUSTED",
}
Call = Callable[[Service, str, Any], Awaitable[Any]]


def package() -> Any:
    """The module grpc."""
    try:
        import google.protobuf  # noqa: F401
        import grpc.aio
    except ImportError as error:
        raise ModuleNotFoundError(
            f"{error.name} is missing: --grpc-port needs pip install 'timescale-models[grpc]'",
            name="grpc",
        ) from error
    return grpc


class RpcServer:
    """Call `start` in the event loop that will serve."""

    def __init__(self, service: Service, garbage: Garbage) -> None:
        self.service, self.grpc, self.messages = service, package(), Messages()
        self.garbage, self.peers = garbage, set[str]()
        self.watches = 0  # open Watch calls of the health service; they need no token and never end
        limits = service.limits
        self.server = self.grpc.aio.server(
            options=[
                ("grpc.max_receive_message_length", limits.body),
                ("grpc.max_metadata_size", limits.header),
                ("grpc.max_concurrent_streams", limits.queue),
                ("grpc.max_allowed_incoming_connections", limits.connections),
                ("grpc.max_connection_idle_ms", IDLE * 1000),
                ("grpc.server_handshake_timeout_ms", round(limits.seconds * 1000)),
                ("grpc.so_reuseport", 0),
            ],
            maximum_concurrent_rpcs=limits.connections,
        )
        self.server.add_generic_rpc_handlers((self._inference(), self._health()))

    async def start(self, host: str, port: int) -> int:
        """The port that it listens on."""
        name = f"[{host}]" if ":" in host else host
        try:
            bound: int = self.server.add_insecure_port(f"{name}:{port}")
        except RuntimeError as error:
            raise OSError(f"cannot listen on {name}:{port} for gRPC: {error}") from error
        await self.server.start()
        return bound

    async def stop(self, grace: float) -> None:
        await self.server.stop(grace)

    def _inference(self) -> Any:
        calls = Calls(self.messages)
        names = [name.removesuffix("Request") for name in INFERENCE if name.endswith("Request")]
        handlers = {name: self._handler(name, getattr(calls, name)) for name in names}
        return self.grpc.method_handlers_generic_handler(SERVICE, handlers)

    def _handler(self, name: str, call: Call) -> Any:
        kind = self.messages.of("inference", f"{name}Request")

        async def read_and_call(service: Service, user: str, data: bytes) -> Any:
            return await call(service, user, read(kind, data))

        async def handle(data: bytes, context: Any) -> Any:
            return await self._answer(name, read_and_call, data, context)

        return self.grpc.unary_unary_rpc_method_handler(
            handle, response_serializer=lambda message: message.SerializeToString()
        )

    def _note(self, peer: str) -> None:
        """Counts a connection as closed at its first call, since gRPC does not report when it ends."""
        if peer not in self.peers:
            if len(self.peers) >= MOST_PEERS:
                self.peers.clear()
            self.peers.add(peer)
            self.garbage.connection_closed(len(self.service.websockets))

    async def _answer(self, name: str, call: Call, data: bytes, context: Any) -> Any:
        service, begin, status = self.service, time.perf_counter(), 200
        user = ""
        self._note(context.peer())
        try:
            metadata = dict(context.invocation_metadata())
            user = service.user(str(metadata.get("authorization", "")))
            service.access.count(user)
            return await call(service, user, data)
        except Problem as problem:
            status = problem.status
            await self._abort(context, problem)
        except self.grpc.aio.AbortError:
            raise
        except asyncio.CancelledError:
            status = LEFT
            raise
        except Exception as error:  # a bug: logged, not shown to the client
            status = 500
            service.log("error", path=name, trace=traceback.format_exc(limit=20))
            await self._abort(
                context, Problem(500, f"internal server error: {type(error).__name__}")
            )
        finally:
            seconds = time.perf_counter() - begin
            service.metrics.answered(f"grpc {name}", status, seconds)
            if service.log.requests:
                facts = {"method": "gRPC", "path": name, "user": user, "status": status}
                service.log("request", **facts, ms=round(seconds * 1e3, 3))

    async def _abort(self, context: Any, problem: Problem) -> None:
        code = getattr(self.grpc.StatusCode, CODES.get(problem.status, "INTERNAL"))
        trailing = [("problem", json.dumps(problem.members))]
        if problem.retry_after is not None:
            trailing.append(("retry-after", str(problem.retry_after)))
        await context.abort(code, problem.detail, tuple(trailing))

    # ---- health, which needs no token

    def _health(self) -> Any:
        write = {"response_serializer": lambda message: message.SerializeToString()}
        handlers = {
            "Check": self.grpc.unary_unary_rpc_method_handler(self._check, **write),
            "Watch": self.grpc.unary_stream_rpc_method_handler(self._watch, **write),
        }
        return self.grpc.method_handlers_generic_handler(HEALTH, handlers)

    async def _service_of(self, data: bytes, context: Any) -> str:
        """The service that a health check names."""
        try:
            kind = self.messages.of("grpc.health.v1", "HealthCheckRequest")
            name: str = read(kind, data).service
        except Problem as problem:
            await self._abort(context, problem)
            raise
        return name

    async def _status(self, name: str) -> int:
        if name not in ("", SERVICE) and name not in self.service.models.engines:
            return UNKNOWN
        return SERVING if await self.service.unready() is None else NOT_SERVING

    async def _check(self, data: bytes, context: Any) -> Any:
        self._note(context.peer())
        name = await self._service_of(data, context)
        if (status := await self._status(name)) == UNKNOWN:
            await context.abort(self.grpc.StatusCode.NOT_FOUND, f"no service {name:.80}")
        return self.messages.of("grpc.health.v1", "HealthCheckResponse")(status=status)

    async def _watch(self, data: bytes, context: Any) -> AsyncIterator[Any]:
        name = await self._service_of(data, context)
        if self.watches >= MOST_WATCHES:
            detail = f"there are {MOST_WATCHES} watches; accepted: Check"
            await context.abort(self.grpc.StatusCode.RESOURCE_EXHAUSTED, detail)
        self.watches, last_status = self.watches + 1, 0
        try:
            while True:
                if (status := await self._status(name)) != last_status:
                    last_status = status
                    yield self.messages.of("grpc.health.v1", "HealthCheckResponse")(status=status)
                await asyncio.sleep(LOOK)
        finally:
            self.watches -= 1


def read(kind: Any, data: bytes) -> Any:
    """The message; if gRPC itself read it, one that is damaged would be refused with the code UNKNOWN."""
    from google.protobuf.message import DecodeError

    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise Problem(400, f"the message is not a {kind.DESCRIPTOR.name}") from error
