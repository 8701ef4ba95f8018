"""Writes the tables of docs/internals/benchmarks/README.md from the JSON files beside it.

python docs/build_benchmarks.py            the page
python docs/build_benchmarks.py --check    exit 1 if the page does not match the files
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tsm.benchmarks import epoch, results, serve, stream_cuda, train_cpu, train_cuda
from tsm.benchmarks.case import Case
from tsm.benchmarks.epochs import measure
from tsm.benchmarks.goals import Goal, goal_table

FOLDER = Path(__file__).parent / "internals" / "benchmarks"
PAGE = FOLDER / "README.md"
PART = re.compile(r"(<!-- table: (.+?) -->\n).*?(<!-- end -->)", re.DOTALL)


def page(text: str) -> str:
    """The text with every marked part regenerated."""
    return PART.sub(lambda found: found[1] + TABLES[found[2]]() + "\n" + found[3], text)


def _found(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / name).read_text(encoding="utf-8"))
    return found


def _machine(name: str) -> str:
    return "\n".join(
        ["| | |", "|---|---|", *(f"| {k} | {v} |" for k, v in _found(name)["machine"].items())]
    )


def _goals(name: str, met: bool | None = None) -> str:
    goals = [
        Goal(**{k: v for k, v in goal.items() if k != "met"})
        for goal in _found(name)["goals"]
        if met is None or goal["met"] is met
    ]
    return (
        _fenced(goal_table(goals)) if goals else f"None: all {len(_found(name)['goals'])} are met."
    )


def _fenced(text: str) -> str:
    return f"```text\n{text}\n```"


TRAIN = "train_h200.json"


def _train() -> tuple[list[train_cuda.Row], tuple[float, float]]:
    found = _found(TRAIN)
    rate = found["rates"]["Tflop/s"] * 1e6, found["rates"]["TB/s"] * 1e6
    return [train_cuda.Row(**row) for row in found["rows"]], rate


def _train_table() -> str:
    return _fenced(train_cuda.table(*_train()))


def _train_short() -> str:
    rows, rate = _train()
    lines = [
        "| shape | B,T,I,H | plstm bfloat16 | cuDNN's best | which | plstm / cuDNN | floors |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, shape in train_cuda.SHAPES.items():
        same = {row.layer: row for row in rows if row.shape == name}
        us = {layer: row.best_us for layer, row in same.items() if row.best_us is not None}
        best, ours = min(train_cuda.RIVALS, key=us.__getitem__), us["plstm bfloat16"]
        two = train_cuda.floors_of(same["plstm bfloat16"], rate)
        lines.append(
            f"| {name} | {','.join(map(str, shape))} | {ours:.2f} | {us[best]:.2f} "
            f"| {best.removeprefix('cuDNN ')} | {ours / us[best]:.2f} | {two[0]:.2f} + {two[1]:.2f} |"
        )
    return "\n".join(lines)


EPOCH = "epoch_h200.json"


def _epochs() -> str:
    return _fenced(epoch.table([measure.Row(**row) for row in _found(EPOCH)["rows"]]))


STREAM = "stream_h200.json"


def _stream(table: Callable[[list[stream_cuda.Row]], str]) -> str:
    return _fenced(table([stream_cuda.Row(**row) for row in _found(STREAM)["rows"]]))


CPU_STREAM, CPU_TRAIN = "stream_xeon.json", "train_xeon.json"
VNNI_STREAM, VNNI_TRAIN = "stream_xeon_vnni.json", "train_xeon_vnni.json"
AVX512_STREAM, AVX512_TRAIN = "stream_xeon_avx512.json", "train_xeon_avx512.json"
ARM_STREAM, ARM_TRAIN = "stream_neoverse_n1.json", "train_neoverse_n1.json"


def _cpu_stream(file: str) -> str:
    found = []
    for row in _found(file)["rows"]:
        case = Case(**{name: row.pop(name) for name in ("cell", "B", "T", "H")})
        found.append(results.Result(case, **row))
    return _fenced(results.table(results.Results(found)))


def _cpu_train(file: str) -> str:
    parts = []
    rows = _found(file)["rows"]
    for dtype in dict.fromkeys(row["dtype"] for row in rows):
        same = [
            {k: v for k, v in row.items() if k != "dtype"} for row in rows if row["dtype"] == dtype
        ]
        made = [train_cpu.Row(**{**row, "shape": tuple(row["shape"])}) for row in same]
        parts.append(f"{dtype}\n\n{train_cpu.table(made)}")
    return _fenced("\n\n".join(parts))


SERVE, SERVE_LARGE = "serve_xeon.json", "serve_2x1024_xeon.json"


TABLES: dict[str, Callable[[], str]] = {
    "training, machine": lambda: _machine(TRAIN),
    "training, plstm": _train_short,
    "training, all": _train_table,
    "training, goals": lambda: _goals(TRAIN),
    "training, goals not met": lambda: _goals(TRAIN, met=False),
    "epochs, machine": lambda: _machine(EPOCH),
    "epochs": _epochs,
    "epochs, goals": lambda: _goals(EPOCH),
    "streaming, machine": lambda: _machine(STREAM),
    "streaming, few": lambda: _stream(stream_cuda.few_table),
    "streaming, many": lambda: _stream(stream_cuda.many_table),
    "streaming, latency": lambda: _stream(stream_cuda.latency_table),
    "streaming, goals": lambda: _goals(STREAM),
    "CPU streaming, machine": lambda: _machine(CPU_STREAM),
    "CPU streaming": lambda: _cpu_stream(CPU_STREAM),
    "CPU streaming, goals": lambda: _goals(CPU_STREAM),
    "CPU training, machine": lambda: _machine(CPU_TRAIN),
    "CPU training": lambda: _cpu_train(CPU_TRAIN),
    "CPU training, goals": lambda: _goals(CPU_TRAIN),
    "VNNI streaming, machine": lambda: _machine(VNNI_STREAM),
    "VNNI streaming": lambda: _cpu_stream(VNNI_STREAM),
    "VNNI streaming, goals": lambda: _goals(VNNI_STREAM),
    "VNNI training, machine": lambda: _machine(VNNI_TRAIN),
    "VNNI training": lambda: _cpu_train(VNNI_TRAIN),
    "VNNI training, goals": lambda: _goals(VNNI_TRAIN),
    "AVX-512 streaming, machine": lambda: _machine(AVX512_STREAM),
    "AVX-512 streaming": lambda: _cpu_stream(AVX512_STREAM),
    "AVX-512 streaming, goals": lambda: _goals(AVX512_STREAM),
    "AVX-512 training, machine": lambda: _machine(AVX512_TRAIN),
    "AVX-512 training": lambda: _cpu_train(AVX512_TRAIN),
    "AVX-512 training, goals": lambda: _goals(AVX512_TRAIN),
    "Arm streaming, machine": lambda: _machine(ARM_STREAM),
    "Arm streaming": lambda: _cpu_stream(ARM_STREAM),
    "Arm streaming, goals": lambda: _goals(ARM_STREAM),
    "Arm training, machine": lambda: _machine(ARM_TRAIN),
    "Arm training": lambda: _cpu_train(ARM_TRAIN),
    "Arm training, goals": lambda: _goals(ARM_TRAIN),
    "serving, machine": lambda: _machine(SERVE),
    "serving": lambda: _fenced(serve.report(_found(SERVE)["rows"])),
    "serving, goals": lambda: _goals(SERVE),
    "serving, 2 x 1024": lambda: _fenced(serve.report(_found(SERVE_LARGE)["rows"])),
}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit 1 if the page is stale"
    )
    args = parser.parse_args(argv)
    now = PAGE.read_text(encoding="utf-8")
    text = page(now)
    if not args.check:
        PAGE.write_text(text, encoding="utf-8")
    elif text != now:
        print(
            "docs/internals/benchmarks is stale: run `python docs/build_benchmarks.py`",
            file=sys.stderr,
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
