"""A model repository for NVIDIA Triton: the same model in two forms; both keep the state of every sequence.

    REPOSITORY/<arch>_onnx/      config.pbtxt, 1/model.onnx             ONNX Runtime; Triton carries the states
    REPOSITORY/<arch>_runtime/   config.pbtxt, 1/model.tsm, 1/model.py  Python backend over tsm.runtime

    tritonserver --model-repository=REPOSITORY

Keep one and delete the other. `_runtime` batches chunks of unequal length and takes dt; `_onnx` runs without
tsm, and only batches chunks of equal length.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..common.exported import open_exported
from ..common.facts import state_layout
from ..common.formats import Options, Progress, Source, Stored, get_format
from ..common.runner import Runner
from ..common.seal import seal_folder
from ..onnx import file as onnx_file
from ..onnx import model as onnx_model
from .config import onnx_config, runtime_config
from .controls import CONTROL_ZERO, with_controls

if TYPE_CHECKING:
    from ...plugin.models import SequenceModel

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
    """Write the repository `path`, or add the two models to an existing one."""
    source = model if isinstance(model, Source) else Source(model)
    write(source, Path(path), Options(recurrence, chunk_size, dtype), lambda what: None)


def check_place(source: Source, path: Path) -> None:
    """Other models in a repository stay unchanged; earlier ones of this name are not replaced."""
    if path.exists() and not path.is_dir():
        raise ValueError(f"{path} is a file; accepted: a folder, new or a model repository")
    for folder in _folders(source.model, path):
        if os.path.lexists(folder):
            raise ValueError(
                f"{folder} already exists; delete it first, or name another repository"
            )


def write(source: Source, path: Path, options: Options, progress: Progress) -> None:
    """For common/formats.py."""
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
    shutil.copyfile(Path(__file__).with_name("model.py"), runtime / "1" / "model.py")
    parameters = {"dtype": options.dtype, "threads": "1"}
    config = runtime_config(runtime.name, source.model, parameters)
    (runtime / "config.pbtxt").write_text(config)


def runners(path: Path, options: Options) -> list[Runner]:
    """Implements `runners` of common/formats.py: the graph as Triton calls it, and the runtime's model."""
    return [runner for model in open_exported(path) for runner in model.runners()]


def stored(source: Source, path: Path, options: Options) -> Iterator[Stored]:
    """Implements `stored` of common/formats.py with every tensor of both models."""
    for model in open_exported(path):
        if model.kind == "onnx":
            control = {CONTROL_ZERO: np.zeros((), np.float32)}
            yield from onnx_model.stored(source, model.path, model.options(), control)
        else:
            yield from get_format("tsm").stored(source, model.path, model.options())


def seal(path: Path, record: Mapping[str, Any]) -> None:
    """Implements `seal` of common/formats.py: writes the proof into both models, and SHA256SUMS of all
    files."""
    for model in open_exported(path):
        get_format(model.kind).seal(model.path, record)
        seal_folder(model.place)


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
    """The names of the models in Triton."""
    arch = re.sub(r"[^A-Za-z0-9_]", "_", str(model.config.get("arch") or "model"))
    return path / f"{arch}_onnx", path / f"{arch}_runtime"
