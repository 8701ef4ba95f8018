"""Sequences of numbers -> a folder of raw arrays (../series.py). The first pass finds labels, sizes and splits,
the second writes. Only one sequence is in memory at a time."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ...common.atomic import atomic_file
from ...common.lazy import np
from ..meta import SPLITS, Meta
from ..readers.numbers import Columns, Series, SeriesFile
from ..series import F32, I32, I64, TASKS, Shape
from .labelled import balance_note, in_order
from .options import Options
from .pipeline import open_bar
from .shares import Shares, deal

LARGE = 10.0  # absolute value of an input or a target


@dataclass
class Found:
    """The result of the first pass over a file."""

    widths: tuple[int, int] = (0, 0)  # widths of x and of a numeric target
    dt: bool = False
    shortest: float = math.inf
    lowest: np.ndarray | float = math.inf  # of each input
    highest: np.ndarray | float = -math.inf
    largest_target: np.ndarray | float = 0.0  # absolute values, per numeric target
    names: dict[str, int] = field(default_factory=dict)  # label -> number, in order of appearance
    places: list[str] = field(default_factory=list)  # where each label first occurs
    # The number of each sequence's label.
    firsts: array[int] = field(default_factory=lambda: array("q"))
    count: int = 0

    def add(self, series: Series) -> None:
        target = series.target
        assert target is not None  # these readers always read targets
        labels = target.dtype.kind == "U"
        widths = series.x.shape[1], 0 if labels else target.shape[-1]
        if not self.count:
            self.widths, self.dt = widths, series.dt is not None
        if widths != self.widths:
            raise ValueError(
                f"{series.where}: {widths[0]} values and {widths[1]} numbers as a target; accepted: "
                f"{self.widths[0]} and {self.widths[1]}, as in the first sequence"
            )
        self.lowest = np.minimum(self.lowest, series.x.min(axis=0, initial=math.inf))
        self.highest = np.maximum(self.highest, series.x.max(axis=0, initial=-math.inf))
        if not labels:
            sizes = np.abs(target).reshape(-1, widths[1])
            self.largest_target = np.maximum(self.largest_target, sizes.max(axis=0))
        if series.dt is not None:
            self.shortest = min(self.shortest, float(series.dt.min()))
        for label in np.unique(target).tolist() if labels else ():
            if self.names.setdefault(label, len(self.names)) == len(self.places):
                self.places.append(series.where)
        whole = labels and not target.ndim  # with per-step labels the split is not stratified
        self.firsts.append(self.names[str(target)] if whole else 0)
        self.count += 1


def build_series(
    files: Mapping[str, SeriesFile],
    out: Path,
    options: Options,
    shares: Shares | None,
    columns: Columns,
) -> Meta:
    """Writes everything into the folder `out`. columns: the roles of a table's columns."""
    found = {split: _scan(file, split, options) for split, file in files.items()}
    first, train = next(iter(found.items()))  # train, or a split that a model is evaluated on
    for split, other in found.items():
        if (other.widths, other.dt) != (train.widths, train.dt):
            raise ValueError(
                f"{files[split].name} has {other.widths[0]} values, {other.widths[1]} targets and "
                f"dt: {other.dt}; {first} has {train.widths[0]}, {train.widths[1]} and {train.dt}"
            )
    every = [train] if first == "train" else found.values()
    names_found = {name for one in every for name in one.names}
    labels = in_order(names_found) if names_found else None
    for other in found.values():
        for name, where in zip(other.names, other.places, strict=True):
            if name not in names_found:
                raise ValueError(f"{where}: the label {name!r} is not in the training split")
    if labels is not None and len(labels) < 2 and first == "train":
        raise ValueError(f"every label is {labels[0]!r}; accepted: two labels or more")
    outputs = train.widths[1] if labels is None else len(labels)
    shape = Shape(
        width=train.widths[0],
        outputs=outputs,
        classes=labels is not None,
        per_step=columns.per_step,
        dt=train.dt,
        columns=list(columns.values),
        targets=list(columns.targets),
        shortest_dt=float(min(f.shortest for f in found.values())) if train.dt else 1.0,
        ranges=np.stack([train.lowest, train.highest], 1).astype(float).tolist(),
        roles=columns.roles or ({"dt": "dt"} if train.dt else {}),  # an array of a .npz file
    )
    dealt = None if shares is None else deal(np.array(train.firsts), shares, options.seed)
    names = tuple(files) if shares is None else SPLITS[: len(shares)]
    splits, classes = {}, []
    for number, split in enumerate(names):
        keep = None if dealt is None else dealt == number
        if keep is not None and not keep.any():
            raise ValueError(
                f"--split: {split} gets none of the {train.count:,} sequences; accepted: more "
                f"sequences, or a larger share for {split}"
            )
        file = files[split if dealt is None else "train"]
        splits[split], counts = _write(file, keep, out / split, shape, labels, options)
        classes.append(counts)
    notes = [] if labels is None or first != "train" else balance_note(classes[0], labels)
    notes += _both(columns.values, (*columns.targets, columns.label or ""))
    largest = np.maximum(np.abs(train.lowest), np.abs(train.highest))
    notes += _large("inputs saturate the gates", largest, columns.values)
    notes += _large("targets are learned slowly", train.largest_target, columns.targets)
    rule = "the user's files"
    if shares is not None:
        rule = f"shares {', '.join(f'{s:g}' for s in shares)} of one file, by seed {options.seed}"
    return Meta(
        task=TASKS[columns.per_step],
        dataset=None,
        tokenizer=None,
        splits=splits,
        split_rule=rule,
        seed=options.seed,
        num_classes=None if labels is None else outputs,
        labels=labels,
        series=asdict(shape),
        sources={split: file.name for split, file in files.items()},
        notes=notes,
    )


def _both(values: tuple[str, ...], targets: tuple[str, ...]) -> list[str]:
    """A note if a target or the class can be read off the inputs."""
    both = [name for name in targets if name in values]
    if not both:
        return []
    return [
        f"a model can copy what it should predict, since it is also an input: {', '.join(both)}"
    ]


def _large(effect: str, largest: np.ndarray | float, names: tuple[str, ...]) -> list[str]:
    """A note if values are so large that training suffers."""
    sizes = np.atleast_1d(largest)
    large = np.flatnonzero(sizes > LARGE).tolist()
    if not large:
        return []
    shown = [
        f"{names[i] if names else f'number {i + 1}'} (up to {sizes[i]:.3g})" for i in large[:5]
    ]
    more = ", ..." * (len(large) > len(shown))
    return [f"large {effect}; scale them first: {', '.join(shown)}{more}"]


def _scan(file: SeriesFile, split: str, options: Options) -> Found:
    found = Found()
    bar = open_bar(options.progress, f"reading {split}")
    try:
        for series in file.series():
            found.add(series)
            bar.update(len(series.x))
    finally:
        bar.close()
    if not found.count:
        raise ValueError(f"{file.name} has no sequence; accepted: at least one")
    return found


def _write(
    file: SeriesFile,
    keep: np.ndarray | None,
    prefix: Path,
    shape: Shape,
    labels: list[str] | None,
    options: Options,
) -> tuple[dict[str, Any], np.ndarray]:
    """Writes one split; returns its statistics and how often each class occurs."""
    ids = {name: number for number, name in enumerate(labels or ())}
    counts = np.zeros(max(len(ids), 1), np.int64)
    sequences = steps = 0
    bar = open_bar(options.progress, prefix.name)
    parts = ["values", "offsets", "targets", *(["dt"] if shape.dt else [])]
    try:
        with ExitStack() as stack:
            open_part = lambda part: stack.enter_context(  # noqa: E731
                atomic_file(prefix.with_name(f"{prefix.name}.{part}"))
            )
            out = {part: open_part(part) for part in parts}
            out["offsets"].write(np.zeros(1, I64).tobytes())
            for number, series in enumerate(file.series()):
                if keep is not None and not keep[number]:
                    continue
                sequences, steps = sequences + 1, steps + len(series.x)
                out["values"].write(series.x.astype(F32).tobytes())
                out["offsets"].write(np.array([steps], I64).tobytes())
                if shape.dt and series.dt is not None:
                    out["dt"].write(series.dt.astype(F32).tobytes())
                target = series.target
                assert target is not None
                if labels is not None:
                    numbers = np.array([ids[name] for name in np.atleast_1d(target).tolist()], I32)
                    counts += np.bincount(numbers, minlength=len(counts))
                    out["targets"].write(numbers.tobytes())
                else:
                    out["targets"].write(target.astype(F32).tobytes())
                bar.update(len(series.x))
    finally:
        bar.close()
    size = sum(prefix.with_name(f"{prefix.name}.{part}").stat().st_size for part in parts)
    return {"lines": sequences, "tokens": steps, "bytes": size}, counts
