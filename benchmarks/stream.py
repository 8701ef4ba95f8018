"""tsm-bench stream: one layer as a stream on the CPU, beside its rivals and the floor.

    tsm-bench stream --quick                       the cases of the goals
    tsm-bench stream --cells plstm --shapes 1,1,512 16,1,512 --dtypes int8 bfloat16
    tsm-bench stream --json times.json --plot times.png       everything: long
    tsm-bench stream --device cuda                 on a GPU, beside nn.LSTM (see stream_cuda.py)

A chunk of T steps is fed to B streams at once, through a layer with I = H and one output; times are
microseconds per step. tsm, ONNX Runtime and torch are called from Python, on one thread, with buffers bound
once; "C++" is tsm without Python. The floor is the time to read the layer's weights with a plain sum: W once
per chunk, U once per step. Each rival must give the reference's h before it is timed. On processors where ONNX
Runtime's int8 is wrong (x86 without VNNI), the table says "wrong" instead of a time. Rivals alternate, and
medians are shown; still, other load on the machine (shown as "load before") distorts the ratios.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..plugin.command.flags import sizes
from .case import DTYPES, Case
from .goals import Goal, footprint_goals, goal_cases, goal_table, stream_goals
from .machine import machine
from .results import Result, Results, table
from .rivals import rivals
from .turns import CLOCKS, take_turns

CELLS, HIDDEN = ("plstm", "lstm"), (256, 512, 1024, 2048)
Wanted = list[tuple[Case, list[str]]]


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="default: cpu")
    parser.add_argument("--quick", action="store_true", help="only the cases of the goals")
    parser.add_argument("--cells", nargs="+", metavar="CELL", help="default: plstm lstm")
    parser.add_argument(
        "--shapes",
        nargs="+",
        type=sizes("B,T,H"),
        metavar="B,T,H",
        help="default: B 1, 16, 64; T 1, 64; H 256, 512, 1024, 2048",
    )
    parser.add_argument("--dtypes", nargs="+", choices=DTYPES, metavar="DTYPE", help="default: all")
    parser.add_argument(
        "--seconds", type=float, default=3.0, metavar="S", help="spent on each case (default 3)"
    )
    parser.add_argument(
        "--clock",
        choices=CLOCKS,
        default="wall",
        help="cpu: the thread's own time, for a machine that others use as well (default wall)",
    )
    parser.add_argument("--no-torch", action="store_true", help="leave out torch's layers")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write a JSON file")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="plot them (.png, .svg, .pdf)")
    parser.add_argument(
        "--make-graphs", type=Path, metavar="DIR", help="write the ONNX graphs and stop"
    )
    parser.add_argument(
        "--graphs", type=Path, metavar="DIR", help="read the graphs from this folder"
    )
    parser.add_argument(
        "--library", type=Path, metavar="FILE", help="libtsm_runtime.so, to report its size"
    )


def wanted_cases(args: argparse.Namespace) -> Wanted:
    """The cases and dtypes selected by the flags."""
    cells = args.cells or list(CELLS)
    if args.quick:
        chosen = [(c, d) for c, d in goal_cases() if c.cell in cells]
    else:
        shapes = args.shapes or [(b, t, h) for h in HIDDEN for b in (1, 16, 64) for t in (1, 64)]
        chosen = [(Case(cell, *s), list(DTYPES)) for cell in cells for s in shapes]
    if args.shapes:
        chosen = [(c, d) for c, d in chosen if (c.B, c.T, c.H) in args.shapes]
    if args.dtypes:
        chosen = [(c, [d for d in ds if d in args.dtypes]) for c, ds in chosen]
    chosen = [(c, d) for c, d in chosen if d]
    if not chosen:
        raise ValueError("no case is left by --quick, --cells, --shapes and --dtypes together")
    return chosen


def check_cells(names: Sequence[str]) -> None:
    from ..plugin.cells import get_cell

    for name in names:
        if not get_cell(name).elementwise:  # get_cell raises ValueError for an unknown name
            raise ValueError(f"--cells {name}: this benchmark streams element-wise cells only")


def run(args: argparse.Namespace) -> int:
    check_cells(args.cells or CELLS)
    if args.device == "cuda":
        from .stream_cuda import run as run_cuda

        return run_cuda(args)
    cases = wanted_cases(args)
    if args.make_graphs:
        from .graphs import write

        written = write([case for case, _ in cases], args.make_graphs)
        size = sum(p.stat().st_size for p in args.make_graphs.iterdir())
        print(
            f"{len(written)} graphs in {args.make_graphs}, {size / 1e6:.1f} MB with their weights"
        )
        return 0
    import torch

    torch.set_num_threads(1)
    where = {**machine(), "clock": args.clock}
    print("one layer as a stream, one thread; " + ", ".join(f"{k} {v}" for k, v in where.items()))
    found: list[Result] = []
    goals: list[Goal] = []
    with tempfile.TemporaryDirectory(prefix="tsm-bench-") as folder:
        for number, (case, dtypes) in enumerate(cases, 1):
            print(f"[{number}/{len(cases)}] {case}: ", end="", flush=True)
            found += measure(case, dtypes, Path(folder), args)
        goals = footprint(Path(folder), args) if args.quick else []
    results = Results(found)
    print("\nmicroseconds per step\n" + table(results))
    goals = [goal for goal in stream_goals(results) if goal.met is not None] + goals
    if goals:
        print("\n" + goal_table(goals))
    if args.json:
        write_json(args.json, where, results, goals)
    if args.plot:
        from .plot import plot

        plot(results, where, args.plot)
    return 0


def measure(case: Case, dtypes: list[str], folder: Path, args: argparse.Namespace) -> list[Result]:
    """Check all rivals of a case, then time them alternately."""
    path = model_file(case, folder)
    there = list(rivals(case, dtypes, path, args.graphs, torch_too=not args.no_torch))
    right = [(rival, rival.loop) for rival in there if rival.loop is not None]
    worst = {d: max(r.difference or 0 for r, _ in right if r.dtype == d) for d in dtypes}
    print("h within " + ", ".join(f"{v:.0e} ({d})" for d, v in worst.items()), flush=True)
    timed = take_turns({(r.name, r.dtype): loop for r, loop in right}, args.seconds, args.clock)
    results = []
    for rival in there:
        per_step: tuple[float | None, float | None, int] = (None, None, 0)
        if (t := timed.get((rival.name, rival.dtype))) is None:
            print(
                f"  {rival.name} in {rival.dtype}: wrong on this processor, h by {rival.difference:.0e}"
            )
        else:
            per_step = (t.median / case.T, t.best / case.T, t.turns)
        results.append(Result(case, rival.name, rival.dtype, *per_step, rival.difference))
    return results


def model_file(case: Case, folder: Path) -> Path:
    """The case's layer as a .tsm file, made once per cell and width."""
    from ..export.tsm.package import package

    path = folder / f"{case.cell}_{case.H}.tsm"
    if not path.exists():
        for old in folder.glob("*.tsm"):  # they can be large
            if old.name != "plstm_1024.tsm":
                old.unlink()
        package(case.model, path)
    return path


def footprint(folder: Path, args: argparse.Namespace) -> list[Goal]:
    """Loading time, memory per stream, size of the library."""
    from ..runtime import Model, _core

    path = model_file(Case("plstm", 1, 1, 1024), folder)  # 25.2 MB of weights
    now, times = CLOCKS[args.clock], []
    for _ in range(7):
        start = now()
        model = Model.load(path)
        times.append((now() - start) * 1e3)
    bytes_each = _core.FeedLoop(str(path), "float32", 1, 1, 1).stream_bytes()
    states = sum(-(-4 * w // 64) * 64 for layer in model.layers for w in layer.states.values())
    extra = float(bytes_each - states) if bytes_each else None
    library = args.library.stat().st_size / 1e6 if args.library else None
    return footprint_goals(statistics.median(times), extra, library)


def write_json(path: Path, where: dict[str, Any], results: Results, goals: list[Goal]) -> None:
    from ..plugin.common.atomic import write_bytes

    values = {
        "machine": where,
        "unit": "microseconds per step of all B streams",
        "rows": [result.plain() for result in results.all],
        "goals": [{**vars(goal), "met": goal.met} for goal in goals],
    }
    write_bytes(path, (json.dumps(values, indent=1) + "\n").encode())
