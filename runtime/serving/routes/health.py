"""Health checks (is the server alive, does it accept work) and metrics."""

from __future__ import annotations

from ..service import Route, Service
from ..transport.http import Answer, Request


async def live(service: Service, request: Request) -> Answer:
    return Answer({"status": "ok"})


async def ready(service: Service, request: Request) -> Answer:
    if (problem := await service.unready()) is not None:
        raise problem
    return Answer({"status": "ready"})


async def metrics(service: Service, request: Request) -> Answer:
    return Answer(service.metrics.page(), kind=b"text/plain; version=0.0.4; charset=utf-8")


OPEN = {"healthz", "readyz"}  # routes that need no token
ROUTES: list[Route] = [
    ("GET", "/healthz", "healthz", live),
    ("GET", "/readyz", "readyz", ready),
    ("GET", "/metrics", "metrics", metrics),
]
