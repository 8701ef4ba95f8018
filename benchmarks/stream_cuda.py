"""tsm-bench stream --device cuda: one layer as streams on a GPU, beside torch.nn.LSTM.

    tsm-bench stream --device cuda                     three tables, some minutes
    tsm-bench stream --device cuda --quick             the cases of the goals
    tsm-bench stream --device cuda --json times.json

The model reads tokens through an embedding as wide as the layer (I = H) and has one output per step. It is
driven from C++, and each stream has its own tokens. Times are how long a caller waits, including the copies of
tokens to the device and of results back. The model must agree with the CPU runtime before it is timed. nn.LSTM
is fed from device memory: one call per step, calls of one step in a CUDA graph with a full queue, and chunks of
256 steps; the better of bfloat16 and float32 (tf32) is in the tables.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .goals import Goal, goal_table
from .machine import gpu_driver, machine
from .nn_lstm_cuda import CHUNK, GRAPH_STEPS, NnLstm
from .results import aligned, microseconds, ratio
from .rivals import LIMIT, Wrong, difference
from .turns import Loop, take_turns

FEW, MANY = (1, 8, 64), (1, 64, 1024, 16384)
HIDDEN = (512, 1024, 2048)
TOKENS = 256
LATENCY_CALLS = 200
STEPS_OF = {"tsm": CHUNK, "nn.LSTM, chunks": CHUNK, "nn.LSTM, graph": GRAPH_STEPS}
PEAK_FLOPS = 989e12  # bfloat16 matrix products on an H100 or H200, from the data sheet


@dataclass(frozen=True)
class Row:
    """Microseconds per step of all B streams, in chunks of T steps."""

    what: str
    cell: str
    dtype: str
    B: int
    T: int
    H: int
    median_us: float
    p99_us: float | None = None


def run(args: argparse.Namespace) -> int:
    import torch

    from ..runtime import cuda_devices

    if not torch.cuda.is_available() or cuda_devices() == 0:
        raise ValueError("--device cuda: there is no GPU that both torch and tsm can use")
    gpu = torch.cuda.get_device_name()
    where = {**machine(), "gpu": gpu, "cuda": torch.version.cuda, "driver": gpu_driver()}
    print("one layer as streams on a GPU; " + ", ".join(f"{k} {v}" for k, v in where.items()))
    cells = args.cells or ["plstm", "lstm"]
    dtypes = args.dtypes or (["bfloat16"] if args.quick else ["bfloat16", "int8", "float32"])
    with tempfile.TemporaryDirectory(prefix="tsm-bench-") as folder:
        bench = Bench(Path(folder), args.seconds)
        found = bench.few(cells, dtypes, (1,) if args.quick else FEW)
        found += bench.many(cells, dtypes)
        found += bench.latency(cells[:1], dtypes[:1])
    print("\nmicroseconds per step and layer, few streams\n" + few_table(found))
    print("\nmicroseconds per step, 1024 streams at H = 1024\n" + many_table(found))
    print("\none token for every stream at H = 1024: what a caller waits\n" + latency_table(found))
    goals = cuda_goals(found)
    print("\n" + goal_table(goals))
    if args.json:
        from ..plugin.common.atomic import write_bytes

        values = {
            "machine": where,
            "unit": "microseconds per step of all B streams",
            "rows": [asdict(row) for row in found],
            "goals": [{**vars(goal), "met": goal.met} for goal in goals],
        }
        write_bytes(args.json, (json.dumps(values, indent=1) + "\n").encode())
    return 0


class Bench:
    """Makes the models, checks them, and times them."""

    def __init__(self, folder: Path, seconds: float) -> None:
        self.folder, self.seconds = folder, seconds

    def few(self, cells: list[str], dtypes: list[str], batches: tuple[int, ...]) -> list[Row]:
        found = []
        for H in HIDDEN:
            for B in batches:
                loops: dict[Any, Loop] = {}
                for cell in cells:
                    for dtype in dtypes:
                        loops["tsm", cell, dtype] = self.loop(cell, dtype, B, CHUNK, H)
                rivals = {dtype: NnLstm(B, H, dtype) for dtype in ("bfloat16", "float32")}
                for dtype, rival in rivals.items():
                    loops["nn.LSTM, a call a step", "lstm", dtype] = rival.steps()
                    loops["nn.LSTM, graph", "lstm", dtype] = rival.graph()
                    loops["nn.LSTM, chunks", "lstm", dtype] = rival.chunks()
                for (what, cell, dtype), timed in take_turns(loops, self.seconds).items():
                    steps = STEPS_OF.get(what, 1)
                    found.append(Row(what, cell, dtype, B, steps, H, timed.median / steps))
                print(f"B={B} H={H}", flush=True)
        return found

    def many(self, cells: list[str], dtypes: list[str]) -> list[Row]:
        B, H = 1024, 1024
        loops: dict[Any, Loop] = {}
        for cell in cells:
            for dtype in dtypes:
                for steps in (1, 32):
                    loops["tsm", cell, dtype, steps] = self.loop(cell, dtype, B, steps, H)
        for dtype in ("bfloat16", "float32"):
            loops["nn.LSTM, graph", "lstm", dtype, GRAPH_STEPS] = NnLstm(B, H, dtype).graph()
        timed = take_turns(loops, self.seconds)
        return [
            Row(what, cell, dtype, B, steps, H, timed[what, cell, dtype, steps].median / steps)
            for what, cell, dtype, steps in loops
        ]

    def latency(self, cells: list[str], dtypes: list[str]) -> list[Row]:
        found = []
        for cell in cells:
            for dtype in dtypes:
                for B in MANY:
                    loop = self.loop(cell, dtype, B, 1, 1024)
                    loop(10)
                    times = sorted(self.seconds_of(loop) * 1e6 for _ in range(LATENCY_CALLS))
                    p99 = times[int(0.99 * len(times))]
                    median = statistics.median(times)
                    found.append(Row("latency", cell, dtype, B, 1, 1024, median, p99))
        return found

    @staticmethod
    def seconds_of(loop: Loop) -> float:
        taken = loop(1)
        assert isinstance(taken, float)
        return taken

    def loop(self, cell: str, dtype: str, B: int, T: int, H: int) -> Loop:
        from ..runtime import _core

        path = self.checked(cell, dtype, H)
        return _core.FeedLoop(str(path), dtype, 1, B, T, "cuda").run

    def checked(self, cell: str, dtype: str, H: int) -> Path:
        """The model's file, after checking that GPU and CPU give the same states."""
        from ..runtime import Model

        path = self.model_file(cell, H)
        proof = path.with_suffix(f".{dtype}")
        if proof.exists():
            return path
        tokens = np.random.default_rng(1).integers(0, TOKENS, size=(3, 20))
        states = []
        for device, kind in (("cpu", "float32"), ("cuda", dtype)):
            model = Model.load(path, device=device, dtype=kind)
            streams = [model.create_stream() for _ in tokens]
            model.feed_many(streams, list(tokens))
            states.append(np.stack([stream.state()["h"][0] for stream in streams]))
        share = difference(states[1], states[0])
        if not share <= LIMIT[dtype]:
            why = f"{cell} H={H} {dtype}: h on the GPU differs from the CPU's by {share:.3g}"
            raise Wrong(why, share)
        proof.touch()
        return path

    def model_file(self, cell: str, H: int) -> Path:
        import torch

        from ..export.tsm.package import package
        from ..plugin import build_model

        path = self.folder / f"{cell}_{H}.tsm"
        if not path.exists():
            torch.manual_seed(1)
            model = build_model(
                "lstm_tagger",
                vocab_size=TOKENS,
                num_classes=1,
                cell=cell,
                decoder_embed_dim=H,
                decoder_hidden_size=H,
                decoder_layers=1,
                backend="reference",
            )
            package(model.eval(), path)
        return path


def best(found: list[Row], what: str, B: int, H: int) -> float | None:
    """Of the rival's dtypes."""
    times = [r.median_us for r in found if (r.what, r.B, r.H) == (what, B, H)]
    return min(times, default=None)


def few_table(found: list[Row]) -> str:
    rivals = ("nn.LSTM, a call a step", "nn.LSTM, graph", "nn.LSTM, chunks")
    rows = [["cell", "dtype", "B", "H", "tsm, chunks", *rivals, "tsm / nn.LSTM, chunks"]]
    for row in found:
        if row.what != "tsm" or row.T != CHUNK:
            continue
        times = [best(found, rival, row.B, row.H) for rival in rivals]
        line = [row.cell, row.dtype, str(row.B), str(row.H), microseconds(row.median_us)]
        rows.append([*line, *map(microseconds, times), ratio(row.median_us, times[2])])
    return aligned(rows, left=(0, 1))


def flop_floor(cell: str, B: int, H: int) -> float:
    """Microseconds that the matrix products of a step take at the data sheet's rate."""
    from ..plugin.cells import get_cell

    return 2 * B * 2 * H * len(get_cell(cell).gates) * H / PEAK_FLOPS * 1e6


def many_table(found: list[Row]) -> str:
    graph = best(found, "nn.LSTM, graph", 1024, 1024)
    rows = [["cell", "dtype", "T", "tsm", "its flop floor", "nn.LSTM, graph", "nn.LSTM / tsm"]]
    for row in found:
        if row.what == "tsm" and row.B == 1024:
            floor = flop_floor(row.cell, row.B, row.H)
            line = [row.cell, row.dtype, str(row.T), microseconds(row.median_us)]
            rows.append(
                [*line, microseconds(floor), microseconds(graph), ratio(graph, row.median_us)]
            )
    rows.append(["(lstm)", "", "", "", microseconds(flop_floor("lstm", 1024, 1024)), "", ""])
    return aligned(rows, left=(0, 1))


def latency_table(found: list[Row]) -> str:
    rows = [["cell", "dtype", "streams", "p50 us", "p99 us", "tokens a second"]]
    for row in found:
        if row.what == "latency":
            p99 = microseconds(row.p99_us)
            speed = f"{row.B / row.median_us * 1e6:,.0f}"
            line = [row.cell, row.dtype, str(row.B), microseconds(row.median_us), p99, speed]
            rows.append(line)
    return aligned(rows, left=(0, 1))


def cuda_goals(found: list[Row]) -> list[Goal]:
    """Goals for bfloat16: one stream takes at most half of nn.LSTM's time in chunks; 1024 streams are at least
    twice as fast as nn.LSTM in a CUDA graph."""

    def ours(cell: str, B: int, T: int, H: int) -> float | None:
        wanted = ("tsm", cell, "bfloat16", B, T, H)
        times = [r.median_us for r in found if (r.what, r.cell, r.dtype, r.B, r.T, r.H) == wanted]
        return min(times, default=None)

    def share(above: float | None, below: float | None) -> float | None:
        return None if above is None or below is None else above / below

    goals = []
    for H in HIDDEN:
        chunks = share(ours("plstm", 1, CHUNK, H), best(found, "nn.LSTM, chunks", 1, H))
        goals.append(
            Goal(f"plstm B=1 H={H}: time over nn.LSTM's in chunks of {CHUNK}", 0.5, False, chunks)
        )
    graph = best(found, "nn.LSTM, graph", 1024, 1024)
    speed = share(graph, ours("plstm", 1024, 32, 1024))
    goals.append(Goal("plstm, 1024 streams, H=1024: speed over nn.LSTM's graph", 2, True, speed))
    return goals
