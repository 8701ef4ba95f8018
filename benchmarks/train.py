"""tsm-bench train: one training step of one layer: forward, backward and the input projection.

    tsm-bench train                                four shapes, two threads
    tsm-bench train --cells plstm lstm --shapes 16,64,128,128 --dtypes float32 --threads 1
    tsm-bench train --device cuda --cells all      six shapes on a GPU, beside cuDNN
    tsm-bench train --device cuda --sweep --minutes 8 --json sweep.json    65 shapes, 12 of them random

The fused layer is first compared with the reference (outputs, states, every gradient); then the fused layer,
the reference and torch.nn.LSTM alternate. Times are medians in microseconds per time step.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..plugin.command.flags import integer, sizes
from .goals import Goal, goal_table
from .machine import has_amx, machine, multiplies_bfloat16
from .turns import CLOCKS

SHAPES = [(16, 64, 128, 128), (32, 64, 256, 256), (128, 100, 100, 154), (20, 35, 400, 1150)]
GOALS = {"float32": 0.75, "bfloat16": 0.5}
"""Largest accepted time of plstm relative to nn.LSTM in float32; the goal for bfloat16 only applies to hosts
with AMX."""
TIGHTER = {("float32", (32, 64, 256, 256)): 0.65}
"""By dtype and shape, instead of GOALS."""


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--cells", nargs="+", metavar="CELL", help="default: plstm; with --sweep plstm and lstm"
    )
    parser.add_argument(
        "--shapes", nargs="+", type=sizes("B,T,I,H"), default=SHAPES, metavar="B,T,I,H"
    )
    parser.add_argument(
        "--dtypes",
        nargs="+",
        choices=list(GOALS),
        metavar="DTYPE",
        help="default: float32, and bfloat16 if the processor supports it",
    )
    parser.add_argument("--threads", type=integer(1), default=2, help="torch's threads (default 2)")
    parser.add_argument(
        "--clock",
        choices=CLOCKS,
        default="wall",
        help="cpu: the thread's own time, for a machine that others use as well; needs --threads 1 "
        "(default wall)",
    )
    parser.add_argument(
        "--seconds", type=float, default=8.0, help="spent on each shape (default 8)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write a JSON file")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="default: cpu")
    parser.add_argument(
        "--compile-seconds",
        type=float,
        default=300.0,
        help="cuda: time limit of torch.compile for all shapes together (default 300)",
    )
    sweep = parser.add_argument_group("--sweep, on a GPU")
    sweep.add_argument("--sweep", action="store_true", help="many shapes; --json continues a file")
    sweep.add_argument(
        "--minutes",
        type=float,
        default=20.0,
        help="begin no shape after this time (default 20); 0 only reports what --json has",
    )
    sweep.add_argument("--seed", type=integer(0), default=0, help="of the drawn shapes (default 0)")
    sweep.add_argument("--picture", type=Path, metavar="FILE", help="draw a heat map there")


def run(args: argparse.Namespace) -> int:
    import torch

    from ..plugin.cells import get_cell
    from .train_cpu import measure, table

    if args.sweep and args.device != "cuda":
        print("error: --sweep with --device cpu; accepted: --device cuda")
        return 2
    if args.device == "cuda":
        return run_cuda(args)
    cells = args.cells or ["plstm"]
    for cell in cells:
        get_cell(cell)
    if args.clock == "cpu" and args.threads != 1:
        print(f"error: --clock cpu with --threads {args.threads}; accepted: --threads 1")
        return 2
    torch.set_num_threads(args.threads)
    where = {**machine(), "threads": args.threads, "clock": args.clock}
    print("forward + backward of one layer; " + ", ".join(f"{k} {v}" for k, v in where.items()))
    rows: dict[str, list[Any]] = {}
    dtypes = args.dtypes or ["float32", *(["bfloat16"] if multiplies_bfloat16() else [])]
    for dtype in dtypes:
        rows[dtype] = []
        for shape in args.shapes:
            print(f"{dtype}, B,T,I,H = {','.join(map(str, shape))}")
            rows[dtype] += measure(
                shape, cells, getattr(torch, dtype), args.seconds, CLOCKS[args.clock]
            )
        print(f"\n{dtype}\n" + table(rows[dtype]) + "\n")
    goals = train_goals(rows, amx=has_amx())
    if goals:
        print(goal_table(goals))
    if args.json:
        from ..plugin.common.atomic import write_bytes

        found = {
            "machine": where,
            "rows": [{"dtype": d, **asdict(row)} for d, part in rows.items() for row in part],
            "goals": [{**vars(goal), "met": goal.met} for goal in goals],
        }
        write_bytes(args.json, (json.dumps(found, indent=1) + "\n").encode())
    return 0


def run_cuda(args: argparse.Namespace) -> int:
    """Runs the shapes and dtypes of train_cuda.py."""
    import torch

    from ..plugin.cells import get_cell
    from ..plugin.layers.core import _core
    from . import sweep_cuda, train_cuda

    if args.shapes is not SHAPES or args.dtypes:
        print("error: --shapes and --dtypes are for the CPU; --device cuda has its own")
        return 2
    if not torch.cuda.is_available() and not (args.sweep and args.minutes <= 0):
        print("error: --device cuda: torch sees no GPU")
        return 1
    cells = args.cells or (sweep_cuda.CELLS if args.sweep else ["plstm"])
    cells = sorted(_core.cells) if cells == ["all"] else cells
    for cell in cells:
        get_cell(cell)
    if args.sweep:
        return sweep_cuda.run(args, cells)
    where, rate = {**machine(), **train_cuda.device_facts()}, train_cuda.rates()
    print("forward + backward of one layer; " + ", ".join(f"{k} {v}" for k, v in where.items()))
    print(f"large product {rate[0] / 1e6:.0f} Tflop/s, large copy {rate[1] / 1e6:.2f} TB/s")
    rows: list[Any] = []
    compiler = train_cuda.Compiler(args.compile_seconds)
    for name, shape in train_cuda.SHAPES.items():
        print(f"{name}, B,T,I,H = {','.join(map(str, shape))}", flush=True)
        rows += train_cuda.measure(name, shape, cells, compiler, print)
    print("\n" + train_cuda.table(rows, rate) + "\n")
    goals = train_cuda.goals(rows)
    print(goal_table(goals))
    if args.json:
        from ..plugin.common.atomic import write_bytes

        found = {
            "machine": where,
            "rates": {"Tflop/s": rate[0] / 1e6, "TB/s": rate[1] / 1e6},
            "rows": [asdict(row) for row in rows],
            "goals": [{**vars(goal), "met": goal.met} for goal in goals],
        }
        write_bytes(args.json, (json.dumps(found, indent=1) + "\n").encode())
    return 0


def train_goals(rows: dict[str, list[Any]], amx: bool) -> list[Goal]:
    """Fused plstm against torch.nn.LSTM in float32, at the same shape, in the same turns."""
    from .train_cpu import RIVAL, WIDE

    goals = []
    for dtype, part in rows.items():
        backend = "torch" if dtype == "float32" else WIDE
        rival = {
            row.shape: row.median_us for row in part if (row.layer, row.backend) == (RIVAL, backend)
        }
        for row in part if dtype == "float32" or amx else ():
            if (row.layer, row.backend) == ("plstm", "fused") and row.shape in rival:
                text = f"plstm {','.join(map(str, row.shape))} {dtype}: time over nn.LSTM float32"
                share = row.median_us / rival[row.shape]
                limit = TIGHTER.get((dtype, tuple(row.shape)), GOALS[dtype])
                goals.append(Goal(text, limit, False, share))
    return goals
