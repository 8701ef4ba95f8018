"""Times one training step of one layer on the CPU: forward and backward with the input projection.

First every fused layer is compared with the reference (outputs, last states, every gradient) at the shape that
is timed; a difference ends the run with status 1. Then all rivals alternate, so that a slowdown of the machine
affects all of them, and the table gives medians: microseconds per time step, the ratio to torch.nn.LSTM at the
same shape (below 1 is faster), and the ratio to the reference of the same cell. Nothing is asserted about time.

    python benchmarks/train_cpu.py
    python benchmarks/train_cpu.py --cells all --shapes 16,64,128,128 --threads 2 --json times.json
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from tsm.plugin.cells import get_cell, list_cells
from tsm.plugin.command.flags import integer, sizes
from tsm.plugin.common.processor import processor
from tsm.plugin.layers import Recurrent
from tsm.plugin.layers.choose import choose

SHAPES = [(16, 64, 128, 128), (32, 64, 256, 256), (128, 100, 100, 154), (20, 35, 400, 1150)]
"""B, T, I, H. The last is the shape of a word-level language model, whose recurrent matrix does not fit in the
cache of one core."""
CELLS = ["plstm", "lstm"]
RIVAL = "torch.nn.LSTM"
WIDE = "torch, float32"
"""Name of the rival's backend when it is timed in float32 beside layers of another dtype."""
LIMIT = {torch.float32: 1e-4, torch.float64: 1e-9, torch.bfloat16: 6e-2}
"""Largest difference that counts as rounding, relative to the largest value of the same tensor."""

Shape = tuple[int, ...]
Found = dict[str, Tensor]


@dataclass(frozen=True)
class Row:
    """One line of the table; times in microseconds per time step."""

    shape: Shape
    layer: str
    backend: str
    median_us: float
    best_us: float
    runs: int
    vs_nn_lstm: float
    vs_reference: float | None


def step(layer: torch.nn.Module, x: Tensor, weight: Tensor) -> Found:
    """Forward and backward of sum(weight * y); returns the results by name."""
    x.grad = None
    layer.zero_grad(set_to_none=True)
    y, last = layer(x)
    (y * weight).sum().backward()
    states = last if isinstance(last, dict) else {}
    found = {"y": y, "grad x": x.grad, **{f"last {name}": s for name, s in states.items()}}
    return found | {f"grad {name}": p.grad for name, p in layer.named_parameters()}


def difference(found: Found, expected: Found) -> tuple[float, str]:
    """Returns (largest |found - expected| relative to the largest |expected|, the tensor it is in)."""
    worst, where = 0.0, ""
    for name, want in expected.items():
        got, want = found[name].detach().double(), want.detach().double()
        share = float((got - want).abs().max() / want.abs().max().clamp_min(1e-30))
        if not share <= worst:  # also for NaN
            worst, where = share, name
    return worst, where


def rivals(
    cells: list[str], shape: Shape, dtype: torch.dtype
) -> dict[tuple[str, str], torch.nn.Module]:
    """Maps (layer, backend) to a module; a cell's fused layer has the weights of its reference.

    The goals compare with nn.LSTM in float32, so it is always included.
    """
    _, _, width, hidden = shape
    torch.manual_seed(0)
    made: dict[tuple[str, str], torch.nn.Module] = {
        (RIVAL, "torch"): torch.nn.LSTM(width, hidden, batch_first=True).to(dtype)
    }
    for cell in cells:
        reference = Recurrent(cell, width, hidden, backend="reference").to(dtype)
        if choose(get_cell(cell), dtype, torch.device("cpu")).fused:
            fused = Recurrent(cell, width, hidden, backend="fused").to(dtype)
            fused.load_state_dict(reference.state_dict())
            made[cell, "fused"] = fused
        made[cell, "reference"] = reference
    if dtype != torch.float32:
        made[RIVAL, WIDE] = torch.nn.LSTM(width, hidden, batch_first=True)
    return made


def measure(
    shape: Shape,
    cells: list[str],
    dtype: torch.dtype,
    seconds: float,
    now: Callable[[], float] = time.perf_counter,
) -> list[Row]:
    """Check all rivals, then time them in turns for about `seconds`, at least three turns.

    The reference, many times slower than the others, only runs in every fourth turn.
    """
    batch, steps, width, hidden = shape
    layers = rivals(cells, shape, dtype)
    x = torch.randn(batch, steps, width, dtype=dtype).requires_grad_()
    weight = torch.randn(batch, steps, hidden, dtype=dtype)
    data = {name: (x, weight) for name in layers}
    if (RIVAL, WIDE) in layers:
        data[RIVAL, WIDE] = (x.detach().float().requires_grad_(), weight.float())
    first = {name: step(layer, *data[name]) for name, layer in layers.items()}  # also warms up
    for cell, backend in layers:
        if backend == "fused":
            worst, where = difference(first[cell, "fused"], first[cell, "reference"])
            print(f"  {cell}: fused = reference within {worst:.1e} ({where})")
            if not worst <= LIMIT[dtype]:
                raise SystemExit(
                    f"{cell} at {shape}: {where} differs by {worst:.3g} of its largest value; "
                    f"accepted: {LIMIT[dtype]:g}"
                )
    del first
    taken: dict[tuple[str, str], list[float]] = {name: [] for name in layers}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(taken[RIVAL, "torch"]) < 3:
        often = len(taken[RIVAL, "torch"]) % 4 > 0
        for name, layer in layers.items():
            if often and name[1] == "reference":
                continue
            taken[name].append(clock(partial(step, layer, *data[name]), now) / steps * 1e6)
    medians = {name: statistics.median(times) for name, times in taken.items()}
    return [
        Row(
            shape,
            *name,
            median_us=medians[name],
            best_us=min(taken[name]),
            runs=len(taken[name]),
            vs_nn_lstm=medians[name] / medians[RIVAL, "torch"],
            vs_reference=medians[name] / medians[name[0], "reference"]
            if name[0] != RIVAL
            else None,
        )
        for name in layers
    ]


def clock(call: Callable[[], object], now: Callable[[], float]) -> float:
    """Seconds that it takes."""
    start = now()
    call()
    return now() - start


def table(rows: list[Row]) -> str:
    lines = [["B,T,I,H", "layer", "backend", "us/step", "best", "runs", "/ nn.LSTM", "/ reference"]]
    for i, row in enumerate(rows):
        new = i == 0 or row.shape != rows[i - 1].shape
        lines.append(
            [
                ",".join(map(str, row.shape)) if new else "",
                row.layer,
                row.backend,
                f"{row.median_us:,.0f}",
                f"{row.best_us:,.0f}",
                str(row.runs),
                f"{row.vs_nn_lstm:.2f}",
                "" if row.vs_reference is None else f"{row.vs_reference:.2f}",
            ]
        )
    sizes = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    text = [
        "  ".join(
            w.ljust(n) if i < 3 else w.rjust(n)
            for i, (w, n) in enumerate(zip(line, sizes, strict=True))
        )
        for line in lines
    ]
    return "\n".join([text[0], "-" * len(text[0]), *text[1:]])


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cells", nargs="+", default=CELLS, metavar="CELL", help='names, or "all"')
    parser.add_argument(
        "--shapes", nargs="+", type=sizes("B,T,I,H"), default=SHAPES, metavar="B,T,I,H"
    )
    parser.add_argument(
        "--dtype", choices=[str(d).removeprefix("torch.") for d in LIMIT], default="float32"
    )
    parser.add_argument(
        "--threads", type=integer(1), default=torch.get_num_threads(), help="of torch"
    )
    parser.add_argument("--seconds", type=float, default=8.0, help="time spent on each shape")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write a JSON file")
    args = parser.parse_args(argv)
    cells = list_cells() if args.cells == ["all"] else args.cells
    for cell in cells:
        if cell not in list_cells():
            parser.error(f"--cells: {cell!r}; accepted: all, {', '.join(list_cells())}")
    torch.set_num_threads(args.threads)
    dtype = getattr(torch, args.dtype)
    machine = {
        "processor": processor(),
        "torch": torch.__version__,
        "threads": args.threads,
        "dtype": args.dtype,
        "cores": os.cpu_count(),
        "load before": round(os.getloadavg()[0], 1),  # if high, ratios are unreliable
    }
    print("forward + backward of one layer; " + ", ".join(f"{k} {v}" for k, v in machine.items()))
    rows: list[Row] = []
    for shape in args.shapes:
        print(f"B,T,I,H = {','.join(map(str, shape))}")
        rows += measure(shape, cells, dtype, args.seconds)
    print("\n" + table(rows))
    if args.json:
        found = {"machine": machine, "rows": [asdict(row) for row in rows]}
        args.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
