"""A model repository for NVIDIA Triton, with the same model twice, each keeping the state of every sequence.

    REPOSITORY/<arch>_onnx/      config.pbtxt, 1/model.onnx             ONNX Runtime; Triton carries the states
    REPOSITORY/<arch>_runtime/   config.pbtxt, 1/model.tsm, 1/model.py  Python backend over tsm.runtime

    tritonserver --model-repository=REPOSITORY

Take one and delete the other. `_runtime` batches chunks of unequal length and takes dt; `_onnx` needs no tsm
where it runs, and batches chunks of one length only.
"""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from . import onnx_file, onnx_model
from .formats import Options, Progress, Source, get_format
from .onnx_facts import state_layout
from .proof.onnx_runners import OrtRunner
from .proof.runner import Array, Runner, State
from .triton_config import onnx_config, runtime_config
from .triton_onnx import with_controls

if TYPE_CHECKING:
    from ..plugin.models import SequenceModel

FORMS = ("scan", "loop")
DTYPES = ("float32", "int8")
"""What both of them have."""


def export_triton(
    model: SequenceModel | Source,
    path: str | Path,
    *,
    recurrence: str = FORMS[0],
    chunk_size: int | None = None,
    dtype: str = "float32",
) -> None:
    """Write the repository `path`, or add the two models to one that is there."""
    source = model if isinstance(model, Source) else Source(model)
    write(source, Path(path), Options(recurrence, chunk_size, dtype), lambda what: None)


def check_place(source: Source, path: Path) -> None:
    """For formats.py: other models of a repository stay as they are, and so do earlier ones of this name."""
    if path.exists() and not path.is_dir():
        raise ValueError(f"{path} is a file; accepted: a folder, new or a model repository")
    for folder in _folders(source.model, path):
        if os.path.lexists(folder):
            raise ValueError(
                f"{folder} is there already; delete it first, or name another repository"
            )


def write(source: Source, path: Path, options: Options, progress: Progress) -> None:
    """For formats.py."""
    options = _checked(options)
    check_place(source, path)
    graph, runtime = _folders(source.model, path)
    for folder in (graph, runtime):
        (folder / "1").mkdir(parents=True)

    progress("writing the ONNX model")
    plain = onnx_model.build(source, replace(options, inputs=()))  # a request is a whole chunk
    made = with_controls(plain, state_layout(source.model))
    onnx_file.save(made, graph / "1" / "model.onnx")
    onnx_file.check(graph / "1" / "model.onnx")
    (graph / "config.pbtxt").write_text(onnx_config(graph.name, source.model))

    progress("writing the model of the runtime")
    tsm = replace(options, recurrence=None)
    get_format("tsm").write(source, runtime / "1" / "model.tsm", tsm, progress)
    shutil.copyfile(Path(__file__).with_name("triton_model.py"), runtime / "1" / "model.py")
    parameters = {"dtype": options.dtype, "threads": "1"}
    config = runtime_config(runtime.name, source.model, parameters)
    (runtime / "config.pbtxt").write_text(config)


def runners(source: Source, path: Path, options: Options) -> list[Runner]:
    """For formats.py: the graph as Triton calls it, and the runtime's model."""
    graph, runtime = _folders(source.model, path)
    tsm = get_format("tsm").runners(
        source, runtime / "1" / "model.tsm", replace(options, recurrence=None)
    )
    return [TritonGraph(graph / "1" / "model.onnx"), *tsm]


class TritonGraph(OrtRunner):
    """The ONNX file with its controls. A stream begins with START and states that are no numbers."""

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


def _checked(options: Options) -> Options:
    form = options.recurrence or FORMS[0]
    if form not in FORMS:
        raise ValueError(
            f"recurrence = {form!r} for Triton, whose requests have any T; accepted: {', '.join(FORMS)}"
        )
    if options.chunk_size is not None:
        raise ValueError(f"chunk_size = {options.chunk_size!r}; accepted for Triton: None, any T")
    if options.dtype not in DTYPES:
        raise ValueError(f"dtype = {options.dtype!r}; accepted for Triton: {', '.join(DTYPES)}")
    return replace(options, recurrence=form)


def _folders(model: SequenceModel, path: Path) -> tuple[Path, Path]:
    """Their names are the models' in Triton."""
    arch = re.sub(r"[^A-Za-z0-9_]", "_", str(model.config.get("arch") or "model"))
    return path / f"{arch}_onnx", path / f"{arch}_runtime"
