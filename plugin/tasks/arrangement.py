"""Sequences of numbers in the order of a trained model: its inputs, labels and targets, by their names."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..common.lazy import np
from ..data.labels import other_targets, places
from ..data.meta import Meta
from ..data.ranges import FarOutside, Ranges, note
from ..data.series import Rows, Shape
from .base import Names
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
    def of(cls, data: str, meta: Meta, shape: Shape, model: Names) -> Arrangement:
        """For the folder `data`."""
        kinds = {"classes": model.labels, "numbers": model.targets}
        there = "classes" if shape.classes else "numbers"
        known = [kind for kind, names in kinds.items() if names]
        if known and there not in known:
            raise ValueError(
                f"the targets of {data} are {there}; the model's outputs are {known[0]}"
            )
        found = cls(names=model.inputs or shape.columns)
        if model.ranges is not None and len(model.ranges.pairs) == shape.width:
            found.ranges = model.ranges
        if model.inputs and shape.columns and [*model.inputs] != shape.columns:
            lacks = f"{data} lacks inputs of the model"
            found.inputs = places(model.inputs, shape.columns, lacks)
            found.ranges = model.ranges
        found.labels = numbers_of_labels(data, meta.labels, model)
        if other_targets(model.targets, shape.targets):
            lacks = f"{data} lacks targets of the model"
            found.targets = places(model.targets or (), shape.targets, lacks)
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


def numbers_of_labels(data: str, labels: Sequence[str] | None, model: Names) -> np.ndarray | None:
    """The model's number of each label of the folder `data`; None if they are the same."""
    if model.labels is None and labels and len(labels) != model.outputs:
        raise ValueError(
            f"{data} has {len(labels)} labels; the model has {model.outputs}, whose names it does not know"
        )
    if not labels or not model.labels or [*labels] == [*model.labels]:
        return None
    return np.array(places(labels, model.labels, f"the model lacks labels of {data}"))
