"""tsm-bench pool: 64 streams generate through a StreamPool, compared with calls on one stream after another.

    tsm-bench pool                  2 x 1024 in float32 and int8, and one layer of 118 units
    tsm-bench pool --clock cpu      on a machine that others use as well
    tsm-bench pool --feed 64 --streams 1024 --device cuda    chunks of 64 tokens, beside feed_many

The rivals are servers that answer one request at a time: Stream.generate(n) on each stream, one
call per request, and Stream.generate(1) on each in turn, one call per token. The pool gets one request per
stream. All take turns on one thread, and their tokens must be equal. Tokens per second are medians over
the turns; ratios are relative to one call per request. The models have random weights from a fixed seed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .machine import machine

if TYPE_CHECKING:
    from ..runtime import Model

Tokens = list[list[int]]

BIG = {"vocab_size": 1000, "decoder_hidden_size": 1024, "decoder_embed_dim": 1024}
SMALL = {"vocab_size": 200, "decoder_hidden_size": 118, "decoder_embed_dim": 64}
MODELS: dict[str, tuple[dict[str, Any], str, int]] = {  # sizes, dtype, tokens per request
    "2 x 1024 float32": ({**BIG, "decoder_layers": 2}, "float32", 20),
    "2 x 1024 int8": ({**BIG, "decoder_layers": 2}, "int8", 40),
    "118 float32": ({**SMALL, "decoder_layers": 1}, "float32", 300),
}
FED = ("float32", "bfloat16")  # dtypes of the 2 x 1024 model
CLOCKS: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "cpu": time.process_time}


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--streams", type=int, default=64, metavar="N", help="default: 64")
    parser.add_argument(
        "--clock", choices=CLOCKS, default="wall", help="cpu: time of all threads (default wall)"
    )
    parser.add_argument("--turns", type=int, default=3, metavar="N", help="default: 3")
    parser.add_argument(
        "--feed", type=int, metavar="STEPS", help="chunks of this many tokens, by the wall clock"
    )
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="default: cpu")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write a JSON file")


def run(args: argparse.Namespace) -> int:
    for name in ("streams", "turns", "feed"):
        if (value := getattr(args, name)) is not None and value < 1:
            raise ValueError(f"--{name} {value}; accepted: at least 1")
    if args.feed and args.clock != "wall":
        raise ValueError(f"--clock {args.clock} with --feed; accepted: wall")
    where = {**machine(), "clock": args.clock, "device": args.device}
    print(", ".join(f"{k} {v}" for k, v in where.items()))
    rows = fed(args) if args.feed else generated(args)
    if args.json:
        from ..plugin.common.atomic import write_bytes

        values = {"machine": where, "streams": args.streams, "rows": rows}
        write_bytes(args.json, (json.dumps(values, indent=1) + "\n").encode())
    return 0


def generated(args: argparse.Namespace) -> dict[str, dict[str, Any]]:
    print(f"{'tokens per second':<18}" + "".join(f"{name:>20}" for name in WAYS) + f"{'ratio':>8}")
    rows = {}
    with tempfile.TemporaryDirectory(prefix="tsm-bench-") as folder:
        for name, (sizes, dtype, tokens) in MODELS.items():
            model = load(Path(folder), sizes, dtype, args.device)
            rows[name] = measure(model, tokens, args)
            figures = "".join(f"{rows[name][way]:>20,.0f}" for way in WAYS)
            ratio = rows[name]["pool"] / rows[name]["a call per request"]
            print(f"{name:<18}{figures}{ratio:>8.2f}", flush=True)
    return rows


def fed(args: argparse.Namespace) -> dict[str, dict[str, Any]]:
    from .pool_feed import WAYS as ways
    from .pool_feed import measure_feed

    heads = "".join(f"{head:>17}" for head in (*ways[:2], "ratio, C++", *ways[2:], "ratio"))
    print(f"{'tokens per second':<18}{heads}")
    rows = {}
    with tempfile.TemporaryDirectory(prefix="tsm-bench-") as folder:
        for dtype in FED:
            sizes = {**BIG, "decoder_layers": 2}
            model = load(Path(folder), sizes, dtype, args.device)
            path = path_of(Path(folder), sizes)
            row = measure_feed(model, path, dtype, args.streams, args.feed, args.turns)
            rows[name := f"2 x 1024 {dtype}"] = row
            pairs = (ways[:2], ways[2:])
            shown = (
                f"{row[raw]:>17,.0f}{row[pool]:>17,.0f}{row[pool] / row[raw]:>17.2f}"
                for raw, pool in pairs
            )
            print(f"{name:<18}" + "".join(shown), flush=True)
    return rows


def path_of(folder: Path, sizes: dict[str, Any]) -> Path:
    return folder / f"{sizes['decoder_hidden_size']}.tsm"


def load(folder: Path, sizes: dict[str, Any], dtype: str, device: str = "cpu") -> Model:
    import torch

    from ..export.tsm.package import package
    from ..plugin import build_model
    from ..runtime import Model

    path = path_of(folder, sizes)
    if not path.exists():
        torch.manual_seed(1)
        package(build_model("plstm_lm", **sizes), path)
    return Model.load(path, dtype=dtype, device=device)


def measure(model: Model, tokens: int, args: argparse.Namespace) -> dict[str, Any]:
    """Tokens per second of each rival: medians over alternating turns."""
    now = CLOCKS[args.clock]
    taken: dict[str, list[float]] = {name: [] for name in WAYS}
    for _ in range(args.turns):
        found = []
        for name, way in WAYS.items():
            start = now()
            found.append(way(model, args.streams, tokens))
            taken[name].append(now() - start)
        if any(drawn != found[0] for drawn in found):
            raise RuntimeError("the pool's tokens differ from those of single streams")
    total = args.streams * tokens
    return {name: total / statistics.median(times) for name, times in taken.items()}


def call_per_token(model: Model, streams: int, tokens: int) -> Tokens:
    lone = [model.create_stream() for _ in range(streams)]
    drawn: Tokens = [[] for _ in lone]
    for _ in range(tokens):
        for i, stream in enumerate(lone):
            drawn[i].append(int(stream.generate(1, seed=i)[0]))
    return drawn


def call_per_request(model: Model, streams: int, tokens: int) -> Tokens:
    return [model.create_stream().generate(tokens, seed=i).tolist() for i in range(streams)]


def pooled(model: Model, streams: int, tokens: int) -> Tokens:
    from ..runtime import StreamPool
    from .pool_feed import ended

    drawn: Tokens = [[] for _ in range(streams)]
    with StreamPool(model) as pool:
        asked = {pool.generate(b"%d" % i, tokens, seed=i): i for i in range(streams)}
        for i, event in ended(pool, asked):
            assert event.tokens is not None
            drawn[i] = event.tokens.tolist()
    return drawn


WAYS: dict[str, Callable[[Model, int, int], Tokens]] = {
    "a call per token": call_per_token,
    "a call per request": call_per_request,
    "pool": pooled,
}
