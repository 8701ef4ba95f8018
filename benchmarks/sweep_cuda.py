"""tsm-bench train --device cuda --sweep: one layer at many shapes on a GPU, beside cuDNN's LSTM.

    tsm-bench train --device cuda --sweep --minutes 8 --json sweep.json --picture sweep.png
    tsm-bench train --device cuda --sweep --minutes 0 --json sweep.json     only the report; needs no GPU

Shapes: a grid of B x H with I = H and 64 steps; some with I = 1; some with up to 4,096 steps; and twelve drawn
at random from --seed, so that nobody can have tuned for them. Each layer is timed in replays of a CUDA graph
(back to back where torch cannot capture it). The file is written after every shape; a later run continues it.

Beside each time: three floors (train_cuda.py has two; the third is the wait for h, and in backward dz, to reach
every multiprocessor), the planner's choice, and the time that the planner expects: that of the recurrence, plus
that of the matrix products before and after it, at the rate of a large one.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..plugin.cells import get_cell
from ..plugin.common.atomic import write_bytes
from ..plugin.layers import Recurrent
from ..plugin.layers.core import DTYPES, _core, cell_info
from ..plugin.layers.gpu import widened
from . import train_cuda
from .goals import Goal, goal_table, over
from .machine import machine
from .plot import heat_maps
from .results import aligned
from .train_cpu import LIMIT, Shape

CELLS = ["plstm", "lstm"]
BATCHES = (1, 16, 64, 256, 1024)
WIDTHS = (64, 128, 256, 512, 1024, 1500, 2048, 3072)
STEPS = 64
DRAWN = 12
RIVALS = ("cuDNN bfloat16", "cuDNN tf32")
SMALL = 64  # units of the layers that are also timed in float32
SHARED = 227 * 1024  # bytes for U in one multiprocessor
CLUSTER = 16  # blocks
WAITS = {"cluster": 0.43, "grid": 1.4}
"""Microseconds for one exchange of h or dz, measured on an H200 (docs/internals/measured_recurrence.md)."""
LAUNCHES = 4  # of a step without a team


@dataclass(frozen=True)
class Row:
    """One layer at one shape: microseconds per step, forward and backward."""

    kind: str  # of the shape
    shape: Shape
    layer: str
    us: float
    graph: bool = True  # replays of a CUDA graph; False: calls back to back
    difference: float | None = None  # from the reference, relative to the largest value
    plans: tuple[str, ...] = ()  # forward, backward
    predicted_us: float | None = None
    wrong: str = ""  # which tensor differs from the reference by more than rounding


def shapes(seed: int) -> dict[Shape, str]:
    """B,T,I,H -> the kind of shape."""
    found: dict[Shape, str] = {(b, STEPS, h, h): "B x H" for h in WIDTHS for b in BATCHES}
    found |= dict.fromkeys(drawn(seed, set(found)), "drawn")
    found |= {(b, STEPS, 1, h): "I = 1" for h in (128, 512, 2048) for b in (1, 64, 1024)}
    long = [
        (128, 1024, 128, 128),
        (32, 4096, 128, 128),
        (8, 4096, 512, 512),
        (64, 1024, 1024, 1024),
    ]
    return found | dict.fromkeys(long, "long")


def drawn(seed: int, known: set[Shape]) -> list[Shape]:
    """Random shapes between the listed ones: B and H are drawn log-uniformly; I is 1, H or another number."""
    draw = random.Random(seed)

    def between(low: int, high: int) -> int:
        return round(math.exp(draw.uniform(math.log(low), math.log(high))))

    found: list[Shape] = []
    while len(found) < DRAWN:
        batch, hidden = between(1, 1024), between(64, 3072)
        inputs = draw.choice([1, hidden, between(1, 1024)])
        shape = (batch, between(16, 256), inputs, hidden)
        if shape not in known and shape not in found:
            found.append(shape)
    return found


def exchange_floor(gates: int, hidden: int) -> float:
    """Microseconds per step for passing h and dz between multiprocessors, if U stays on them in bfloat16."""
    blocks = math.ceil(gates * hidden * hidden * 2 / SHARED)
    return 0.0 if blocks == 1 else 2 * WAITS["cluster" if blocks <= CLUSTER else "grid"]


def floors(row: Row, rate: tuple[float, float]) -> tuple[float, float, float]:
    """Lower bounds for the time of a row in bfloat16: products, memory, exchange."""
    name = row.layer.partition(" ")[0]
    info = cell_info("lstm" if name == "cuDNN" else name)
    read = int(info["reads"]).bit_count()
    two = train_cuda.floors(row.shape, info["gates"], read, rate)
    return *two, exchange_floor(info["gates"], row.shape[3])


def outside_us(shape: Shape, gates: int, rate: tuple[float, float]) -> float:
    """Time of the matrix products before and after the recurrence, per step: W x, dx, and the gradients of W
    and U."""
    batch, _, inputs, hidden = shape
    return 2 * batch * gates * hidden * (3 * inputs + hidden) / rate[0]


def planned(
    cell: str, dtype: torch.dtype, shape: Shape, rate: tuple[float, float]
) -> tuple[tuple[str, ...], float | None]:
    """Returns (plans forward and backward, expected time); the time is None if the planner has no estimate."""
    batch, _, _, hidden = shape
    if not get_cell(cell).gates_of("h"):
        return ("steps", "steps"), None
    how: dict[str, Any] = {"cell": cell, "dtype": DTYPES[dtype], "device": 0, "batch": batch}
    both = [
        _core.recurrence_cuda_plan(**how, hidden=widened(hidden), backward=b) for b in (False, True)
    ]
    if not all(words for words, _ in both):  # both directions run as steps
        return ("steps", "steps"), None
    us = sum(us for _, us in both) + outside_us(shape, cell_info(cell)["gates"], rate)
    return tuple(words for words, _ in both), us


def measure(kind: str, shape: Shape, cells: list[str], rate: tuple[float, float]) -> list[Row]:
    """cuDNN's rows, then tsm's. A layer that differs from the reference is also timed, but marked as wrong."""
    _, _, inputs, hidden = shape
    rows = []
    for name in RIVALS:
        dtype = torch.bfloat16 if name.endswith("bfloat16") else torch.float32
        torch.backends.cudnn.allow_tf32 = name.endswith("tf32")
        lstm = nn.LSTM(inputs, hidden, batch_first=True, device="cuda", dtype=dtype)
        rows.append(Row(kind, shape, name, *_timed(lstm, dtype, shape, True)))
    for cell in cells:
        for dtype in _dtypes(cell, shape):
            worst, where = train_cuda.compare(shape, cell, dtype)
            wrong = "" if worst <= LIMIT[dtype] else where
            plans, expected = planned(cell, dtype, shape, rate)
            with torch.device("cuda"):
                layer = Recurrent(cell, inputs, hidden, backend="fused").to(dtype)
            small = plans[0] != "steps" or shape[1] * LAUNCHES < train_cuda.LARGEST_GRAPH
            us, graph = _timed(layer, dtype, shape, small)
            name = f"{cell} {DTYPES[dtype]}"
            rows.append(Row(kind, shape, name, us, graph, worst, plans, expected, wrong))
    return rows


def _dtypes(cell: str, shape: Shape) -> list[torch.dtype]:
    exact = cell == "plstm" and shape[3] == SMALL
    return [torch.bfloat16, torch.float32] if exact else [torch.bfloat16]


def _timed(layer: nn.Module, dtype: torch.dtype, shape: Shape, graph: bool) -> tuple[float, bool]:
    """Returns (microseconds per step, whether timed in a CUDA graph)."""
    batch, steps, inputs, hidden = shape
    x = torch.randn(batch, steps, inputs, device="cuda", dtype=dtype).requires_grad_()
    grad = torch.randn(batch, steps, hidden, device="cuda", dtype=dtype)
    rival = isinstance(layer, nn.LSTM)
    us = train_cuda.graph_us(layer, x, grad, rival) if graph else None
    if us is not None:
        return us / steps, True
    return train_cuda.queue_us(layer, x, grad, calls=1)[0] / steps, False


def sweep(
    todo: Iterable[tuple[Shape, str]],
    measured: Callable[[str, Shape], list[Row]],
    keep: Callable[[list[Row]], None],
    seconds: float,
    clock: Callable[[], float] = time.monotonic,
) -> int:
    """Measures and stores one shape after another until the time is up. Returns the number of shapes left
    out."""
    end, left = clock() + seconds, 0
    for shape, kind in todo:
        if clock() >= end:
            left += 1
            continue
        keep(measured(kind, shape))
    return left


def ratios(rows: list[Row]) -> dict[tuple[str, Shape], float]:
    """Maps (layer, shape) to its time over cuDNN's best. float32 layers are compared with tf32."""
    times = {(row.layer, row.shape): row.us for row in rows}
    found = {}
    for (layer, shape), us in times.items():
        rivals = ("cuDNN tf32",) if layer.endswith("float32") else RIVALS
        best = min((times[r, shape] for r in rivals if (r, shape) in times), default=None)
        if layer not in RIVALS and best is not None:
            found[layer, shape] = us / best
    return found


# Cell, B, H, the largest accepted ratio.
SINGLE_GOALS = [
    ("plstm", 1024, 1024, 0.75),
    ("plstm", 256, 2048, 0.8),
    ("plstm", 1024, 2048, 0.75),
    ("lstm", 1, 2048, 0.65),
    ("lstm", 1, 3072, 0.65),
]
LARGEST = {"plstm": 1.0, "lstm": 1.05}
LARGEST_DRAWN, LARGEST_MEAN, LARGEST_SMALL = 1.05, 0.45, 1.0


def goals(rows: list[Row], seed: int) -> list[Goal]:
    """A goal for many shapes says in its text how many of them were measured."""
    kinds, found = shapes(seed), ratios(rows)
    listed = [shape for shape, kind in kinds.items() if kind != "drawn"]
    grid = [shape for shape, kind in kinds.items() if kind == "B x H"]
    made = []

    def largest(layer: str, among: list[Shape], where: str, limit: float) -> None:
        there = [found[layer, shape] for shape in among if (layer, shape) in found]
        text = f"{layer}, {len(there)} of {len(among)} {where}: largest time over cuDNN's best"
        made.append(Goal(text, limit, False, max(there, default=None)))

    for cell, limit in LARGEST.items():
        largest(f"{cell} bfloat16", listed, "listed shapes", limit)
    mean = [found["plstm bfloat16", s] for s in grid if ("plstm bfloat16", s) in found]
    text = f"plstm bfloat16, {len(mean)} of {len(grid)} shapes B x H: geometric mean of the ratios"
    made.append(Goal(text, LARGEST_MEAN, False, statistics.geometric_mean(mean) if mean else None))
    for cell, batch, hidden, limit in SINGLE_GOALS:
        ratio = found.get((f"{cell} bfloat16", (batch, STEPS, hidden, hidden)))
        made.append(Goal(f"{cell} bfloat16, {batch} x {hidden}", limit, False, ratio))
    small = [shape for shape in grid if shape[3] == SMALL]
    largest("plstm float32", small, f"shapes B x {SMALL}, beside tf32", LARGEST_SMALL)
    unseen = [shape for shape, kind in kinds.items() if kind == "drawn"]
    for cell in LARGEST:
        largest(f"{cell} bfloat16", unseen, "drawn shapes", LARGEST_DRAWN)
    return made


def table(rows: list[Row], rate: tuple[float, float]) -> str:
    """`expected` is the planner's estimate; `floors`: products, memory, exchange."""
    head = ["kind", "B,T,I,H", "layer", "us", "/ cuDNN", "floors", "expected", "us / expected"]
    lines, found = [[*head, "forward", "backward", ""]], ratios(rows)
    for i, row in enumerate(rows):
        again = i > 0 and row.shape == rows[i - 1].shape
        notes = [f"WRONG: {row.wrong} differs by {row.difference:.2g}"] if row.wrong else []
        notes += [] if row.graph else ["back to back"]
        plans = [plan.partition(",")[0] for plan in row.plans] or ["", ""]
        lines.append(
            [
                "" if again else row.kind,
                "" if again else ",".join(map(str, row.shape)),
                row.layer,
                _shown(row.us),
                _shown(found.get((row.layer, row.shape))),
                " + ".join(map(_shown, floors(row, rate))),
                _shown(row.predicted_us),
                _shown(over(row.us, row.predicted_us)),
                *plans,
                "; ".join(notes),
            ]
        )
    return aligned(lines, left=(0, 1, 2, 8, 9, 10))


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}" if value < 100 else f"{value:,.0f}"


def draw(rows: list[Row], where: str, path: Path) -> None:
    """A heat map per cell over B and H: the ratio, and how the forward pass runs."""
    found = ratios(rows)
    panels: dict[str, dict[tuple[int, int], tuple[float, str]]] = {}
    for row in rows:
        if row.kind == "B x H" and (row.layer, row.shape) in found:
            how = row.plans[0].partition(" ")[0] if row.plans else ""
            at = (row.shape[0], row.shape[3])
            panels.setdefault(row.layer, {})[at] = (found[row.layer, row.shape], how)
    heat_maps(
        panels, f"time of a training step over cuDNN's best ({where}, I = H, T = {STEPS})", path
    )


class Kept:
    """The JSON file of a sweep: machine, rates, seed, rows, goals. It is replaced after every shape."""

    def __init__(self, path: Path | None, seed: int) -> None:
        self.path, self.seed = path, seed
        self.where: dict[str, Any] = {}
        self.rate = (0.0, 0.0)
        self.rows: list[Row] = []
        if path is not None and path.exists():
            found = json.loads(path.read_text(encoding="utf-8"))
            if found.get("seed") != seed:
                raise ValueError(f"{path} has seed {found.get('seed')}; accepted: {seed} (--seed)")
            self.where = found["machine"]
            self.rate = found["rates"]["Tflop/s"] * 1e6, found["rates"]["TB/s"] * 1e6
            for row in found["rows"]:
                plain = {**row, "shape": tuple(row["shape"]), "plans": tuple(row["plans"])}
                self.rows.append(Row(**plain))

    def begin(self, where: dict[str, Any], rate: tuple[float, float]) -> None:
        """Called before the first shape of a run. A file from another GPU or torch version is refused."""
        for name in ("gpu", "torch", "cudnn"):
            if self.where and self.where.get(name) != where[name]:
                raise ValueError(
                    f"{self.path} was measured with {name} {self.where.get(name)}; "
                    f"accepted: {where[name]}, or another --json"
                )
        self.where, self.rate = self.where or where, self.rate if self.rows else rate

    def add(self, rows: list[Row]) -> None:
        self.rows += rows
        if self.path is not None:
            made = [{**vars(goal), "met": goal.met} for goal in goals(self.rows, self.seed)]
            found = {
                "machine": self.where,
                "rates": {"Tflop/s": self.rate[0] / 1e6, "TB/s": self.rate[1] / 1e6},
                "seed": self.seed,
                "rows": [asdict(row) for row in self.rows],
                "goals": made,
            }
            write_bytes(self.path, (json.dumps(found, indent=1) + "\n").encode())

    def todo(self, cells: list[str]) -> list[tuple[Shape, str]]:
        """The shapes at which some cell has not been measured."""
        done = {(row.layer, row.shape) for row in self.rows}
        wanted = {f"{cell} bfloat16" for cell in cells}
        return [
            (shape, kind)
            for shape, kind in shapes(self.seed).items()
            if not all((layer, shape) in done for layer in wanted)
        ]


def run(args: argparse.Namespace, cells: list[str]) -> int:
    """Measures for args.minutes, then reports everything in the file. Returns 1 if a layer was wrong."""
    kept = Kept(args.json, args.seed)
    todo = kept.todo(cells)
    if args.minutes > 0:
        kept.begin({**machine(), **train_cuda.device_facts()}, train_cuda.rates())

        def measured(kind: str, shape: Shape) -> list[Row]:
            found = measure(kind, shape, cells, kept.rate)
            rows = [row for row in found if (row.layer, row.shape) not in done]
            print("  ".join(f"{row.layer} {_shown(row.us)}" for row in rows), shape, flush=True)
            return rows

        done = {(row.layer, row.shape) for row in kept.rows}
        left = sweep(todo, measured, kept.add, args.minutes * 60)
        print(f"{left} of {len(shapes(args.seed))} shapes are left")
    if not kept.rows:
        print("error: nothing was measured yet; accepted: --minutes above 0, or --json of a sweep")
        return 2
    print(table(kept.rows, kept.rate) + "\n\n" + goal_table(goals(kept.rows, args.seed)))
    if args.picture:
        draw(kept.rows, str(kept.where.get("gpu")), args.picture)
    return 1 if any(row.wrong for row in kept.rows) else 0
