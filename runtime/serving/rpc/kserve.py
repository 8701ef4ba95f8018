"""The calls of the open inference protocol: a request is converted to the JSON object that the HTTP route
reads."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..routes import kserve
from ..service import Service
from ..transport.off_loop import off_loop
from ..transport.problems import Problem
from .messages import Messages

CONTENTS = {
    "INT64": ("int64_contents", "<i8"),
    "FP32": ("fp32_contents", "<f4"),
    "BYTES": ("bytes_contents", ""),
}
LENGTH = 4  # bytes of the length prefix of each raw BYTES element


class Calls:
    """Each method takes the service, the user and a message, and returns a message."""

    def __init__(self, messages: Messages) -> None:
        self.messages = messages

    def _new(self, kind: str, /, **fields: Any) -> Any:
        return self.messages.of("inference", kind)(**fields)

    async def ServerLive(self, service: Service, user: str, request: Any) -> Any:
        return self._new("ServerLiveResponse", live=True)

    async def ServerReady(self, service: Service, user: str, request: Any) -> Any:
        return self._new("ServerReadyResponse", ready=await service.unready() is None)

    async def ModelReady(self, service: Service, user: str, request: Any) -> Any:
        engines = service.models.engines.get(request.name, [])
        known = any(request.version in ("", engine.model.checksum) for engine in engines)
        ready = known and await service.unready() is None
        return self._new("ModelReadyResponse", ready=ready)

    async def ServerMetadata(self, service: Service, user: str, request: Any) -> Any:
        return self._new("ServerMetadataResponse", **kserve.server_facts())

    async def ModelMetadata(self, service: Service, user: str, request: Any) -> Any:
        facts = kserve.model_facts(service, request.name, request.version)
        return self._new("ModelMetadataResponse", **facts)

    async def ModelInfer(self, service: Service, user: str, request: Any) -> Any:
        name, version = request.model_name, request.model_version
        inference = await off_loop(
            request.ByteSize(),
            lambda: kserve.parse_inference(service, name, version, _values(request)),
        )
        answer = await kserve.run(service, user, inference)
        logits = answer["logits"]
        output: dict[str, Any] = {"name": "logits", "datatype": "FP32", "shape": [1, len(logits)]}
        raw = []
        if request.raw_input_contents:  # the answer has the same form
            raw = [np.asarray(logits, "<f4").tobytes()]
        else:
            output["contents"] = {"fp32_contents": logits}
        return self._new(
            "ModelInferResponse",
            model_name=name,
            model_version=answer["version"],
            id=request.id,
            parameters={k: {"int64_param": v} for k, v in kserve.parameters_of(answer).items()},
            outputs=[output],
            raw_output_contents=raw,
        )


def _values(request: Any) -> dict[str, Any]:
    """The JSON object of a request."""
    raw = list(request.raw_input_contents)
    if raw and len(raw) != len(request.inputs):
        raise Problem(
            400,
            f"raw_input_contents has {len(raw)} parts; accepted: {len(request.inputs)}, or none",
        )
    inputs = [
        {
            "name": one.name,
            "datatype": one.datatype,
            "shape": list(one.shape),
            "data": _raw(one, raw[i]) if raw else _given(one),
        }
        for i, one in enumerate(request.inputs)
    ]
    parameters = {key: _parameter(value) for key, value in request.parameters.items()}
    return {"id": request.id or None, "parameters": parameters, "inputs": inputs}


def _parameter(value: Any) -> Any:
    chosen = value.WhichOneof("parameter_choice")
    return None if chosen is None else getattr(value, chosen)


def _given(tensor: Any) -> list[Any] | None:
    field, _ = CONTENTS.get(tensor.datatype, (None, ""))
    if field is None:
        return None  # the datatype is refused
    data = list(getattr(tensor.contents, field))
    return [_text(one) for one in data] if tensor.datatype == "BYTES" else data


def _raw(tensor: Any, data: bytes) -> list[Any] | None:
    field, kind = CONTENTS.get(tensor.datatype, (None, ""))
    if field is None:
        return None
    if tensor.datatype == "BYTES":
        if int.from_bytes(data[:LENGTH], "little") != len(data) - LENGTH:
            raise Problem(400, f"raw {tensor.name:.80}; accepted: one text after its length")
        return [_text(data[LENGTH:])]
    if len(data) % np.dtype(kind).itemsize:
        raise Problem(
            400, f"raw {tensor.name:.80} has {len(data)} bytes; accepted: complete elements"
        )
    numbers: list[Any] = np.frombuffer(data, kind).tolist()
    return numbers


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise Problem(400, f"text is not UTF-8: {error.reason} at {error.start}") from error
