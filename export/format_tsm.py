"""The format "tsm": the file of package.py, verified in the compiled runtime."""

from __future__ import annotations

from pathlib import Path

from .formats import Options, Progress, Source, check_file
from .package import DTYPES, package
from .proof.runner import Runner

FORMS: tuple[str, ...] = ()  # the runtime has one way of its own
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


def runners(source: Source, path: Path, options: Options) -> list[Runner]:
    """The compiled runtime."""
    from .proof.tsm_runner import RuntimeRunner

    return [RuntimeRunner(source.model, path, options.dtype)]
