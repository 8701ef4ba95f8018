"""A split of sequences of numbers: raw little-endian files, described by meta.json.

    SPLIT.values   float32 [steps, I]          SPLIT.offsets  int64 [N + 1], where sequences begin and end
    SPLIT.dt       float32 [steps], optional   SPLIT.targets  int32 (classes) or float32 [.., C] (numbers),
                                               one per sequence or one per step

The files are read on demand (file_array.py); every size is checked against meta.json first.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..common.lazy import np
from .file_array import FileArray
from .ranges import Ranges
from .roles import check_roles

F32, I32, I64 = "<f4", "<i4", "<i8"
TASKS = {False: "series", True: "series_steps"}  # key: whether targets are per step
PARTS = ("values", "offsets", "dt", "targets")


@dataclass(frozen=True)
class Shape:
    """The entries of meta.json for all splits. outputs: number of classes, or of numbers in a target."""

    width: int
    outputs: int
    classes: bool
    per_step: bool
    dt: bool
    columns: list[str]
    targets: list[str]
    shortest_dt: float
    ranges: list[list[float]] = field(
        default_factory=list
    )  # of the inputs in training; [] in old folders
    roles: dict[str, str] = field(default_factory=dict)  # role -> column; {} in old folders

    @classmethod
    def parse(cls, value: Any, where: str) -> Shape:
        """Parses the entry of meta.json."""
        kinds = {"width": int, "outputs": int, "classes": bool, "per_step": bool, "dt": bool}
        kinds |= {"columns": list, "targets": list, "shortest_dt": float}
        later = {"ranges": list, "roles": dict}  # not in old folders
        kinds |= {k: v for k, v in later.items() if isinstance(value, dict) and k in value}
        if not isinstance(value, dict) or {k: type(v) for k, v in value.items()} != kinds:
            raise ValueError(
                f"{where}: series is {value!r:.80}; accepted: what tsm-preprocess writes"
            )
        found = cls(**value)
        if found.width < 1 or found.outputs < 1:
            raise ValueError(f"{where}: series has width {found.width}, outputs {found.outputs}")
        if found.ranges:
            Ranges.of(found.ranges, found.width, f"{where}: ranges")
        check_roles(found.roles, f"{where}: roles")
        return found


@dataclass(frozen=True)
class Rows:
    """A batch of sequences, padded with 0 (dt: 1). target int64 or float32: [B], [B,C], [B,T] or [B,T,C]."""

    x: np.ndarray
    lengths: np.ndarray
    dt: np.ndarray | None
    target: np.ndarray


class SeriesSplit:
    """Read access to a split; len() is the number of sequences."""

    def __init__(self, prefix: Path, shape: Shape, sequences: int, steps: int) -> None:
        self.shape = shape
        counts = {"values": steps * shape.width, "offsets": sequences + 1}
        targets = steps if shape.per_step else sequences
        counts["targets"] = targets * (1 if shape.classes else shape.outputs)
        if shape.dt:
            counts["dt"] = steps
        kinds = {"offsets": I64, "targets": I32 if shape.classes else F32}
        self.parts = {
            part: _array(prefix.with_name(f"{prefix.name}.{part}"), kinds.get(part, F32), count)
            for part, count in counts.items()
        }
        self.offsets = np.asarray(self.parts["offsets"])
        ends = self.offsets[[0, -1]].tolist()
        if ends != [0, steps] or (np.diff(self.offsets) < 1).any():
            raise ValueError(f"{prefix}.offsets: damaged; accepted: 0 to {steps}, ascending")

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def gather(self, rows: np.ndarray) -> Rows:
        """The sequences with these indices."""
        s = self.shape
        starts, ends = self.offsets[rows], self.offsets[np.asarray(rows) + 1]
        lengths = ends - starts
        width = int(lengths.max())
        x = np.zeros((len(rows), width, s.width), np.float32)
        dt = np.ones((len(rows), width), np.float32) if s.dt else None
        tail = () if s.classes else (s.outputs,)
        lead = (len(rows), width) if s.per_step else (len(rows),)
        target = np.zeros((*lead, *tail), np.int64 if s.classes else np.float32)
        for i, (row, start, end) in enumerate(zip(rows, starts, ends, strict=True)):
            x[i, : end - start] = self._read("values", start, end, s.width)
            if dt is not None:
                dt[i, : end - start] = self._read("dt", start, end)
            if s.per_step:
                target[i, : end - start] = self._read("targets", start, end, *tail)
            else:
                target[i] = self._read("targets", row, row + 1, *tail)[0]
        if s.classes and not 0 <= target.min() <= target.max() < s.outputs:
            raise ValueError(f"targets run to {target.max()}; accepted: 0 to {s.outputs - 1}")
        return Rows(x, lengths, dt, target)

    def _read(self, part: str, start: int, end: int, *tail: int) -> np.ndarray:
        many = int(np.prod(tail, dtype=np.int64))
        return self.parts[part][int(start) * many : int(end) * many].reshape(-1, *tail)


def _array(path: Path, dtype: str, count: int) -> FileArray:
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not there; tsm-preprocess writes it")
    promised = count * np.dtype(dtype).itemsize
    if path.stat().st_size != promised:
        raise ValueError(f"{path}: {path.stat().st_size:,} bytes; meta.json promises {promised:,}")
    return FileArray(path, dtype, 0, count)
