"""config.pbtxt of the two models that repository.py writes: a sequence of requests is a stream.

Triton sends the requests of a sequence, identified by their correlation id, to one instance of the model, and
batches those of different sequences ("oldest": the longest waiting first). START, END, READY and CORRID reach
the model as inputs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..common.facts import state_layout, takes_dt

if TYPE_CHECKING:
    from ...plugin.models import SequenceModel

IDLE_SECONDS = 600
"""A sequence without a request for this long is over. Triton's default of 1 s is too short for typing."""
MAX_BATCH = 64
MAX_SEQUENCES = 1024
"""Sequences that one instance keeps open at a time; further ones wait."""
QUEUE_MICROSECONDS = 200
"""How long a request may wait to be batched with others."""

FLAGS = ("START", "END", "READY")


class Word(str):
    """A protobuf enum value, written without quotes."""


@dataclass(frozen=True)
class Tensor:
    """One input or output, without the batch axis."""

    name: str
    kind: str
    dims: list[int]

    def message(self, **more: Any) -> dict[str, Any]:
        return {
            "name": self.name,
            "data_type": Word(f"TYPE_{self.kind}"),
            "dims": self.dims,
            **more,
        }


def onnx_config(name: str, model: SequenceModel) -> str:
    """The ONNX model: Triton carries the states from request to request, starting from zeros."""
    states = [
        {
            "input_name": state["input"],
            "output_name": state["output"],
            "data_type": Word("TYPE_FP32"),
            "dims": [state["width"]],
            "initial_state": {
                "name": f"zeros of {state['name']} in layer {state['layer']}",
                "data_type": Word("TYPE_FP32"),
                "dims": [state["width"]],
                "zero_data": True,
            },
        }
        for state in state_layout(model)
    ]
    return pbtxt(
        {
            "name": name,
            "backend": "onnxruntime",
            "max_batch_size": MAX_BATCH,
            "input": [_x(model).message()],
            "output": [_logits(model).message()],
            "sequence_batching": _sequences({"state": states}),
            "instance_group": [{"count": 1, "kind": Word("KIND_AUTO")}],
        }
    )


def runtime_config(name: str, model: SequenceModel, parameters: Mapping[str, str]) -> str:
    """The Python backend with tsm.runtime: chunks of a batch may have any lengths, dt may be left out."""
    inputs = [_x(model).message(allow_ragged_batch=True)]
    if takes_dt(model):
        inputs.append(Tensor("dt", "FP32", [-1]).message(optional=True, allow_ragged_batch=True))
    return pbtxt(
        {
            "name": name,
            "backend": "python",
            "max_batch_size": MAX_BATCH,
            "input": inputs,
            "output": [_logits(model).message()],
            "sequence_batching": _sequences({}),
            "instance_group": [{"count": 1, "kind": Word("KIND_CPU")}],
            "parameters": [
                {"key": key, "value": {"string_value": value}} for key, value in parameters.items()
            ],
        }
    )


def _sequences(more: Mapping[str, Any]) -> dict[str, Any]:
    controls = [
        {
            "name": flag,
            "control": [
                {"kind": Word(f"CONTROL_SEQUENCE_{flag}"), "int32_false_true": [0, 1]},
            ],
        }
        for flag in FLAGS
    ]
    corrid = {"kind": Word("CONTROL_SEQUENCE_CORRID"), "data_type": Word("TYPE_UINT64")}
    return {
        "max_sequence_idle_microseconds": IDLE_SECONDS * 1_000_000,
        "oldest": {
            "max_candidate_sequences": MAX_SEQUENCES,
            "max_queue_delay_microseconds": QUEUE_MICROSECONDS,
        },
        "control_input": [*controls, {"name": "CORRID", "control": [corrid]}],
        **more,
    }


def _x(model: SequenceModel) -> Tensor:
    if model.embed is None:
        return Tensor("x", "FP32", [-1, model.layers[0].input_size])
    return Tensor("x", "INT64", [-1])


def _logits(model: SequenceModel) -> Tensor:
    size = model.decoder.out_features
    return Tensor("logits", "FP32", [size] if model.name == "classifier" else [-1, size])


def pbtxt(message: Mapping[str, Any], indent: str = "") -> str:
    """Protobuf text: a list of messages repeats the field, a list of numbers is in brackets."""
    lines: list[str] = []
    for key, value in message.items():
        several = isinstance(value, list) and value and isinstance(value[0], Mapping)
        for one in value if several else [value]:
            if isinstance(one, Mapping):
                lines += [
                    f"{indent}{key} {{",
                    pbtxt(one, indent + "  ").rstrip("\n"),
                    f"{indent}}}",
                ]
            else:
                lines.append(f"{indent}{key}: {_scalar(one)}")
    return "\n".join(lines) + "\n"


def _scalar(value: Any) -> str:
    if isinstance(value, Word):
        return str(value)
    return json.dumps(value)
