"""What the training loop needs to know of a task: batches, the shape of a model, and how to score it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from ..registry import Registry

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from ..cells import Cell


@dataclass(frozen=True)
class Batch:
    """One update's worth of rows. Letters: B rows, T steps, I input width.

    x        tokens int64 [B,T] or values float [B,T,I]
    target   what the model should say: [B,T] or [B,T,C] (a vector per step), [B] (one per sequence)
    weight   float [B,T], how much each step counts in loss and metrics; None: all count 1
    lr_scale this update's learning rate relative to the schedule's (random BPTT lengths)
    """

    x: Tensor
    target: Tensor
    lengths: Tensor | None = None
    dt: Tensor | None = None
    weight: Tensor | None = None
    lr_scale: float = 1.0


Sums: TypeAlias = "Mapping[str, tuple[Tensor | float, Tensor | float]]"
"""Metric name -> (sum, count): batches and processes are merged by adding, divided at the end. One-element
tensors stay on their device until then, to avoid synchronising with a GPU in every batch."""


class Task:
    """A source of batches. Subclass with a frozen dataclass `Config`, and `register_task`.

    Batches are a function of (seed, epoch, index) alone, so that a stopped run continues from two numbers, and
    of the global batch: process `rank` of `world` takes its share of the rows of the same batch.
    """

    name: ClassVar[str] = ""
    Config: ClassVar[type] = type(None)
    family: ClassVar[str] = "lm"  # or "classifier", "tagger"
    criterion: ClassVar[str] = "cross_entropy"
    stateful: ClassVar[bool] = False  # the state at the end of a batch starts the next one

    def __init__(self, config: Any, rank: int = 0, world: int = 1) -> None:
        import torch

        self.config = config
        self.rank = rank
        self.world = world
        self.device = torch.device("cpu")

    def model_arguments(self) -> dict[str, Any]:
        """Arguments of `build_model` that the data decides: vocab_size=, num_classes=, input_size=."""
        raise NotImplementedError

    def batches_per_epoch(self, epoch: int) -> int:
        raise NotImplementedError

    def train_batches(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """Batches start, start + 1, ... of an epoch (counted from 1)."""
        raise NotImplementedError

    def eval_batches(self, split: str) -> Iterator[Batch]:
        """All batches of "valid" or "test", always the same."""
        raise NotImplementedError

    def keep_on(self, device: torch.device) -> None:
        """Keep the data there and make batches there, as far as the task can: the same batches as
        without, at less cost for a host that has a GPU to feed. Called before the first batch."""
        self.device = device

    def metrics(self, logits: Tensor, batch: Batch) -> Sums:
        """What the task counts besides the loss, e.g. {"accuracy": (right, rows)}."""
        return {}

    def model_wishes(self, cell: type[Cell]) -> dict[str, Any]:
        """Settings of a model of this cell that the task needs, unless others are chosen."""
        return {}

    def takes_dt(self) -> bool:
        """Whether its batches carry dt where the model's cell takes it."""
        return False

    def assets(self) -> dict[str, bytes]:
        """Files that a checkpoint carries, so that its model can be used without the data: name -> bytes."""
        return {}

    def summary(self) -> str:
        """One line for the log: what the data is."""
        return self.name


TASKS: Registry[type[Task]] = Registry("task")


def register_task(name: str) -> Any:
    """Class decorator: registers a Task as `name`."""

    def enter(cls: type[Task]) -> type[Task]:
        cls.name = name
        return TASKS.register(name)(cls)

    return enter
