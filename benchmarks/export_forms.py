"""Compares the forms of an exported model: size of the file, time to open it, time per step.

python -m tsm.benchmarks.export_forms                            3 layers of 1150 units, 10,000 words
python -m tsm.benchmarks.export_forms --arch plstm_lm_ptb_char --vocab-size 50 --clock cpu --json forms.json

One stream on one thread. In the column T = 1 every step is a call; in the other column, every call is a chunk
of T steps. Every form is compared with the model in float64 before it is timed; the forms take turns. Nothing
is asserted about time.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .turns import CLOCKS, loop_of, take_turns

if TYPE_CHECKING:
    from ..export.common.formats import Source

FORMS = [
    ("tsm", None, "float32"),
    ("tsm", None, "bfloat16"),
    ("tsm", None, "int8"),
    ("onnx", "scan", "float32"),
    ("onnx", "scan", "float16"),
    ("onnx", "scan", "int8"),
    ("onnx", "loop", "float32"),
    ("onnx", "unrolled", "float32"),
    ("onnx", "lstm_op", "float32"),
    ("torchscript", "loop", "float32"),
    ("torchscript", "unrolled", "float32"),
    ("pt2", None, "float32"),
]


def main(argv: Sequence[str] | None = None) -> int:
    args = parser().parse_args(argv)
    import torch

    from ..export.common.formats import Source
    from ..plugin import build_model

    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = build_model(args.arch, vocab_size=args.vocab_size).eval()
    source = Source(model)
    weights = 4 * sum(p.numel() for p in model.parameters())
    rows: list[dict[str, Any]] = []
    loops: dict[tuple[int, int], Callable[[int], object]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for format, form, dtype in FORMS:
            if args.only and format not in args.only:
                continue
            row: dict[str, Any] = {"format": format, "recurrence": form or "", "dtype": dtype}
            try:
                calls = prepare(
                    source, Path(folder), format, form, dtype, args.steps, args.clock, row
                )
            except ValueError as error:
                print(f"{format} {form or ''} {dtype}: {str(error).partition(';')[0]}")
                continue
            row["size"] = row["bytes"] / weights
            for steps, call in calls.items():
                loops[len(rows), steps] = loop_of(call)
            rows.append(row)
        timed = take_turns(loops, args.seconds, args.clock)
    for (number, steps), found in timed.items():
        rows[number][f"us_per_step_{1 if steps == 1 else 'chunk'}"] = found.median / steps
    print(f"{args.arch}, {weights / 1e6:.1f} MB of weights in float32; chunks of {args.steps}")
    print(f"{'form':<32}{'file / weights':>15}{'open ms':>9}{'us, T = 1':>11}{'us, chunk':>11}")
    for row in rows:
        name = f"{row['format']} {row['recurrence']} {row['dtype']}"
        one, chunk = row.get("us_per_step_1", float("nan")), row["us_per_step_chunk"]
        print(f"{name:<32}{row['size']:>15.4f}{row['open_ms']:>9.0f}{one:>11.0f}{chunk:>11.0f}")
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1) + "\n")
    return 0


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(prog="export_forms", description=__doc__.partition("\n")[0])
    p.add_argument("--arch", default="awd_lstm_lm_ptb", help="a language model")
    p.add_argument("--vocab-size", type=int, default=10_000)
    p.add_argument(
        "--steps", type=int, default=32, help="T of the chunks, and of the unrolled forms"
    )
    p.add_argument("--seconds", type=float, default=30.0, help="for all rivals together")
    p.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    p.add_argument("--only", nargs="*", help="formats")
    p.add_argument("--json", type=Path)
    return p


def prepare(
    source: Source,
    folder: Path,
    format: str,
    form: str | None,
    dtype: str,
    steps: int,
    clock: str,
    row: dict[str, Any],
) -> dict[int, Callable[[], object]]:
    """Write, open and check one form; returns T -> a call of T steps."""
    from ..export.common.formats import Options, get_format
    from ..export.verify.reference import Reference
    from ..export.verify.tolerance import STRUCTURE, structure

    made = get_format(format)
    chunk = steps if form == "unrolled" else None
    options = Options(form or (made.FORMS[0] if made.FORMS else None), chunk, dtype)
    path = folder / f"{form}-{dtype}.{format}"
    made.write(source, path, options, lambda what: None)
    row["bytes"] = path.stat().st_size
    now = CLOCKS[clock]
    opened(source, path, format, options)  # so that loading the library is not timed
    began = now()
    runner = opened(source, path, format, options)
    row["open_ms"] = 1e3 * (now() - began)
    assert source.model.embed is not None
    x = np.random.default_rng(0).integers(0, source.model.embed.vocab_size, (1, steps))
    error, signal = structure(runner.run(x)[0], Reference(source.model).run(x)[0], centred=True)
    if error > STRUCTURE * signal:  # tsm-export verifies more strictly
        raise ValueError(f"{format} {form} {dtype} differs from the model by {error:.1e}")
    sizes = [steps] if chunk else [1, steps]
    return {size: stepper(runner, x[:, :size]) for size in sizes}


def opened(source: Source, path: Path, format: str, options: Any) -> Any:
    """A runner with one thread."""
    from ..export.common.formats import get_format
    from ..export.onnx.runners import OrtRunner

    if format == "onnx":
        return OrtRunner(path, threads=1)
    return next(iter(get_format(format).runners(path, options)))


def stepper(runner: Any, x: np.ndarray) -> Callable[[], object]:
    """A call that feeds x to the same stream every time."""
    if hasattr(runner, "loaded"):  # the runtime keeps a stream's state itself
        stream, tokens = runner.loaded.create_stream(), x[0]
        return lambda: stream.feed(tokens)
    state = runner.run(x)[1]

    def call() -> None:
        nonlocal state
        state = runner.run(x, state)[1]

    return call


if __name__ == "__main__":
    raise SystemExit(main())
