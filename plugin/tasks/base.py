"""The interface of tasks for the training loop: batches, the sizes of a model, and metrics."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeAlias

from ..registry import Registry

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from ..cells import Cell
    from ..data.ranges import Ranges


@dataclass(frozen=True)
class Batch:
    """One update's worth of rows. Letters: B rows, T steps, I input width.

    x        tokens int64 [B,T] or values float [B,T,I]
    target   the desired output: [B,T] or [B,T,C] (a vector per step), [B] (one per sequence)
    weight   float [B,T], the weight of each step in loss and metrics; None: 1 for all
    lr_scale this update's learning rate relative to the schedule's (random BPTT lengths)
    """

    x: Tensor
    target: Tensor
    lengths: Tensor | None = None
    dt: Tensor | None = None
    weight: Tensor | None = None
    lr_scale: float = 1.0


Sums: TypeAlias = "Mapping[str, tuple[Tensor | float, Tensor | float]]"
"""Metric name -> (sum, count), added up over batches and processes and divided at the end. One-element tensors
stay on their device until then, to avoid synchronising with a GPU after every batch."""


class Names(NamedTuple):
    """What a trained model's data said of its inputs and outputs; None: nothing."""

    inputs: Sequence[str] | None
    labels: Sequence[str] | None  # of classes
    targets: Sequence[str] | None  # of outputs that are numbers
    ranges: Ranges | None  # of the inputs
    outputs: int  # how many classes, or numbers


class Task:
    """A source of batches. A task is a subclass with a frozen dataclass `Config`, registered with
    `register_task`.

    Batches depend only on (seed, epoch, index), so that a stopped run can continue from two numbers. They are
    parts of a global batch: process `rank` of `world` takes its share of the rows.
    """

    name: ClassVar[str] = ""
    Config: ClassVar[type] = type(None)
    family: ClassVar[str] = "lm"  # or "classifier", "tagger"
    criterion: ClassVar[str] = "cross_entropy"
    stateful: ClassVar[bool] = False  # the next batch starts from the state at the end of this one

    def __init__(self, config: Any, rank: int = 0, world: int = 1) -> None:
        import torch

        self.config = config
        self.rank = rank
        self.world = world
        self.device = torch.device("cpu")

    def check_trainable(self) -> None:
        """Raises ValueError if the data can be evaluated, but not trained on."""

    def model_arguments(self) -> dict[str, Any]:
        """Arguments of `build_model` that depend on the data: vocab_size=, num_classes=, input_size=."""
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
        """Keeps the data and makes the batches on this device, if the task supports it. The batches are the
        same, but cost less host time. Called before the first batch."""
        self.device = device

    def metrics(self, logits: Tensor, batch: Batch) -> Sums:
        """Metrics of the task besides the loss, e.g. {"accuracy": (right, rows)}."""
        return {}

    def model_wishes(self, cell: type[Cell]) -> dict[str, Any]:
        """Settings that the task prefers for a model with this cell, unless the user chooses others."""
        return {}

    def takes_dt(self) -> bool:
        """Whether the batches have dt, for cells that take it."""
        return False

    def arrange_for(self, model: Names) -> None:
        """Gives inputs and targets the order in which a trained model has them, by its names; ValueError if one
        is missing."""

    def assets(self) -> dict[str, bytes]:
        """Files to store in a checkpoint, so that its model can be used without the data: name -> bytes."""
        return {}

    def summary(self) -> str:
        """One line for the log that describes the data."""
        return self.name


def check_splits(data: str, splits: Collection[str]) -> None:
    """Raises ValueError if the folder `data` has no split to train on, or none to validate on."""
    for split in ("train", "valid"):
        if split not in splits:
            raise ValueError(
                f"{data} has no {split} split; tsm-preprocess makes one from --{split}pref or --split"
            )


TASKS: Registry[type[Task]] = Registry("task")


def register_task(name: str) -> Any:
    """Class decorator: registers a Task as `name`."""

    def enter(cls: type[Task]) -> type[Task]:
        cls.name = name
        return TASKS.register(name)(cls)

    return enter
