"""The page at /: static files, read once, and data for the page that no other route provides."""

from __future__ import annotations

import asyncio
import hashlib
import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ... import TsmError
from ...timescales import timescales
from ..service import Route, Service
from ..streams.example import example as example_of
from ..streams.steps import bounded, token_list
from ..transport.fields import Fields
from ..transport.http import Answer, Headers, Request
from ..transport.limits import Limits
from ..transport.off_loop import off_loop
from ..transport.problems import Problem, of_core

FOLDER = Path(__file__).parent.parent / "page"
KINDS = {
    ".html": b"text/html; charset=utf-8",
    ".css": b"text/css; charset=utf-8",
    ".js": b"text/javascript; charset=utf-8",
    ".svg": b"image/svg+xml",
}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src {};"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS: Headers = [
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
    policy = POLICY.format(" ".join(["'self'", *map(_source, service.peers)]))
    headers = [*HEADERS, (b"content-security-policy", policy.encode()), (b"etag", etag.encode())]
    if request.header("if-none-match") == etag:
        return Answer(status=304, headers=headers)
    return Answer(body, kind=KINDS[Path(name).suffix], headers=headers)


def _source(origin: str) -> str:
    """A peer in the policy, which has no syntax for IPv6 addresses: any host, at the peer's port."""
    return re.sub(r"\[.*\]", "*", origin)


async def model_timescales(service: Service, request: Request, name: str) -> Answer:
    """How slowly each unit of a model forgets."""
    model = service.models.newest(name).model
    return Answer({"layers": await asyncio.to_thread(timescales, model)})


async def example(service: Service, request: Request, name: str) -> Answer:
    """What the page shows before anything is typed; computed once, even if the first client leaves."""
    engine = service.models.newest(name)
    with service.work():
        if engine.example is None or (engine.example.done() and engine.example.exception()):
            computed = asyncio.to_thread(example_of, engine.model, service.limits)
            engine.example = asyncio.ensure_future(computed)
        try:
            return Answer(await asyncio.shield(engine.example))
        except ValueError as error:  # of the core, or of JSON
            raise Problem(409, f"model {name} has no example: {error}") from error


async def peers(service: Service, request: Request) -> Answer:
    """Servers with the same store, to which the page can move a session."""
    return Answer({"peers": [*service.peers]})


async def decode(service: Service, request: Request, name: str) -> Answer:
    """The text of tokens that were generated in parts, which may differ from the joined texts of the parts."""
    tokens = await request.parsed(partial(_tokens, service.limits))
    model = service.models.newest(name).model
    if model.tokenizer is None:
        raise Problem(400, f"model {name} has no dictionary; accepted: a model of text")
    try:
        return Answer({"text": await off_loop(len(tokens), model.decode, tokens)})
    except TsmError as error:
        raise of_core(error) from error


def _tokens(limits: Limits, values: dict[str, Any]) -> NDArray[np.int64]:
    fields = Fields(values)
    tokens = bounded(token_list("tokens", fields.take("tokens"), limits), "tokens", limits)
    fields.end()
    return tokens


OPEN = {"page"}  # routes that need no token, since the page itself asks the user for the token
ROUTES: list[Route] = [
    ("GET", "/", "page", index),
    ("GET", "/page/([^/]+)", "page", file),
    ("GET", "/v1/peers", "peers", peers),
    ("GET", "/v1/models/([^/]+)/timescales", "timescales", model_timescales),
    ("GET", "/v1/models/([^/]+)/example", "example", example),
    ("POST", "/v1/models/([^/]+)/decode", "decode", decode),
]
