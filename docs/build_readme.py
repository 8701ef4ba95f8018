"""Writes the tables of README.md: speed from docs/internals/benchmarks, claims from results/.

python docs/build_readme.py            the tables
python docs/build_readme.py --check    exit 1 if README.md does not match the files
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tsm.benchmarks.train_cuda import RIVALS, SHAPES
from tsm.plugin.reproduce.claims import NOT_RUN, VERDICTS, claims_judged
from tsm.plugin.reproduce.judged import OPEN
from tsm.plugin.reproduce.recipes.catalogue import experiments
from tsm.plugin.reproduce.store import Store

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "README.md"
RUNS = ROOT / "docs" / "internals" / "benchmarks"
PROCESSORS = {"xeon": "Xeon", "neoverse_n1": "Neoverse N1"}  # in the names of the files
TRAINED = ([32, 64, 256, 256], [20, 35, 400, 1150])  # B, T, I, H on a CPU
STREAMED = ((1, 1, 256), (1, 1, 1024), (1, 64, 256), (64, 1, 512))  # streams, steps, units on a CPU
PART = re.compile(r"(<!-- table: (.+?) -->\n).*?(<!-- end -->)", re.DOTALL)


def page(text: str) -> str:
    """The text with every marked part regenerated."""
    return PART.sub(lambda found: found[1] + TABLES[found[2]]() + "\n" + found[3], text)


def _run(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RUNS / name).read_text(encoding="utf-8"))
    return found


def _rows(name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = _run(name)["rows"]
    return found


def _table(heads: Iterable[str], lines: Iterable[Iterable[str]]) -> str:
    heads = list(heads)
    rows = [heads, ["---"] * len(heads), *lines]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _us(value: float) -> str:
    return f"{value:,.2f}" if value < 10 else f"{value:,.1f}" if value < 100 else f"{value:,.0f}"


def training() -> str:
    """Forward and backward of one layer: cuDNN or nn.LSTM, and tsm."""
    lines = []
    rows = _rows("train_h200.json")
    for name, shape in SHAPES.items():
        us = {
            row["layer"]: min(x for x in (row["graph_us"], row["queue_us"]) if x is not None)
            for row in rows
            if row["shape"] == name
        }
        rival, lstm, plstm = min(us[r] for r in RIVALS), us["lstm bfloat16"], us["plstm bfloat16"]
        size = ",".join(map(str, shape))
        times = [_us(rival), _us(lstm), _us(plstm), f"{rival / lstm:.1f}x, {rival / plstm:.1f}x"]
        lines.append([f"{size} ({name})", "H200, bfloat16", *times])
    for name, processor in PROCESSORS.items():
        run = _run(f"train_{name}.json")
        cores = run["machine"]["threads"]
        where = f"{cores} {processor} core{'s' if cores > 1 else ''}"
        cpu: dict[tuple[str, str], dict[tuple[str, str], float]] = {}
        for row in run["rows"]:
            if row["shape"] in TRAINED:
                case = cpu.setdefault((",".join(map(str, row["shape"])), row["dtype"]), {})
                case[row["layer"], row["backend"]] = row["median_us"]
        for (size, dtype), times_of in cpu.items():
            rival, plstm = times_of["torch.nn.LSTM", "torch"], times_of["plstm", "fused"]
            times = [_us(rival), "-", _us(plstm), f"{rival / plstm:.1f}x"]
            lines.append([size, f"{where}, {dtype}", *times])
    heads = ["B,T,I,H", "machine", "best `nn.LSTM`", "tsm `lstm`", "tsm `plstm`", "speedup"]
    return _table(heads, lines)


def streaming() -> str:
    """One step of one layer with I = H: ONNX Runtime's best form or nn.LSTM, and tsm."""
    lines = []
    for name, processor in PROCESSORS.items():
        cases: dict[tuple[Any, ...], dict[tuple[str, str], float]] = {}
        for row in _rows(f"stream_{name}.json"):
            if row["median_us"] is not None and (row["B"], row["T"], row["H"]) in STREAMED:
                case = cases.setdefault((row["cell"], row["B"], row["T"], row["H"]), {})
                case[row["rival"], row["dtype"]] = row["median_us"]
        for (cell, *sizes), us in cases.items():
            for dtype in ("float32", "int8"):
                rivals = {n: t for (n, kind), t in us.items() if kind == dtype and "ORT" in n}
                if not rivals or ("tsm", dtype) not in us:
                    continue
                best = min(rivals, key=rivals.__getitem__)
                shown = best.replace("ORT", "ONNX Runtime,")
                lines.append(
                    _stream_line(cell, *sizes, f"1 {processor} core, {dtype}")
                    + _compared(shown, rivals[best], us["tsm", dtype])
                )
    rows = [row for row in _rows("stream_h200.json") if row["what"] != "latency"]
    for row in rows:
        if row["what"] != "tsm" or row["cell"] != "plstm" or row["T"] == 1:
            continue
        rivals = {
            f"{other['what']}, {other['dtype']}": other["median_us"]
            for other in rows
            if other["what"] != "tsm" and (other["B"], other["H"]) == (row["B"], row["H"])
        }
        best = min(rivals, key=rivals.__getitem__)
        lines.append(
            _stream_line("plstm", row["B"], row["T"], row["H"], f"H200, {row['dtype']}")
            + _compared(best, rivals[best], row["median_us"])
        )
    heads = ["cell", "streams", "steps per call", "units", "machine"]
    return _table([*heads, "best rival", "its time", "tsm", "speedup"], lines)


def _stream_line(cell: str, streams: int, steps: int, hidden: int, where: str) -> list[str]:
    return [f"`{cell}`", f"{streams:,}", f"{steps}", f"{hidden:,}", where]


def _compared(name: str, rival: float, ours: float) -> list[str]:
    return [name, _us(rival), _us(ours), f"{rival / ours:.1f}x"]


def claims() -> str:
    """The claims that have a verdict, by verdict, and how many have none."""
    experiments()  # registers them
    found = claims_judged(Store(ROOT / "results"))
    lines = [
        [verdict.text + claim.mark, claim.text, claim.source, verdict.extent]
        for wanted in VERDICTS
        for claim, verdict in found
        if verdict.name == wanted and wanted not in (OPEN, NOT_RUN)
    ]
    names = [verdict.name for _, verdict in found]
    closing = (
        f"Of {len(found)} claims {names.count(OPEN)} are open, as their runs do not decide them; "
        f"without runs: {names.count(NOT_RUN)}."
    )
    return f"{_table(['verdict', 'claim', 'paper', 'decided by'], lines)}\n\n{closing}"


TABLES: dict[str, Callable[[], str]] = {
    "training": training,
    "streaming": streaming,
    "claims": claims,
}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if stale")
    args = parser.parse_args(argv)
    now = PAGE.read_text(encoding="utf-8")
    text = page(now)
    if not args.check:
        PAGE.write_text(text, encoding="utf-8")
    elif text != now:
        print("README.md is stale: run `python docs/build_readme.py`", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
