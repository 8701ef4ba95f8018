"""Options of preprocessing besides the data itself, checked in one place."""

from __future__ import annotations

from dataclasses import dataclass

from ...common.rng import check_seed
from .parallel import check_workers
from .pipeline import Progress


@dataclass(frozen=True)
class Options:
    """The flags of tsm-preprocess that apply to every data set."""

    seed: int = 0
    workers: int = 1
    threshold: int = 0
    nwords: int = 0
    allow_differences: bool = False
    progress: Progress | None = None

    def __post_init__(self) -> None:
        check_seed(self.seed)
        check_workers(self.workers)
        if self.threshold < 0:
            raise ValueError(f"--threshold is {self.threshold}; accepted: 0 (keep all) or more")
        if self.nwords < 0 or self.nwords == 1:
            raise ValueError(f"--nwords is {self.nwords}; accepted: 0 (no limit) or at least 2")

    def accept(self, name: str, differences: list[str]) -> None:
        """Raises an error if known counts do not match, unless the user allows differences."""
        if differences and not self.allow_differences:
            raise ValueError(
                f"{name} is not the known data set: {'; '.join(differences)} "
                "(a truncated or changed file? --allow-differences accepts it)"
            )
