"""The format "tsm": the file of package.py, verified in the compiled runtime."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from ..common.formats import Options, Progress, Source, Stored, check_file
from ..common.runner import Runner
from ..common.seal import seal as write_seal
from ..verify.tensors import paired
from .package import ASSETS, DTYPES, model_tensors, package

FORMS: tuple[str, ...] = ()  # the runtime has only its own form
check_place = check_file


def write(source: Source, path: Path, options: Options, progress: Progress) -> None:
    """The .tsm file."""
    if options.recurrence is not None or options.chunk_size is not None:
        raise ValueError(
            f"recurrence = {options.recurrence!r}, chunk_size = {options.chunk_size!r} with format "
            "'tsm'; accepted: neither, the runtime takes chunks of any size"
        )
    if options.dtype not in DTYPES:
        raise ValueError(
            f"dtype = {options.dtype!r}; accepted for a .tsm file: {', '.join(DTYPES)}"
        )
    progress("writing")
    tokenizer = source.config.get("text", {}).get("tokenizer")
    package(source.model, path, options.dtype, assets=source.assets, tokenizer=tokenizer)


def stored(source: Source, path: Path, options: Options) -> Iterator[Stored]:
    """Yields every tensor of the model, and the embedded texts (dictionary, labels, ...) as bytes."""
    found = load_file(path)
    for name, value in model_tensors(source.model).items():
        if name not in found:
            raise ValueError(f"tensor {name} is missing")
        scale = found.pop(f"{name}.scale", None)
        yield Stored(name, found.pop(name), value, None if scale is None else scale[:, None])
    texts = {ASSETS[name]: data for name, data in source.assets.items() if name in ASSETS}
    yield from paired(
        found, {n: torch.tensor(list(data), dtype=torch.uint8) for n, data in texts.items()}
    )


def seal(path: Path, record: Mapping[str, Any]) -> None:
    """The proof and the checksum."""
    write_seal(path, "tsm", record)


def runners(path: Path, options: Options) -> list[Runner]:
    """The compiled runtime."""
    from ..common.exported import facts_of
    from .runner import RuntimeRunner

    return [RuntimeRunner(path, facts_of(path, "tsm"), options.dtype)]
