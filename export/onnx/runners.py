"""Runners of an ONNX file: ONNX Runtime on the CPU and on a GPU, and onnx's own reference evaluator.

They use only the file: its inputs, and the state layout in its metadata.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from ..common.facts import ONNX_FORMAT
from ..common.runner import Array, Runner, State

REFERENCE_STEPS = 100


class GraphRunner:
    """Base class of the runners: maps the arguments of `run` to the graph's inputs, and its outputs to the
    results."""

    name = ""
    most_steps: int | None = None

    def __init__(self, path: Path, props: dict[str, str]) -> None:
        if props.get("format") != ONNX_FORMAT:
            raise ValueError(
                f"{path}: format = {props.get('format')!r}; accepted: {ONNX_FORMAT!r} (export it again)"
            )
        self.inputs: list[str] = json.loads(props["inputs"])
        self.layout: list[dict[str, Any]] = json.loads(props["states"])
        self.layers = 1 + max(state["layer"] for state in self.layout)
        self.outputs = ["logits", *(state["output"] for state in self.layout)]
        self.chunk_size: int | None = int(props["chunk_size"]) if props["chunk_size"] else None
        self.recurrence = props["recurrence"]

    def call(self, feeds: dict[str, Array]) -> list[Array]:
        raise NotImplementedError

    def run(
        self,
        x: Array,
        state: State | None = None,
        dt: Array | None = None,
        lengths: Array | None = None,
    ) -> tuple[Array, State]:
        whole = {"lengths": np.full(len(x), x.shape[1]), "dt": np.ones(x.shape[:2], np.float32)}
        given = {k: v for k, v in (("lengths", lengths), ("dt", dt)) if v is not None}
        for name in given:
            if name not in self.inputs:
                raise ValueError(
                    f"{name} was given to a graph without it; accepted: one exported with it"
                )
        feeds = {"x": x, **{name: (whole | given)[name] for name in self.inputs}}
        for one in self.layout:
            zeros = np.zeros((len(x), one["width"]), np.float32)
            feeds[one["input"]] = zeros if state is None else state[one["layer"]][one["name"]]
        found = dict(zip(self.outputs, self.call(feeds), strict=True))
        new: State = [{} for _ in range(self.layers)]
        for one in self.layout:
            new[one["layer"]][one["name"]] = found[one["output"]]
        return found["logits"], new


class OrtRunner(GraphRunner):
    """ONNX Runtime with one provider: "CPUExecutionProvider", "CUDAExecutionProvider"."""

    def __init__(
        self, path: Path, provider: str = "CPUExecutionProvider", threads: int = 0
    ) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        options.intra_op_num_threads = threads
        self.session = onnxruntime.InferenceSession(
            str(path), options, providers=list(dict.fromkeys([provider, "CPUExecutionProvider"]))
        )
        super().__init__(path, self.session.get_modelmeta().custom_metadata_map)
        self.name = f"ONNX Runtime {provider.removesuffix('ExecutionProvider')}"

    def call(self, feeds: dict[str, Array]) -> list[Array]:
        found: list[Array] = self.session.run(self.outputs, feeds)
        return found


class TritonGraph(OrtRunner):
    """The ONNX file of a Triton repository, called as Triton's sequence batcher calls it.

    A stream begins with START and with states of NaN, which the graph must replace by zeros.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.name = "ONNX Runtime CPU, as Triton calls it"

    def run(
        self,
        x: Array,
        state: State | None = None,
        dt: Array | None = None,
        lengths: Array | None = None,
    ) -> tuple[Array, State]:
        self.starting = state is None
        return super().run(x, state, dt, lengths)

    def call(self, feeds: dict[str, Any]) -> list[Array]:
        ones = np.ones((len(feeds["x"]), 1), np.int32)
        if self.starting:
            feeds |= {one["input"]: feeds[one["input"]] * np.nan for one in self.layout}
        controls = {"START": ones * self.starting, "END": ones * 0, "READY": ones}
        return super().call({**feeds, **controls, "CORRID": ones.astype(np.uint64)})


class ReferenceRunner(GraphRunner):
    """onnx.reference: slow, and independent of ONNX Runtime. Its Loop stacks outputs wrongly (onnx 1.23)."""

    name = "onnx.reference"
    most_steps = REFERENCE_STEPS

    def __init__(self, path: Path) -> None:
        from onnx.reference import ReferenceEvaluator

        model = onnx.load(str(path))
        super().__init__(path, {p.key: p.value for p in model.metadata_props})
        self.evaluator = ReferenceEvaluator(model)

    def call(self, feeds: dict[str, Array]) -> list[Array]:
        return list(self.evaluator.run(self.outputs, feeds))


def onnx_runners(path: Path) -> list[Runner]:
    """All that can run here."""
    import onnxruntime

    first = OrtRunner(path)
    if any(one.name == "START" for one in first.session.get_inputs()):
        return [TritonGraph(path)]
    found: list[Runner] = [first]
    if "CUDAExecutionProvider" in onnxruntime.get_available_providers():
        found.append(OrtRunner(path, "CUDAExecutionProvider"))
    fits = first.chunk_size is None or first.chunk_size <= REFERENCE_STEPS
    if first.recurrence in ("scan", "unrolled") and fits:
        found.append(ReferenceRunner(path))
    return found
