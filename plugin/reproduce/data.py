"""Where an experiment's data is: a preprocessed folder, made on first use from the official files.

DATA_BIN/NAME        what `tsm-preprocess --dataset NAME` writes (default: data-bin/NAME)
$TSM_DATA            the official files; without it ../shared/data beside the checkout
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from ..data.options import Options
from ..data.prepare import prepare
from .stand_in import make_stand_in

BIN = "data-bin"
BESIDE = "../shared/data"


class NoData(FileNotFoundError):
    """The data of an experiment is not on this machine."""


@dataclass(frozen=True)
class DataRoom:
    """Finds the folder of a data set; with `small` a tiny generated one of the same kind."""

    bin: Path = Path(BIN)
    raw: Path | None = None
    small: bool = False

    def folder(self, name: str) -> str:
        """The preprocessed folder, or "" for a task that makes its data; NoData with the reason."""
        if not name:
            return ""
        folder = self.bin / name
        if (folder / "meta.json").is_file():
            return str(folder)
        if self.small:
            make_stand_in(name, folder)
            return str(folder)
        root = self.raw or Path(os.environ.get("TSM_DATA") or BESIDE)
        try:
            prepare(name, root, folder, Options())
        except FileNotFoundError as error:
            raise NoData(
                f"{name} is neither in {folder} (preprocessed) nor in {root} (official files): "
                f"{error}; set TSM_DATA, or run tsm-preprocess --dataset {name} --from DIR "
                f"--destdir {folder}"
            ) from error
        return str(folder)
