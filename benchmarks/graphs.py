"""ONNX graphs of a case's layer, made here or read from a folder.

A machine without the package onnx can run graphs that another one made: `tsm-bench stream --make-graphs DIR`
writes them; graphs of the same layer share its weight files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from .case import Case

if TYPE_CHECKING:
    import onnx

APART = 4096  # bytes: larger tensors go into separate files


class Form(NamedTuple):
    """One form of the recurrence in ONNX."""

    recurrence: str  # "scan", "unrolled", "lstm_op"
    dtype: str  # "float32", "int8"

    def file(self, case: Case) -> str:
        steps = f"_{case.T}" if self.recurrence == "unrolled" else ""
        return f"{case.cell}_{case.H}_{self.recurrence}{steps}.{self.dtype}.onnx"


def forms(case: Case) -> Iterator[Form]:
    """The available forms."""
    for recurrence in ("scan", "unrolled", "lstm_op"):
        if recurrence != "lstm_op" or case.cell == "lstm":
            yield Form(recurrence, "float32")
            yield Form(recurrence, "int8")


def make(case: Case, form: Form) -> onnx.ModelProto:
    from ..export.onnx.layer import layer_model, quantized

    steps = case.T if form.recurrence == "unrolled" else None
    model = layer_model(case.layer, recurrence=form.recurrence, chunk_size=steps)
    return quantized(model) if form.dtype == "int8" else model


def source(case: Case, form: Form, folder: Path | None) -> bytes | str:
    """What a session is opened with."""
    if folder is None:
        return bytes(make(case, form).SerializeToString())
    path = folder / form.file(case)
    if not path.is_file():
        raise FileNotFoundError(
            f"{path}: no such graph; make it with tsm-bench stream --make-graphs {folder}"
        )
    return str(path)


def write(cases: list[Case], folder: Path) -> list[Path]:
    """Write every graph of the cases, with tensors larger than a page in separate files named by a hash of
    their content."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for case in cases:
        for form in forms(case):
            path = folder / form.file(case)
            if path not in written:
                model = make(case, form)
                for tensor in model.graph.initializer:
                    _move_out(tensor, folder)
                path.write_bytes(model.SerializeToString())
                written.append(path)
    return written


def _move_out(tensor: Any, folder: Path) -> None:
    from onnx import TensorProto

    data = bytes(tensor.raw_data)
    if len(data) < APART:
        return
    name = hashlib.sha256(data).hexdigest()[:16] + ".bin"
    (folder / name).write_bytes(data)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", name), ("offset", "0"), ("length", str(len(data)))):
        tensor.external_data.add(key=key, value=value)
