"""Results on disk, for each run (variant, seed):

ROOT/HOME/VARIANT-seedN.json     its summary: small, to be committed
ROOT/HOME/VARIANT/seed-N/        checkpoints and history: large, not committed
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from ..common.atomic import make_folder, write_bytes
from .recipe import Variant

FORMAT = 2
OLDER = 1  # the format without `origin`
DIVERGED = "diverged"  # start of `stopped` if a loss was not finite


@dataclass(frozen=True)
class Summary:
    """The summary of a run.

    complete   the recipe was completed (its epochs, its goal, or its limit of updates)
    stopped    why it ended
    epochs     epochs done; of_epochs and of_updates: the recipe's limits, 0 for none
    metrics    those of the best checkpoint by name; empty until something is measured
    history    validations, thinned
    origin     commit, command and data (origin.py); empty in older summaries
    """

    home: str
    variant: str
    seed: int
    complete: bool
    stopped: str
    epochs: float
    of_epochs: int
    updates: int
    of_updates: int
    metrics: dict[str, Any]
    seconds: float
    precision: str
    backend: str
    hardware: dict[str, Any]
    versions: dict[str, str]
    parameters: int = 0
    config: dict[str, Any] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    details: dict[str, Any] = field(default_factory=dict)
    origin: dict[str, str] = field(default_factory=dict)

    @property
    def ended(self) -> bool:
        """Whether nothing is left to do. Something is left if --max-epoch ended the run before its limit of
        updates."""
        too_early = self.stopped.startswith("--max-epoch") and self.updates < self.of_updates
        return self.complete and not too_early

    @property
    def diverged(self) -> bool:
        return self.stopped.startswith(DIVERGED)


@dataclass(frozen=True)
class Store:
    """The results under one folder."""

    root: Path

    def path(self, variant: Variant, seed: int) -> Path:
        return self.root / variant.home / f"{variant.name}-seed{seed}.json"

    def folder(self, variant: Variant, seed: int) -> Path:
        return self.root / variant.home / variant.name / f"seed-{seed}"

    def read(self, variant: Variant, seed: int) -> Summary | None:
        """The summary, or None if there is none yet."""
        path = self.path(variant, seed)
        if not path.is_file():
            return None
        try:
            values = json.loads(path.read_text())
        except ValueError as error:
            raise ValueError(f"{path} is damaged ({error})") from error
        number = values.pop("format", None) if isinstance(values, dict) else None
        if number not in (OLDER, FORMAT):
            raise ValueError(
                f"{path} is not a summary of tsm-reproduce in format {OLDER} or {FORMAT}"
            )
        if number == OLDER:
            values["origin"] = {}
        known = {f.name for f in fields(Summary)}
        if set(values) != known:
            odd = ", ".join(sorted(set(values) ^ known))
            raise ValueError(f"{path}: {odd}; accepted: exactly the fields of a summary")
        return Summary(**values)

    def write(self, variant: Variant, summary: Summary) -> None:
        path = self.path(variant, summary.seed)
        make_folder(path.parent)
        values = {"format": FORMAT, **asdict(summary)}
        lines = [f" {json.dumps(k)}: {json.dumps(v, allow_nan=False)}" for k, v in values.items()]
        write_bytes(path, ("{\n" + ",\n".join(lines) + "\n}\n").encode())

    def all_of(self, variant: Variant) -> list[Summary]:
        """Every seed's summary, in the order of seeds."""
        folder, start = self.root / variant.home, f"{variant.name}-seed"
        names = os.listdir(folder) if folder.is_dir() else []  # 5 times as fast as glob
        numbers = sorted(
            int(name[len(start) : -5])
            for name in names
            if name.startswith(start) and name.endswith(".json")
        )
        found = (self.read(variant, seed) for seed in numbers)
        return [summary for summary in found if summary is not None]
