"""How slowly each unit forgets, from the parameters in the model's .tsm file (export/FORMAT.md).

power        ((1 + age) / (1 + age + t))^p of a unit's content is left after t steps without a reset
exponential  f^t is left, where f is the forget gate given by its bias alone
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import Model

LONGEST_HEADER = 16 << 20
GATES = {  # operations of a program that can be forget gates
    "sigmoid": lambda z: 1 / (1 + np.exp(-z)),
    "fast_sigmoid": lambda z: 1 / (1 + np.exp(-np.sinh(np.clip(z, -7.5, 7.5)))),
    "softsign_gate": lambda z: 0.5 + z / (2 * (2 + np.abs(z))),
}


def timescales(model: Model) -> list[dict[str, Any]]:
    """One entry per layer: its cell and, if its parameters determine a law, that law with one value per
    unit."""
    tensors = _Tensors(Path(model.path), model.checksum)
    layers = enumerate(model.config["layers"])
    return [{"cell": layer["cell"], **_law(tensors, i, layer)} for i, layer in layers]


def _law(tensors: _Tensors, number: int, layer: dict[str, Any]) -> dict[str, Any]:
    gates = layer["gates"]
    if any(state["name"] == "age" for state in layer["states"]) and "p" in layer["vectors"]:
        p = tensors.read(f"layers.{number}.vectors.p")
        return {} if p is None else {"law": "power", "p": p.tolist()}
    gate = _forget_gate(layer)
    bias = None if gate is None else tensors.read(f"layers.{number}.bias")
    if gate is None or bias is None:
        return {}
    f = GATES[gate](bias.reshape(len(gates), -1)[gates.index("f")].astype(np.float64))
    return {"law": "exponential", "f": f.tolist()}


def _forget_gate(layer: dict[str, Any]) -> str | None:
    """The operation of gate f, if its result directly multiplies a state, so that it alone decides what is
    kept."""
    nodes = layer["program"]["nodes"] if layer["program"] else []
    for number, (operation, *arguments) in enumerate(nodes):
        if arguments == ["z.f"] and operation in GATES:
            kept = [node for node in nodes if node[0] == "mul" and number in node[1:]]
            if any(str(one).startswith("s.") for node in kept for one in node[1:]):
                return str(operation)
    return None


class _Tensors:
    """Tensors in the file from which the model was loaded; none if the file has been replaced since."""

    def __init__(self, path: Path, checksum: str) -> None:
        self.path, self.header, self.start = path, dict[str, Any](), 0
        try:
            with path.open("rb") as file:
                size = int.from_bytes(file.read(8), "little")
                if size > LONGEST_HEADER:
                    return
                header = json.loads(file.read(size))
        except (OSError, ValueError):
            return
        if header.get("__metadata__", {}).get("checksum") == checksum:
            self.header, self.start = header, 8 + size

    def read(self, name: str) -> NDArray[np.float32] | None:
        if name not in self.header:
            return None
        begin, end = self.header[name]["data_offsets"]
        return np.fromfile(self.path, "<f4", (end - begin) // 4, offset=self.start + begin)
