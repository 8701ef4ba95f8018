"""The native API: /v1/sessions/ID and its operations."""

from __future__ import annotations

import json
import re
from functools import partial
from typing import Any

from ..service import Route, Service
from ..store.base import Row
from ..streams.steps import LONGEST_ID, Step, identified, parse
from ..streams.text import Telling
from ..transport.fields import Fields, shown, wrong
from ..transport.http import Answer, Request
from ..transport.limits import Limits
from ..transport.off_loop import off_loop, written
from ..transport.problems import Problem

PAGE, MOST_OF_A_PAGE = 100, 1000
ETAG = re.compile(r'(?:W/)?"([0-9]{1,18})"')


def _facts(name: str, row: Row) -> dict[str, Any]:
    return {
        "id": name,
        "model": row.model,
        "weights": row.fingerprint,
        "level": row.level,
        "position": row.position,
        "version": row.version,
    }


def _etag(row: Row) -> tuple[bytes, bytes]:
    return b"etag", b'"%d"' % row.version


async def feed(service: Service, request: Request, name: str, action: str) -> Answer:
    step = await request.parsed(partial(parse, action, limits=service.limits))
    return Answer(await service.step(request.user, name, step))


async def generate(service: Service, request: Request, name: str) -> Answer | None:
    stream, step = await request.parsed(partial(_generation, service.limits))
    if not stream and request.header("accept") != "text/event-stream":
        return Answer(await service.step(request.user, name, step))
    events = request.events()
    telling = Telling(lambda part: events.send(json.dumps(part).encode()))
    try:
        answer = await service.step(request.user, name, step, telling)
        await events.send(answer, "done")
    except Problem as problem:
        if not events.started:
            raise
        await events.send(problem.body(), "error")
    finally:
        await events.end()
    return None


def _generation(limits: Limits, values: dict[str, Any]) -> tuple[bool, Step]:
    stream = values.pop("stream", False)
    if not isinstance(stream, bool):
        raise wrong("stream", stream, "true or false")
    return stream, parse("generate", values, limits, known=["stream"])


async def page(service: Service, request: Request) -> Answer:
    """The user's sessions, sorted by id."""
    limit, after = request.query("limit") or str(PAGE), request.query("after") or ""
    if not re.fullmatch("[0-9]{1,9}", limit) or not 1 <= int(limit) <= MOST_OF_A_PAGE:
        raise Problem(400, f"limit = {shown(limit)}; accepted: 1 to {MOST_OF_A_PAGE}")
    most = int(limit)
    found = await service.sessions.page(request.user, after, most + 1)
    answer: dict[str, Any] = {"sessions": [_facts(name, row) for name, row in found[:most]]}
    if len(found) > most:
        answer["next"] = found[most - 1][0]
    return Answer(answer)


async def look(service: Service, request: Request, name: str) -> Answer:
    row = await service.sessions.look(request.user, name)
    return Answer(_facts(name, row), headers=[_etag(row)])


async def remove(service: Service, request: Request, name: str) -> Answer:
    with service.work():
        await service.sessions.remove(request.user, name)
    return Answer(status=204)


async def get_state(service: Service, request: Request, name: str) -> Answer:
    row = await service.sessions.look(request.user, name)
    headers = [_etag(row), (b"tsm-position", b"%d" % row.position)]
    if request.header("if-none-match") == f'"{row.version}"':
        return Answer(status=304, headers=headers)
    return Answer(row.blob, kind=b"application/octet-stream", headers=headers)


async def put_state(service: Service, request: Request, name: str) -> Answer:
    version, match = None, request.header("if-match")
    if match and match != "*":
        found = ETAG.fullmatch(match)
        if found is None:
            raise Problem(400, f'If-Match {match!r:.80}; accepted: an ETag, such as "7", or *')
        version = int(found[1])
    blob, model = await request.body(), request.query("model")
    with service.work():
        row = await service.sessions.replace_state(
            request.user, name, lambda engine: blob, model, version, create=not match
        )
    return Answer(_facts(name, row), headers=[_etag(row)])


async def reset(service: Service, request: Request, name: str) -> Answer:
    Fields(await request.json()).end()
    with service.work():
        row = await service.sessions.replace_state(
            request.user, name, lambda engine: engine.fresh()
        )
    return Answer(_facts(name, row), headers=[_etag(row)])


async def restore(service: Service, request: Request, name: str) -> Answer:
    """Go back to a state in the history."""
    fields = Fields(await request.json())
    version = fields.integer("version", None, 1, 2**62)
    fields.end()
    if version is None:
        raise wrong("version", None, "one of the session's history")
    with service.work():
        past = await service.sessions.past(request.user, name, version)
        row = await service.sessions.replace_state(request.user, name, lambda engine: past.blob)
    return Answer(_facts(name, row), headers=[_etag(row)])


async def fork(service: Service, request: Request, name: str) -> Answer:
    fields = Fields(await request.json())
    to = fields.text("to", None, LONGEST_ID)
    request_id = fields.text("request_id", "", LONGEST_ID)
    fields.end()
    if to is None:
        raise wrong("to", None, "the id of a new session")
    request_id = identified(request_id, ["fork", name, to])
    with service.work():
        row = await service.sessions.fork(request.user, name, to, request_id)
    return Answer(_facts(to, row), status=201, headers=[_etag(row)])


async def history(service: Service, request: Request, name: str) -> Answer:
    states = await service.sessions.history(request.user, name)
    return Answer({"states": [{"version": p.version, "position": p.position} for p in states]})


async def memory(service: Service, request: Request, name: str) -> Answer:
    """The hidden states of all layers."""
    row = await service.sessions.look(request.user, name)
    engine = service.models.of(row.model, row.fingerprint)
    if engine is None:
        raise Problem(409, f"the session's state is from other weights of model {row.model}")
    shown = await off_loop(len(row.blob), lambda: written(engine.memory(row.blob)))
    return Answer(shown, headers=[_etag(row)])


SESSION = r"/v1/sessions/([^/]+)"
ROUTES: list[Route] = [
    ("GET", "/v1/sessions", "sessions", page),
    ("POST", rf"{SESSION}/(feed|score)", "step", feed),
    ("POST", rf"{SESSION}/generate", "generate", generate),
    ("GET", SESSION, "session", look),
    ("DELETE", SESSION, "session", remove),
    ("GET", rf"{SESSION}/state", "state", get_state),
    ("PUT", rf"{SESSION}/state", "state", put_state),
    ("POST", rf"{SESSION}/reset", "reset", reset),
    ("POST", rf"{SESSION}/restore", "restore", restore),
    ("POST", rf"{SESSION}/fork", "fork", fork),
    ("GET", rf"{SESSION}/history", "history", history),
    ("GET", rf"{SESSION}/memory", "memory", memory),
]
