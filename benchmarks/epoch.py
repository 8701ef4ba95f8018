"""tsm-bench epoch: whole epochs of a paper's recipe, beside the same recipe with torch.nn.LSTM.

    tsm-bench epoch --data DIR                              Penn Treebank words and psMNIST with 512 units
    tsm-bench epoch --data DIR --recipes ptb-words --epochs 4 --json epoch.json

An epoch is training, validation and saving as in `tsm-reproduce`: bfloat16 products, CUDA graphs, checkpoints
held in memory. The first epoch, in which graphs are recorded, is not counted. DIR has the official files, as
for `tsm-preprocess --from`; preprocessed folders are kept in data-bin.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from ..plugin.command.flags import integer
from .goals import Goal, goal_table
from .results import aligned

if TYPE_CHECKING:
    from .epochs.measure import Row

# name -> (experiment, variant, largest accepted seconds of an epoch on an H200)
RECIPES = {
    "ptb-words": ("ptb-word", "baseline", 1.8),
    "psmnist-512": ("timing", "psmnist-sigmoid", 2.2),
}
LAYERS = ("tsm", "nn.LSTM")


def table(rows: list[Row]) -> str:
    head = ["recipe", "layers", "s / epoch", "training", "validation", "saving", "ms / update"]
    lines = [[*head, "validation losses"]]
    for row in rows:
        times = (row.seconds, row.training, row.validation, row.saving)
        lines.append(
            [
                row.recipe,
                row.layers,
                *(f"{s:.2f}" for s in times),
                f"{row.training / row.updates * 1e3:.2f}",
                ", ".join(f"{loss:.3f}" for loss in row.valid_losses),
            ]
        )
    return aligned(lines, left=(0, 1, 7))


def goals(rows: list[Row]) -> list[Goal]:
    return [
        Goal(f"{row.recipe}: an epoch", RECIPES[row.recipe][2], False, row.seconds, " s")
        for row in rows
        if row.layers == "tsm"
    ]


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--recipes", nargs="+", choices=RECIPES, default=list(RECIPES))
    parser.add_argument("--layers", nargs="+", choices=LAYERS, default=list(LAYERS))
    parser.add_argument("--epochs", type=integer(1), default=8, help="that count (default 8)")
    parser.add_argument("--data", type=Path, metavar="DIR", help="the official files")
    parser.add_argument("--data-bin", type=Path, default=Path("data-bin"), metavar="DIR")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write a JSON file")


def run(args: argparse.Namespace) -> int:
    import torch

    from ..plugin.common.atomic import write_bytes
    from ..plugin.reproduce.data import DataRoom
    from ..plugin.train.loop import NotFinite
    from .epochs.measure import measure
    from .machine import machine
    from .train_cuda import device_facts

    if not torch.cuda.is_available():
        print("error: torch sees no GPU")
        return 1
    where = {**machine(), **device_facts()}
    print("epochs of recipes; " + ", ".join(f"{k} {v}" for k, v in where.items()))
    rows = []
    for recipe in args.recipes:
        for layers in args.layers:
            home, name, _ = RECIPES[recipe]
            data = DataRoom(args.data_bin, args.data)
            try:
                rows.append(measure(recipe, home, name, layers, data, args.epochs))
            except NotFinite as why:
                print(f"{recipe}, {layers}: not measured, since {why}", flush=True)
                continue
            print(f"{recipe}, {layers}: {rows[-1].seconds:.2f} s an epoch", flush=True)
    print("\n" + table(rows) + "\n\n" + goal_table(goals(rows)))
    if args.json:
        found = {
            "machine": where,
            "rows": [asdict(row) for row in rows],
            "goals": [{**vars(goal), "met": goal.met} for goal in goals(rows)],
        }
        write_bytes(args.json, (json.dumps(found, indent=1) + "\n").encode())
    return 0
