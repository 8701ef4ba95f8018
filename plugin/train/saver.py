"""Decides which checkpoint files are written, and when old ones are deleted."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

from ..common.atomic import make_folder
from .checkpoint import to_bytes, write_checkpoint
from .lock import lock_folder
from .settings import LoopConfig

LAST, BEST = "checkpoint_last.pt", "checkpoint_best.pt"
_NUMBERED = re.compile(r"checkpoint(\d+)\.pt")


class Saver:
    """Writes checkpoint_last.pt, checkpoint_best.pt and checkpointN.pt into --save-dir.

    Inside `with saver:` the folder exists and is locked against other runs.
    """

    def __init__(self, config: LoopConfig, writes: bool = True) -> None:
        self.config = config
        self.folder = Path(config.save_dir)
        self.writes = writes and config.save
        self.last_good: Path | None = None
        self.held: dict[str, dict[str, Any] | bytes] = {}  # name -> checkpoint not written yet
        self.wrote = time.monotonic()  # the last write, or the start
        self.lock: BinaryIO | None = None

    def __enter__(self) -> Saver:
        if self.writes:
            make_folder(self.folder)
            self.lock = lock_folder(self.folder)
        if self.lock is not None:  # with the lock held, these can only be leftovers of a killed run
            for left in self.folder.glob(".checkpoint*.pt.*.tmp"):
                left.unlink(missing_ok=True)
        return self

    def __exit__(self, *error: object) -> None:
        if self.lock is not None:
            self.lock.close()
            self.lock = None

    def names(self, best: bool, finished_epoch: int | None = None) -> list[str]:
        """The files to write now. A numbered one is written every --save-interval epochs."""
        names = [BEST] if best else []
        c = self.config
        numbered = c.epoch_checkpoints and c.keep_last_epochs != 0
        if numbered and finished_epoch and finished_epoch % c.save_interval == 0:
            names.append(f"checkpoint{finished_epoch}.pt")
        return [*names, LAST]

    def write(self, checkpoint: dict[str, Any], names: list[str]) -> None:
        """Write the files, or hold a copy in memory if the last write, or the start of the run, was less than
        --hold-checkpoints-seconds ago."""
        if not self.writes:
            return
        if self._may_hold(names):
            self.held |= dict.fromkeys(names, _copied(checkpoint))
            self._drop_held()
            self.last_good = self.folder / names[-1]  # written whatever ends the training
            return
        self.held |= dict.fromkeys(names, to_bytes(checkpoint))
        self.flush()

    def _may_hold(self, names: list[str]) -> bool:
        """Whether writing may wait. It may not if the checkpoints of all epochs are kept, since they would
        accumulate in memory."""
        if self.config.keep_last_epochs < 1 and any(map(_NUMBERED.fullmatch, names)):
            return False
        return time.monotonic() - self.wrote < self.config.hold_checkpoints_seconds

    def flush(self) -> None:
        """Writes the held checkpoints, checkpoint_last.pt last: if it is complete, so are the others. After an
        error, those that are not written stay held: the end of training tries again."""
        held = sorted(self.held.items(), key=lambda item: item[0] == LAST)
        data: dict[int, bytes] = {}
        for name, checkpoint in held:
            key = id(checkpoint)
            if key not in data:
                data[key] = checkpoint if isinstance(checkpoint, bytes) else to_bytes(checkpoint)
            write_checkpoint(data[key], self.folder / name)
            self.last_good = self.folder / name
            del self.held[name]
        if held:
            self.wrote = time.monotonic()
            self._drop_old()

    def _drop_old(self) -> None:
        for name in self._too_old(path.name for path in self.folder.iterdir()):
            (self.folder / name).unlink(missing_ok=True)

    def _drop_held(self) -> None:
        for name in self._too_old(self.held):
            del self.held[name]

    def _too_old(self, names: Iterable[str]) -> list[str]:
        """The numbered files that are too old to be kept."""
        keep = self.config.keep_last_epochs
        if keep < 1:
            return []
        numbered = [(int(match[1]), name) for name in names if (match := _NUMBERED.fullmatch(name))]
        return [name for _, name in sorted(numbered)[:-keep]]


def _copied(checkpoint: dict[str, Any]) -> Any:
    """A copy of a checkpoint in host memory that training does not modify."""
    copy = _copy(checkpoint, {})
    if torch.cuda.is_initialized():
        torch.cuda.current_stream().synchronize()
    return copy


def _copy(value: Any, made: dict[Any, Tensor]) -> Any:
    """Copies from a GPU are only queued: they go to pinned memory. made: copies by the memory that they are of;
    tied weights are copied once."""
    if isinstance(value, Tensor):
        key = value.data_ptr(), value.dtype, value.shape, value.stride()
        if key not in made or not value.numel():
            copy = torch.empty_like(value, device="cpu", pin_memory=value.is_cuda)
            made[key] = copy.copy_(value.detach(), non_blocking=True)
        return made[key]
    if isinstance(value, dict):
        return type(value)((name, _copy(part, made)) for name, part in value.items())
    if isinstance(value, tuple) and hasattr(value, "_fields"):  # a named tuple
        return type(value)(*(_copy(part, made) for part in value))
    if isinstance(value, (list, tuple)):
        return type(value)(_copy(part, made) for part in value)
    return value
