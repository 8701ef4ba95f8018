"""The formats that a model can be exported to, by name.

A format is a module with five functions:

    check_place(source, path)                ValueError if what is there must not be replaced
    write(source, path, options, progress)   the file (or folder) under exactly that name
    runners(path, options)                   what runs it, for `verify`: a list of Runner
    stored(source, path, options)            every stored tensor and the model's: a list of Stored
    seal(path, record)                       writes the proof and the checksum into it (seal.py)

and `FORMS`: the recurrences that it supports, the default first. `path` is a temporary path with the final file
name: `export()` verifies the file there and then moves it, with all files beside it. Only `check_place` gets
the final path. A model that cannot be exported raises a ValueError that says what can be.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from ...plugin.data.labels import TARGETS
from .runner import Runner

if TYPE_CHECKING:
    from torch import Tensor

    from ...plugin.models import SequenceModel

MODULES: dict[str, str] = {
    "tsm": "tsm.format",
    "onnx": "onnx.model",
    "torchscript": "torch.torchscript",
    "pt2": "torch.pt2",
    "triton": "triton.repository",
}
"""Format -> its module in export."""

DTYPES = ("float32", "float16", "bfloat16", "int8")
"""The types that matrices may have; no format supports all of them."""

Progress = Callable[[str], None]
"""Called with a few words about the current step."""


@dataclass(frozen=True)
class Source:
    """What is exported: a model in eval mode, on the CPU, in float32, and the other contents of its checkpoint.

    config: the training config ({} for a bare model). assets: name -> bytes (dict.txt, ...).
    """

    model: SequenceModel
    config: dict[str, Any] = field(default_factory=dict)
    assets: dict[str, bytes] = field(default_factory=dict)

    @property
    def classes(self) -> bool:
        """Whether the outputs are logits of classes rather than numbers."""
        return TARGETS not in self.assets and self.model.decoder.out_features > 1


@dataclass(frozen=True)
class Options:
    """How the model is exported. recurrence None: the format's default. chunk_size: T of an unrolled graph.
    inputs: which of lengths and dt an ONNX graph has; None: all that the model takes."""

    recurrence: str | None = None
    chunk_size: int | None = None
    dtype: str = "float32"
    inputs: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Stored:
    """A tensor of a file and its expected value in the same layout. scale: of int8 values, broadcast to
    them."""

    name: str
    found: Tensor
    expected: Tensor
    scale: Tensor | None = None


class Format(Protocol):
    """What a format's module has."""

    FORMS: tuple[str, ...]

    def check_place(self, source: Source, path: Path) -> None: ...

    def write(self, source: Source, path: Path, options: Options, progress: Progress) -> None: ...

    def runners(self, path: Path, options: Options) -> Sequence[Runner]: ...

    def stored(self, source: Source, path: Path, options: Options) -> Iterable[Stored]: ...

    def seal(self, path: Path, record: Mapping[str, Any]) -> None: ...


def check_file(source: Source, path: Path) -> None:
    """`check_place` for a format that writes one file, which may replace a file but never a folder."""
    if path.is_dir():
        raise ValueError(f"{path} is a folder; accepted: the name of a file")


def get_format(name: str) -> Format:
    """The module of a format."""
    if name not in MODULES:
        raise ValueError(f"format = {name!r}; accepted: {', '.join(MODULES)}")
    return cast(Format, importlib.import_module(f"..{MODULES[name]}", __package__))
