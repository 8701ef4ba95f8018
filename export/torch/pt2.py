"""torch.export: the model as a `.pt2` file, the successor of TorchScript.

    scan        torch's scan operator over time: any T, any N
    unrolled    chunk_size steps one after the other: T fixed, any N

    model = torch.export.load("model.pt2").module()
    logits, state = model(x=x, lengths=lengths, state=state)    # and dt=dt, if the cell takes it

A graph of torch.export is called by keyword and has no optional inputs: give zero states with the first chunk,
lengths = T if no row is short, and dt = 1 if all steps are equally long; `example_inputs` makes all of them.
Everything needed to serve the model is in the extra file "tsm.json" (common/facts.py has the list).
"""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_map

from ...plugin.common.atomic import atomic_file
from ..common.facts import FACTS
from ..common.formats import Options, Progress, Source, Stored, check_file
from ..common.seal import seal as write_seal
from .modules import DTYPES, MakeLayer, Streaming, UnrolledLayer, streaming
from .runner import TorchRunner
from .scan import ScanLayer
from .stored import stored as stored_buffers
from .torchscript import check_form, extra_files

if TYPE_CHECKING:
    from ...plugin.models import SequenceModel

FORMS = ("scan", "unrolled")
check_place = check_file
MOST = 2**31 - 1
"""Largest N and T that the graph is declared for."""


def export_pt2(
    model: SequenceModel | Source,
    path: str | Path,
    *,
    recurrence: str = FORMS[0],
    chunk_size: int | None = None,
    dtype: str = "float32",
) -> None:
    """Write the model; a Source also provides the other contents of its checkpoint."""
    source = model if isinstance(model, Source) else Source(model)
    program = traced(source.model, recurrence=recurrence, chunk_size=chunk_size, dtype=dtype)
    files = extra_files(source, Options(recurrence, chunk_size, dtype))
    with atomic_file(Path(path)) as file:
        torch.export.save(program, file, extra_files=files)


def traced(
    model: SequenceModel,
    *,
    recurrence: str = FORMS[0],
    chunk_size: int | None = None,
    dtype: str = "float32",
) -> torch.export.ExportedProgram:
    """The model as a graph of torch's own operators."""
    check_form("torch.export", FORMS, recurrence, chunk_size)
    made = streaming(model, dtype, _layer_maker(chunk_size), chunk_size)
    inputs = example_inputs(made, batch=3, steps=chunk_size or 5)
    batch = torch.export.Dim("N", min=1, max=MOST)
    time = torch.export.Dim("T", min=1, max=MOST)
    steps = {} if chunk_size else {1: time}
    shapes: dict[str, Any] = {
        "x": {0: batch, **steps},
        "lengths": {0: batch},
        "state": [{name: {0: batch} for name in layer} for layer in inputs["state"]],
    }
    if "dt" in inputs:
        shapes["dt"] = {0: batch, **steps}
    with torch.no_grad(), _quiet():
        return torch.export.export(made, (), kwargs=inputs, dynamic_shapes=shapes, strict=False)


def example_inputs(model: Streaming, batch: int, steps: int) -> dict[str, Any]:
    """The inputs of the exported model at the start of a stream."""
    shape = (batch, steps)
    x = torch.zeros(*shape, model.input_size) if model.input_size else torch.zeros(shape).long()
    inputs: dict[str, Any] = {
        "x": x,
        "lengths": torch.full((batch,), steps),
        "state": [layer.zero_state(batch) for layer in model.layers],  # type: ignore[operator]
    }
    if model.takes_dt:
        inputs["dt"] = torch.ones(shape, dtype=model.exact)
    return inputs


def _layer_maker(chunk_size: int | None) -> MakeLayer:
    if chunk_size is None:
        return ScanLayer
    return lambda layer, rounded, exact: UnrolledLayer(layer, rounded, exact, chunk_size)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silences torch's messages about its own tracing."""
    logger = logging.getLogger("torch")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def write(source: Source, path: Path, options: Options, progress: Progress) -> None:
    """For common/formats.py."""
    progress("tracing the model")
    export_pt2(
        source,
        path,
        recurrence=options.recurrence or FORMS[0],
        chunk_size=options.chunk_size,
        dtype=options.dtype,
    )


def runners(path: Path, options: Options) -> list[TorchRunner]:
    """Implements `runners` of common/formats.py: loads the file again."""
    extra = {FACTS: ""}
    loaded = torch.export.load(str(path), extra_files=extra).module()
    complete = completer(json.loads(extra[FACTS]))
    return [TorchRunner("torch.export", loaded, options.chunk_size, complete)]


def stored(source: Source, path: Path, options: Options) -> Iterable[Stored]:
    """Implements `stored` of common/formats.py with every buffer and constant."""
    program = torch.export.load(str(path))
    return stored_buffers(source, {**program.state_dict, **program.constants})


def seal(path: Path, record: Mapping[str, Any]) -> None:
    """Implements `seal` of common/formats.py: writes the proof and the checksum."""
    write_seal(path, "pt2", record)


def completer(facts: Mapping[str, str]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Fills in what a caller omitted: full lengths, zero states, and dt = 1 for a cell that takes it. States
    and dt get the type that the graph was traced with: it refuses any other."""
    exact = DTYPES[facts["dtype"]][1]
    states = json.loads(facts["states"])
    takes_dt: bool = json.loads(facts["takes_dt"])

    def complete(given: dict[str, Any]) -> dict[str, Any]:
        batch, steps = given["x"].shape[:2]
        zeros: list[dict[str, torch.Tensor]] = [
            {} for _ in range(1 + max(s["layer"] for s in states))
        ]
        for state in states:
            zeros[state["layer"]][state["name"]] = torch.zeros(batch, state["width"])
        start = {"lengths": torch.full((batch,), steps), "state": zeros}
        clock = {"dt": torch.ones(batch, steps)} if takes_dt else {}
        whole = {**start, **clock, **given}
        for name in {"state", "dt"} & whole.keys():
            whole[name] = tree_map(lambda value: value.to(exact), whole[name])
        return whole

    return complete
