"""Criterions: the loss as a weighted sum, with the count to divide it by.

    cross_entropy   sum_i w_i (-log softmax(z_i)[y_i])     targets are classes; logged in bits
    mse             sum_i w_i mean_c (z_ic - y_ic)^2       targets are numbers
    sigmoid_mse     the same for sigmoid(z)                 targets are numbers from 0 to 1

i runs over steps, or over rows if the model has one output per sequence. The sums of micro-batches and
processes add up to those of the whole batch, so the mean does not depend on how a batch is split.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from .data.labels import LABELS, TARGETS, dump_labels, numbered
from .registry import Registry
from .tasks.base import Batch

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from .models.sequence_model import SequenceModel


class Criterion:
    """criterion(logits, batch) -> (sum, count), both one-element tensors."""

    name: ClassVar[str] = ""
    unit: ClassVar[float] = 1.0  # a logged loss is mean / unit
    in_float32: ClassVar[bool] = True  # whether `losses` gets the logits in float32
    # Whether outputs are logits of classes; else they are numbers. None: if the task names classes.
    classes: ClassVar[bool | None] = None

    def __call__(self, logits: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        losses = self.losses(logits.float() if self.in_float32 else logits, batch.target)
        if batch.weight is None:
            return losses.sum(), losses.new_full((), losses.numel())
        if batch.weight.shape != losses.shape:
            raise ValueError(
                f"weight has shape {tuple(batch.weight.shape)}; accepted: that of the losses, "
                f"{tuple(losses.shape)}"
            )
        return (losses * batch.weight).sum(), batch.weight.sum()

    def losses(self, logits: Tensor, target: Tensor) -> Tensor:
        """The loss of each step or row."""
        raise NotImplementedError


CRITERIONS: Registry[type[Criterion]] = Registry("criterion")


def register_criterion(name: str) -> Any:
    """Class decorator: registers a Criterion as `name`."""

    def enter(cls: type[Criterion]) -> type[Criterion]:
        cls.name = name
        return CRITERIONS.register(name)(cls)

    return enter


@register_criterion("cross_entropy")
class CrossEntropy(Criterion):
    """-log p of the right class."""

    unit = math.log(2)
    in_float32 = False  # a kernel converts them
    classes = True

    def losses(self, logits: Tensor, target: Tensor) -> Tensor:
        _same_shape(logits.shape[:-1], target, "classes")
        from .layers.row_loss import row_losses

        flat = row_losses(logits.reshape(-1, logits.shape[-1]), target.reshape(-1))
        return flat.view(target.shape)


@register_criterion("mse")
class MeanSquaredError(Criterion):
    """Mean over the C outputs of the squared error."""

    classes = False

    def losses(self, logits: Tensor, target: Tensor) -> Tensor:
        _same_shape(logits.shape, target, "numbers")
        return (logits - target).square().mean(-1)


@register_criterion("sigmoid_mse")
class SigmoidMeanSquaredError(MeanSquaredError):
    """Mean squared error of the outputs' sigmoids, between 0 and 1."""

    def losses(self, logits: Tensor, target: Tensor) -> Tensor:
        return super().losses(logits.sigmoid(), target)


def _same_shape(wanted: torch.Size, target: Tensor, what: str) -> None:
    if target.shape != wanted:
        raise ValueError(
            f"target has shape {tuple(target.shape)}; accepted for this model: {what} "
            f"{tuple(wanted)}"
        )


def with_output_names(
    files: Mapping[str, bytes], criterion: Criterion | type[Criterion], model: SequenceModel
) -> dict[str, bytes]:
    """A checkpoint's files, in which targets.txt says that outputs are numbers, whoever reads them. If the task
    does not name these, they are called as in its labels.txt, or y0, y1, ..."""
    named = dict(files)
    classes = LABELS in files if criterion.classes is None else criterion.classes
    if not classes and model.name != "lm":
        names = named.pop(LABELS, None) or dump_labels(numbered(model.decoder.out_features))
        named.setdefault(TARGETS, names)
    return named
