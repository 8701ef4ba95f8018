"""Finds the data of an experiment: a preprocessed folder, made from the official files on first use.

DATA_BIN/NAME         what `tsm-preprocess --dataset NAME` writes (default: data-bin/NAME)
$TSM_DATA, or --data  the official files
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from ..data.build.options import Options
from ..data.build.prepare import prepare
from .stand_in import make_stand_in

BIN = "data-bin"


class NoData(FileNotFoundError):
    """The data of an experiment is not on this machine."""


@dataclass(frozen=True)
class DataRoom:
    """Finds the folder of a data set or, with `small`, makes a tiny one of the same kind."""

    bin: Path = Path(BIN)
    raw: Path | None = None
    small: bool = False

    def folder(self, name: str) -> str:
        """The preprocessed folder, or "" for a task that generates its data; NoData if it is missing."""
        if not name:
            return ""
        folder = self.bin / name
        if (folder / "meta.json").is_file():
            return str(folder)
        if self.small:
            make_stand_in(name, folder)
            return str(folder)
        named = self.raw or os.environ.get("TSM_DATA")
        advice = (
            f"set TSM_DATA, give --data DIR, or run tsm-preprocess --dataset {name} --from DIR "
            f"--destdir {folder}"
        )
        if not named:
            raise NoData(f"{name} is not in {folder} (preprocessed); {advice}")
        try:
            prepare(name, Path(named), folder, Options())
        except FileNotFoundError as error:
            raise NoData(
                f"{name} is neither in {folder} (preprocessed) nor in {named} (official files): "
                f"{error}; {advice}"
            ) from error
        return str(folder)
