"""The open inference protocol (KServe v2) over HTTP: feed and classify, with `sequence_id` as a session.

Inputs: `tokens` INT64 [T] or [1, T] (or `text` BYTES [1]), `values` FP32 [T, I] or [1, T, I], `dt` FP32 [T].
Output: `logits` FP32 [1, outputs], after the last step. Without a `sequence_id`, the stream only lasts for the
request. `sequence_start` restarts the session, and `sequence_end` removes it afterwards. A request takes effect
completely or not at all. The parameters `request_id` and `expected_position` are those of the native API. A
model version is the checksum of its file. If none is given, the newest is used; an existing session keeps its
own.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from functools import partial
from typing import Any

from ..service import Route, Service
from ..streams.engine import Engine
from ..streams.steps import LONGEST_ID, Step, identified, parse
from ..transport.fields import Fields, wrong
from ..transport.http import Answer, Request
from ..transport.off_loop import LARGE, off_loop, written

MOST_DIMENSIONS = 3
TYPES = {"tokens": "INT64", "values": "FP32", "dt": "FP32", "text": "BYTES"}


def server_facts() -> dict[str, Any]:
    from ... import _core

    return {"name": "tsm", "version": _core.__version__, "extensions": ["sequence"]}


async def server(service: Service, request: Request) -> Answer:
    return Answer(server_facts())


async def live(service: Service, request: Request) -> Answer:
    return Answer({"live": True})


async def ready(
    service: Service, request: Request, name: str = "", version: str | None = None
) -> Answer:
    if name:
        service.models.version(name, version)
    if (problem := await service.unready()) is not None:
        raise problem
    return Answer({"ready": True, **({"name": name} if name else {})})


def model_facts(service: Service, name: str, version: str | None) -> dict[str, Any]:
    engine = service.models.version(name, version)
    model = engine.model
    takes = (
        {"name": "tokens", "datatype": "INT64", "shape": [-1]}
        if model.takes_tokens
        else {"name": "values", "datatype": "FP32", "shape": [-1, model.input_size]}
    )
    return {
        "name": name,
        "versions": [one.model.checksum for one in service.models.engines[engine.name]],
        "platform": "tsm",
        "inputs": [takes],
        "outputs": [{"name": "logits", "datatype": "FP32", "shape": [1, model.output_size]}],
    }


async def metadata(service: Service, request: Request, name: str, version: str | None) -> Answer:
    return Answer(model_facts(service, name, version))


@dataclass(frozen=True)
class Inference:
    """A request that came over HTTP or gRPC."""

    id: str | None
    engine: Engine
    step: Step
    sequence: str | None  # a session


def parse_inference(
    service: Service, name: str, version: str | None, values: dict[str, Any]
) -> Inference:
    """Parses the JSON object of a request."""
    engine = service.models.version(name, version)
    fields = Fields(values)
    answer_id = fields.text("id", None, LONGEST_ID)
    parameters = fields.take("parameters", {})
    if not isinstance(parameters, dict):
        raise wrong("parameters", parameters, "an object")
    sequence = Fields(parameters)
    key = sequence.take("sequence_id")
    if type(key) not in (int, str, type(None)):
        raise wrong("sequence_id", key, "an integer or a text")
    start, end = sequence.flag("sequence_start"), sequence.flag("sequence_end")
    given = {name: sequence.take(name) for name in ("request_id", "expected_position")}
    sequence.end()
    given |= _inputs(fields.take("inputs"), engine)
    fields.take("outputs")
    fields.end()
    step = parse("feed", {**given, "logits": "last", "model": engine.name}, service.limits)
    request_id = identified(given["request_id"], [given, start, end])
    step = step._replace(request_id=request_id, start=start, end=end, version=version or "")
    return Inference(answer_id, engine, step, None if key in (None, 0, "") else str(key))


async def infer(service: Service, request: Request, name: str, version: str | None) -> Answer:
    inference = await request.parsed(partial(parse_inference, service, name, version))
    answer = await run(service, request.user, inference)
    logits = answer["logits"]
    output = {"name": "logits", "datatype": "FP32", "shape": [1, len(logits)], "data": logits}
    head = {"model_name": name, "model_version": answer["version"]}
    head |= {"id": inference.id} if inference.id else {}
    shown = {**head, "parameters": parameters_of(answer), "outputs": [output]}
    return Answer(shown if len(logits) <= LARGE else await off_loop(len(logits), written, shown))


def parameters_of(answer: dict[str, Any]) -> dict[str, int]:
    names = ("position", "durable_position")
    return {name: answer[name] for name in names if name in answer}


async def run(service: Service, user: str, inference: Inference) -> dict[str, Any]:
    """The answer to the step: the logits, the version and, for a sequence, the position."""
    if inference.sequence is not None:
        text = await service.step(user, inference.sequence, inference.step)
        answer: dict[str, Any] = await off_loop(len(text), json.loads, text)
        return answer
    engine, key = inference.engine, f"~{secrets.token_hex(12)}"
    with service.work():
        try:
            done = await engine.run(key, inference.step, 0, user, service.limits.seconds)
        finally:
            await engine.drop(key)
    return {"logits": done.event.logits.tolist(), "version": engine.model.checksum}


def _inputs(given: Any, engine: Engine) -> dict[str, Any]:
    """Converts named tensors to the fields of a feed."""
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
        if name == "values" and engine.model.takes_tokens:
            raise wrong("name", name, "tokens or text, which the model takes")
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


MODEL = r"/v2/models/([^/]+)(?:/versions/([^/]+))?"
ROUTES: list[Route] = [
    ("GET", "/v2", "kserve", server),
    ("GET", "/v2/health/live", "kserve", live),
    ("GET", "/v2/health/ready", "kserve", ready),
    ("GET", MODEL, "kserve", metadata),
    ("GET", rf"{MODEL}/ready", "kserve", ready),
    ("POST", rf"{MODEL}/infer", "infer", infer),
]
