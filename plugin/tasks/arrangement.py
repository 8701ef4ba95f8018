"""Sequences of numbers in the order of a trained model: its inputs, labels and targets, by their names."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..common.lazy import np
from ..data.labels import places
from ..data.meta import Meta
from ..data.ranges import FarOutside, Ranges, note
from ..data.series import Rows, Shape
from .rows import valid_steps


@dataclass
class Arrangement:
    """None: as they are.

    inputs, targets: where the folder has each of the model's. labels: the model's number of each label of the
    folder. ranges: of the model's training data, until a value far outside was told; names: of the inputs.
    """

    inputs: list[int] | None = None
    targets: list[int] | None = None
    labels: np.ndarray | None = None
    ranges: Ranges | None = None
    names: Sequence[str] = ()

    @classmethod
    def of(
        cls,
        data: str,
        meta: Meta,
        shape: Shape,
        inputs: Sequence[str] | None,
        outputs: Sequence[str] | None,
        ranges: Ranges | None,
    ) -> Arrangement:
        """For the folder `data`. inputs, outputs: the model's names; None: it has none."""
        found = cls(ranges=ranges, names=inputs or shape.columns)
        if inputs and shape.columns and [*inputs] != shape.columns:
            found.inputs = places(inputs, shape.columns, f"{data} lacks inputs of the model")
        if outputs and meta.labels and [*outputs] != meta.labels:
            found.labels = np.array(
                places(meta.labels, outputs, f"the model lacks labels of {data}")
            )
        if outputs and shape.targets and [*outputs] != shape.targets:
            found.targets = places(outputs, shape.targets, f"{data} lacks targets of the model")
        return found

    def __call__(self, rows: Rows, where: str) -> Rows:
        x, target = rows.x, rows.target
        if self.inputs is not None:
            x = x[..., self.inputs]
        if self.labels is not None:
            target = self.labels[target]
        if self.targets is not None:
            target = target[..., self.targets]
        if self.ranges is not None:
            there = x[valid_steps(rows.lengths, x.shape[1])]
            if far := self.ranges.outside(there, self.names):
                self.ranges = None
                warnings.warn(note(where, far), FarOutside, stacklevel=2)
        return replace(rows, x=x, target=target)
