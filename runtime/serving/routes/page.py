"""The page at /: static files, read once, and facts about a model that no other route gives."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path

from ...timescales import timescales
from ..service import Route, Service
from ..transport.http import Answer, Headers, Request
from ..transport.problems import Problem

FOLDER = Path(__file__).parent.parent / "page"
KINDS = {
    ".html": b"text/html; charset=utf-8",
    ".css": b"text/css; charset=utf-8",
    ".js": b"text/javascript; charset=utf-8",
    ".svg": b"image/svg+xml",
}
POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
    b" base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS: Headers = [
    (b"content-security-policy", POLICY),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cache-control", b"no-cache"),
]
FILES = {path.name: path.read_bytes() for path in FOLDER.iterdir() if path.suffix in KINDS}


async def index(service: Service, request: Request) -> Answer:
    return await file(service, request, "index.html")


async def file(service: Service, request: Request, name: str) -> Answer:
    body = FILES.get(name)
    if body is None:
        raise Problem(404, f"the page has no file {name!r:.80}")
    etag = '"' + hashlib.sha256(body).hexdigest()[:16] + '"'
    headers = [*HEADERS, (b"etag", etag.encode())]
    if request.header("if-none-match") == etag:
        return Answer(status=304, headers=headers)
    return Answer(body, kind=KINDS[Path(name).suffix], headers=headers)


async def model_timescales(service: Service, request: Request, name: str) -> Answer:
    """How slowly each unit of a model forgets."""
    model = service.models.newest(name).model
    return Answer({"layers": await asyncio.to_thread(timescales, model)})


OPEN = {"page"}  # routes that need no token: the page asks the user for it
ROUTES: list[Route] = [
    ("GET", "/", "page", index),
    ("GET", "/page/([^/]+)", "page", file),
    ("GET", "/v1/models/([^/]+)/timescales", "timescales", model_timescales),
]
