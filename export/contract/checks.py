"""All checks of a cell, in order, and how they are run."""

from __future__ import annotations

import importlib.util
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ...plugin.archs import build_model
from ...plugin.cells import Cell
from ...plugin.extras import how_to_install
from ...plugin.layers.choose import COMPOSITE
from ..entry import export
from ..verify.verify import VerifyError
from . import extremes, formula, streams
from .tolerances import Violation

SEED = 20210601
Progress = Callable[[str, int], AbstractContextManager[Callable[[int], Any]]]


@dataclass(frozen=True)
class Check:
    """A part of the contract: `run(cell)` says what it measured or raises Violation."""

    name: str
    run: Callable[..., str]
    why_not: Callable[[type[Cell]], str] = lambda cell: ""
    """Why it does not apply to a cell, or cannot be run here; "" if it is run."""
    steps: int = 0
    """Of a check that takes seconds and reports its progress; 0 for the others."""


@dataclass(frozen=True)
class Result:
    check: str
    passed: bool | None
    """None: the check was skipped."""
    note: str
    """What was measured, the error, or why the check was skipped."""


def _composite(cell: type[Cell]) -> str:
    return "" if cell.elementwise else "not element-wise, so it has no tape"


def _not_in_files(cell: type[Cell]) -> str:
    known = cell.elementwise or cell.name in COMPOSITE
    return "" if known else "files hold element-wise cells only"


def _unbounded(cell: type[Cell]) -> str:
    return "" if cell.bounded else "declared bounded = False"


def _not_in_onnx(cell: type[Cell]) -> str:
    packages = ("onnx", "onnxscript", "onnxruntime")
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    needs = f"{', '.join(missing)} not installed: {how_to_install('export')}" if missing else ""
    return _not_in_files(cell) or needs


def _export(cell: type[Cell], format: str) -> str:
    torch.manual_seed(3)
    sizes: dict[str, Any] = dict(vocab_size=13, decoder_embed_dim=6, decoder_hidden_size=6)
    model = build_model("lstm_lm", cell=cell.name, **sizes)
    with tempfile.TemporaryDirectory() as folder:
        try:
            report = export(model, Path(folder) / "model", format, steps=0)
        except VerifyError as error:
            failed = [check.line() for check in error.report.checks if not check.passed]
            raise Violation("; ".join(failed)) from error
    worst = max(d.absolute for check in report.checks for d in check.outputs.values())
    return f"{len(report.checks)} comparisons with the model differ by up to {worst:.2g}"


def onnx(cell: type[Cell]) -> str:
    """An ONNX file computes what the model does."""
    return _export(cell, "onnx")


def torchscript(cell: type[Cell]) -> str:
    """A TorchScript file computes what the model does."""
    return _export(cell, "torchscript")


CHECKS = (
    Check("formula", formula.formula),
    Check("gradient", formula.gradient),
    Check("tape", formula.tape, _composite),
    Check("chunks", formula.chunks),
    Check("dt", formula.time_steps),
    Check("extremes", extremes.extremes, _unbounded),
    Check("nan", extremes.nan),
    Check("bounded", extremes.bounded, _unbounded),
    Check("stream", streams.stream, _not_in_files),
    Check("stream chunks", streams.stream_chunks, _not_in_files),
    Check("long stream", streams.long_stream, _not_in_files, steps=streams.LONG),
    Check("onnx", onnx, _not_in_onnx),
    Check("torchscript", torchscript, _not_in_files),
)


def check_cell(
    cell: type[Cell], progress: Progress = lambda name, steps: nullcontext(lambda done: None)
) -> Iterator[Result]:
    """Runs all checks that apply, with the same random numbers every time; yields each result when it is known.

    An error that the cell's own code raises is a failed check, too; with TSM_DEBUG=1 it is raised.
    """
    for check in CHECKS:
        if why := check.why_not(cell):
            yield Result(check.name, None, why)
            continue
        with torch.random.fork_rng(devices=[]), progress(check.name, check.steps) as update:
            torch.manual_seed(SEED)
            try:
                note = check.run(cell, progress=update) if check.steps else check.run(cell)
            except Exception as error:
                if os.environ.get("TSM_DEBUG"):
                    raise
                kind = "" if isinstance(error, Violation) else f"{type(error).__name__}: "
                result = Result(check.name, False, kind + " ".join(str(error).split()))
            else:
                result = Result(check.name, True, note)
        yield result
