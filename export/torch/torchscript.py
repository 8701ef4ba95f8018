"""TorchScript: the model as a file that libtorch runs, in C++ or Python, without tsm.

    loop        the recurrence is a scripted loop: any T, any N
    unrolled    chunk_size steps one after the other: T fixed, any N

    model = torch.jit.load("model.pt")
    logits, state = model(x)                # x [N,T] tokens or [N,T,I] values
    logits, state = model(x, state=state)   # the next chunk; also lengths=[N], dt=[N,T]

Arguments and state are those of a `SequenceModel`. Everything needed to serve it is in the extra file
"tsm.json" (common/facts.py has the list). torch.jit is deprecated: it works in the versions of torch that tsm
supports, and `pt2.py` writes its successor.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ...plugin.common.atomic import atomic_file
from ...plugin.common.torch_private import forget_stale_builtins
from ..common.facts import FACTS, facts
from ..common.formats import Options, Progress, Source, Stored, check_file
from ..common.seal import seal as write_seal
from .modules import LoopLayer, MakeLayer, UnrolledLayer, streaming
from .runner import TorchRunner
from .stored import stored as stored_buffers

if TYPE_CHECKING:
    from ...plugin.models import SequenceModel

FORMS = ("loop", "unrolled")
check_place = check_file


def export_torchscript(
    model: SequenceModel | Source,
    path: str | Path,
    *,
    recurrence: str = FORMS[0],
    chunk_size: int | None = None,
    dtype: str = "float32",
) -> None:
    """Write the model; a Source also provides the other contents of its checkpoint."""
    source = model if isinstance(model, Source) else Source(model)
    scripted = script(source.model, recurrence=recurrence, chunk_size=chunk_size, dtype=dtype)
    files = extra_files(source, Options(recurrence, chunk_size, dtype))
    with atomic_file(Path(path)) as file, _no_advice():
        torch.jit.save(scripted, file, _extra_files=files)


def extra_files(source: Source, options: Options) -> dict[str, str]:
    """The metadata of the file."""
    return {FACTS: json.dumps(facts(source, options), ensure_ascii=False, indent=1)}


def script(
    model: SequenceModel,
    *,
    recurrence: str = "loop",
    chunk_size: int | None = None,
    dtype: str = "float32",
) -> torch.jit.ScriptModule:
    """The model in TorchScript."""
    made = streaming(model, dtype, layer_maker(recurrence, chunk_size), chunk_size)
    with _no_advice():
        forget_stale_builtins(made)
        scripted: torch.jit.ScriptModule = torch.jit.script(made)
    return scripted


def layer_maker(recurrence: str, chunk_size: int | None) -> MakeLayer:
    """The class that builds a layer of that form; ValueError for an unknown form."""
    check_form("TorchScript", FORMS, recurrence, chunk_size)
    if chunk_size is None:
        return LoopLayer
    return lambda layer, rounded, exact: UnrolledLayer(layer, rounded, exact, chunk_size)


def check_form(what: str, forms: Sequence[str], recurrence: str, chunk_size: int | None) -> None:
    """Raises ValueError for an unknown form; the unrolled form needs a chunk_size, and no other form takes
    one."""
    if recurrence not in forms:
        raise ValueError(f"recurrence = {recurrence!r}; {what} has: {', '.join(forms)}")
    unrolled = recurrence == "unrolled"
    whole = isinstance(chunk_size, int) and not isinstance(chunk_size, bool) and chunk_size > 0
    if unrolled and not whole:
        raise ValueError(
            f"chunk_size = {chunk_size!r} with recurrence 'unrolled'; accepted: a number of steps of at "
            f"least 1, or recurrence {forms[0]!r} for any T"
        )
    if not unrolled and chunk_size is not None:
        raise ValueError(
            f"chunk_size = {chunk_size!r} with recurrence {recurrence!r}, which takes any T; accepted: "
            "None, or recurrence 'unrolled'"
        )


@contextmanager
def _no_advice() -> Iterator[None]:
    """Silences the per-call warning that torch.jit is deprecated; docs/export_torch.md mentions it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*torch.jit.*", category=DeprecationWarning)
        warnings.filterwarnings("ignore", message=".*torch.jit.*", category=FutureWarning)
        yield


def write(source: Source, path: Path, options: Options, progress: Progress) -> None:
    """For common/formats.py."""
    progress("scripting the model")
    export_torchscript(
        source,
        path,
        recurrence=options.recurrence or FORMS[0],
        chunk_size=options.chunk_size,
        dtype=options.dtype,
    )


def runners(path: Path, options: Options) -> list[TorchRunner]:
    """Implements `runners` of common/formats.py: loads the file again."""
    return [TorchRunner("TorchScript", load(path), options.chunk_size)]


def load(path: Path) -> torch.jit.ScriptModule:
    """The file, on the CPU."""
    with _no_advice():
        loaded: torch.jit.ScriptModule = torch.jit.load(str(path), map_location="cpu")
    return loaded


def stored(source: Source, path: Path, options: Options) -> Iterable[Stored]:
    """Implements `stored` of common/formats.py with every buffer."""
    return stored_buffers(source, load(path).state_dict())


def seal(path: Path, record: Mapping[str, Any]) -> None:
    """Implements `seal` of common/formats.py: writes the proof and the checksum."""
    write_seal(path, "torchscript", record)
