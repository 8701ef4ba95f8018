"""Tests how well the planner of the GPU recurrence chooses: measures its best plans at six shapes.

    python -m tsm.benchmarks.plans_cuda --cells plstm --best 40 --json plans.json

Times are microseconds per step of the kernel alone, forward or backward, in replays of a CUDA graph. Use this
script to fit the planner's weights (cpp/src/kernels/cuda/train/teams/plan_estimate.cc) to another device.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import torch

from ..plugin.layers.core import DTYPES, _core, cell_info, saved_state_count
from ..plugin.layers.gpu import COPIED, widened
from ..plugin.layers.sketch import recurrence_once
from .results import aligned
from .train_cuda import SHAPES, median_us

STEPS = 64  # at most, of a sequence


class Kernel:
    """One direction of a cell's recurrence, with its arrays."""

    def __init__(
        self, cell: str, dtype: torch.dtype, shape: tuple[int, int, int], backward: bool
    ) -> None:
        info = cell_info(cell)
        self.cell, self.dtype, self.shape, self.backward = cell, dtype, shape, backward
        self.constants = [1e-3] * info["constants"]
        batch, steps, hidden = shape
        width = info["gates"] * hidden
        make: dict[str, Any] = {"device": "cuda", "dtype": dtype}
        rows = torch.randn(batch, steps, width, **make)
        u = torch.randn(width, hidden, **make) / hidden**0.5
        states = torch.zeros(info["states"], batch, hidden, device="cuda")
        vectors = torch.rand(info["vectors"], hidden, device="cuda") + 0.1
        saved = torch.rand(saved_state_count(cell), batch, steps, hidden, device="cuda")
        y = torch.randn(batch, steps, hidden, **make)
        by_row = torch.empty(info["vectors"], batch, hidden, device="cuda")
        out, after = torch.empty_like(rows), torch.empty_like(states)
        both = {
            "weight_h": u,
            "vectors": vectors,
            "dt": None,
            "lengths": None,
            "saved_states": saved,
        }
        self.forward_arrays = both | {"zx": rows, "state": states, "y": y, "last": after, "z": out}
        self.backward_arrays = both | {"z": rows, "grad_y": y, "grad_last": None}
        self.backward_arrays |= {"grad_z": out, "grad_state": after, "grad_vectors": by_row}

    def __call__(self) -> None:
        _, steps, hidden = self.shape
        arrays = self.backward_arrays if self.backward else self.forward_arrays
        how = (self.cell, self.constants, self.shape, steps, hidden, self.backward)
        recurrence_once(*how, **arrays)

    def step_us(self) -> float:
        self()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self()
        return median_us(graph.replay, runs=5) / self.shape[1]

    def take(self, rank: int) -> str:
        batch, _, hidden = self.shape
        return _core.recurrence_cuda_take_plan(
            cell=self.cell,
            dtype=DTYPES[self.dtype],
            device=0,
            batch=batch,
            hidden=hidden,
            backward=self.backward,
            rank=rank,
        )


def measure(name: str, cell: str, dtype: torch.dtype, best: int) -> list[dict[str, Any]]:
    batch, steps, _, hidden = SHAPES[name]
    found = []
    for backward in (False, True):
        kernel = Kernel(cell, dtype, (batch, min(steps, STEPS), widened(hidden)), backward)
        for rank in range(best):
            if plan := kernel.take(rank):
                where = {"shape": name, "cell": cell, "backward": backward, "rank": rank}
                found.append({**where, "us": kernel.step_us(), "plan": plan})
        kernel.take(0)
    return found


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cells", nargs="+", default=["plstm"], metavar="CELL")
    parser.add_argument("--shapes", nargs="+", default=list(SHAPES), choices=list(SHAPES))
    parser.add_argument("--dtype", default="bfloat16", choices=[DTYPES[dtype] for dtype in COPIED])
    parser.add_argument("--best", type=int, default=40, help="plans by the estimate (default 40)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all of them to this file")
    args = parser.parse_args(argv)
    if not torch.cuda.is_available():
        print("error: torch sees no GPU")
        return 1
    found: list[dict[str, Any]] = []
    for name in args.shapes:
        for cell in args.cells:
            rows = measure(name, cell, getattr(torch, args.dtype), args.best)
            found += rows
            for backward in (False, True):
                same = [row for row in rows if row["backward"] is backward]
                shown = sorted(same, key=lambda row: row["us"])[:5]
                shown += [row for row in same if row["rank"] == 0]
                print(f"{name}, {cell}, {'backward' if backward else 'forward'}")
                lines = [["us", "rank", "plan"]]
                lines += [[f"{r['us']:.3f}", str(r["rank"]), r["plan"]] for r in shown]
                print(aligned(lines, left=(2,)), flush=True)
    if args.json:
        args.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
