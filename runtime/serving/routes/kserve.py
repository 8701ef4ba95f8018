"""The open inference protocol (KServe v2) over HTTP: feed and classify, with `sequence_id` as a session.

Inputs: `tokens` INT64 [T] or [1, T] (or `text` BYTES [1]), `values` FP32 [T, I] or [1, T, I], `dt` FP32 [T].
Output: `logits` FP32 [1, outputs], after the last step. Without a `sequence_id` the stream ends with the
request; `sequence_start` begins the session anew, `sequence_end` removes it afterwards.
"""

from __future__ import annotations

import json
import secrets
from typing import Any

from ..service import Route, Service
from ..streams.engine import Engine
from ..streams.steps import LONGEST_ID, Step, parse
from ..transport.fields import Fields, wrong
from ..transport.http import Answer, Request
from ..transport.problems import Problem

MOST_DIMENSIONS = 3
TYPES = {"tokens": "INT64", "values": "FP32", "dt": "FP32", "text": "BYTES"}


async def server(service: Service, request: Request) -> Answer:
    from ... import _core

    return Answer({"name": "tsm", "version": _core.__version__, "extensions": ["sequence"]})


async def live(service: Service, request: Request) -> Answer:
    return Answer({"live": True})


async def ready(service: Service, request: Request, name: str = "") -> Answer:
    if name:
        service.models.newest(name)
    if service.draining:
        raise Problem(503, "the server is going down", retry_after=1)
    return Answer({"ready": True, **({"name": name} if name else {})})


async def metadata(service: Service, request: Request, name: str) -> Answer:
    engine = service.models.newest(name)
    model = engine.model
    takes = (
        {"name": "tokens", "datatype": "INT64", "shape": [-1]}
        if model.takes_tokens
        else {"name": "values", "datatype": "FP32", "shape": [-1, model.input_size]}
    )
    return Answer(
        {
            "name": name,
            "versions": [one.model.checksum for one in service.models.engines[name]],
            "platform": "tsm",
            "inputs": [takes],
            "outputs": [{"name": "logits", "datatype": "FP32", "shape": [1, model.output_size]}],
        }
    )


async def infer(service: Service, request: Request, name: str) -> Answer:
    engine = service.models.newest(name)
    fields = Fields(await request.json())
    answer_id = fields.text("id", None, LONGEST_ID)
    parameters = fields.take("parameters", {})
    if not isinstance(parameters, dict):
        raise wrong("parameters", parameters, "an object")
    sequence = Fields(parameters)
    key = sequence.take("sequence_id")
    if type(key) not in (int, str, type(None)):
        raise wrong("sequence_id", key, "an integer or a text")
    start, end = sequence.flag("sequence_start"), sequence.flag("sequence_end")
    sequence.end()
    values = _inputs(fields.take("inputs"), engine)
    fields.take("outputs")
    fields.end()
    step = parse("feed", {**values, "logits": "last", "model": name}, service.limits)
    logits = await _logits(service, request.user, engine, step, key, start, end)
    output = {"name": "logits", "datatype": "FP32", "shape": [1, len(logits)], "data": logits}
    head = {"model_name": name, "model_version": engine.model.checksum}
    return Answer({**head, **({"id": answer_id} if answer_id else {}), "outputs": [output]})


async def _logits(
    service: Service,
    user: str,
    engine: Engine,
    step: Step,
    sequence: int | str | None,
    start: bool,
    end: bool,
) -> list[float]:
    if sequence in (None, 0, ""):  # 0 is "none" in the protocol
        key = f"~{secrets.token_hex(12)}"
        with service.work():
            try:
                done = await engine.run(key, step, 0, user, service.limits.seconds)
            finally:
                await engine.drop(key)
        found: list[float] = done.event.logits.tolist()
        return found
    name, sessions = str(sequence), service.sessions
    with service.work():
        if start:
            await sessions.replace_state(
                user, name, lambda engine: engine.fresh(), step.model, create=True
            )
        answer = json.loads(await sessions.step(user, name, step))
        if end:
            await sessions.remove(user, name)
    found = answer["logits"]
    return found


def _inputs(given: Any, engine: Engine) -> dict[str, Any]:
    """Named tensors as the fields of a feed."""
    if not isinstance(given, list) or not 1 <= len(given) <= len(TYPES):
        raise wrong("inputs", given, f"a list of tensors: {', '.join(TYPES)}")
    found: dict[str, Any] = {}
    for one in given:
        if not isinstance(one, dict):
            raise wrong("inputs", one, "objects with name, datatype, shape and data")
        fields = Fields(one)
        name = fields.choice("name", None, *TYPES)
        if name is None or name in found:
            raise wrong("name", name, f"each once of {', '.join(TYPES)}")
        if (kind := fields.take("datatype")) != TYPES[name]:
            raise wrong(f"datatype of {name}", kind, TYPES[name])
        shape, data = fields.take("shape"), fields.take("data")
        fields.take("parameters")
        fields.end()
        found[name] = _tensor(name, shape, data, engine)
    return found


def _tensor(name: str, shape: Any, data: Any, engine: Engine) -> Any:
    if not isinstance(data, list) or not isinstance(shape, list):
        raise wrong(f"data of {name}", data, "a list, with a shape")
    if name == "text":
        if len(data) != 1:
            raise wrong("data of text", data, "one text")
        return data[0]
    if len(shape) > MOST_DIMENSIONS:
        raise wrong(f"shape of {name}", shape, f"at most {MOST_DIMENSIONS} dimensions")
    flat = data
    for _ in shape[1:]:  # nested data is accepted
        if flat and all(isinstance(row, list) for row in flat):
            flat = [x for row in flat for x in row]
    size = 1
    for dimension in shape:
        if type(dimension) is not int or dimension < 0:
            raise wrong(f"shape of {name}", shape, "integers")
        size *= dimension
    if size != len(flat):
        raise wrong(f"shape of {name}", shape, f"one of {len(flat)} numbers")
    width = engine.model.input_size
    if name == "values":
        return [flat[i : i + width] for i in range(0, len(flat), width)]
    return flat


MODEL = r"/v2/models/([^/]+)(?:/versions/[^/]+)?"
ROUTES: list[Route] = [
    ("GET", "/v2", "kserve", server),
    ("GET", "/v2/health/live", "kserve", live),
    ("GET", "/v2/health/ready", "kserve", ready),
    ("GET", MODEL, "kserve", metadata),
    ("GET", rf"{MODEL}/ready", "kserve", ready),
    ("POST", rf"{MODEL}/infer", "infer", infer),
]
