"""tsm-predict: labels and probabilities for new texts or sequences of numbers.

    tsm-predict MODEL < texts.txt                               a text per line
    tsm-predict MODEL new.csv --text-column review --format json
    tsm-predict MODEL new.csv                                   numbers, in the columns used in training
    tsm-predict MODEL new.csv --sequence-column id --dt-column dt
    tsm-predict MODEL new.npz --output answers.tsv

MODEL is a checkpoint of tsm-train, or a .tsm file, which needs no PyTorch. The output has one row per text or
sequence (per step if the model has an output for every step), in input order. A row has the label, its
probability and the probabilities of all labels or, if the model predicts numbers, those numbers. A text without
words gets no label. Columns of numbers are found by the names that they had in training; a note says which ones
name the sequence and hold its times.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any

from ..command.bar import bar
from ..command.command import UsageError, command
from ..command.flags import (
    add_device_flags,
    add_encoding_flags,
    integer,
    load_plugins,
    make_parser,
    strictly,
)
from ..common.inputs import keep_inputs
from ._predict_input import open_items
from ._predict_model import Item, Predictor, open_predictor
from ._stream_output import Rows


@command("tsm-predict")
def main(argv: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    args = strictly(build_parser(), argv)
    load_plugins(args.user_dir)
    if args.output:
        keep_inputs("--output", [args.output], [args.model, args.input])
    predictor = open_predictor(args)
    items = open_items(args, predictor)
    with ExitStack() as stack:
        update = stack.enter_context(bar("predicting", None, "rows"))
        rows = Rows(open_output(args.output, stack), args.format)
        silent = write(predictor, items, args.batch_size, rows, update)
    sys.stdout.flush()
    if silent:
        print(f"tsm-predict: {silent:,} texts without a word have no label", file=sys.stderr)
    return 0


def build_parser() -> argparse.ArgumentParser:
    p = make_parser("tsm-predict", __doc__, "tsm-predict MODEL [INPUT] [flags]")
    p.add_argument("model", metavar="MODEL", help="checkpoint of tsm-train, or .tsm file")
    p.add_argument("input", nargs="?", type=Path, metavar="INPUT", help="default: stdin")
    p.add_argument(
        "--input-format", choices=("lines", "csv", "tsv", "jsonl", "npz"),
        help="default: chosen by the file name, else lines",
    )  # fmt: skip
    p.add_argument(
        "--text-column", metavar="NAME", help="column of the texts in a table (default: text)"
    )
    p.add_argument(
        "--sequence-column", metavar="NAME",
        help='default: the one used in training; "": none, so all rows are one sequence',
    )  # fmt: skip
    p.add_argument("--value-columns", metavar="A,B,...", help="default: those used in training")
    p.add_argument(
        "--dt-column", metavar="NAME",
        help='time since the previous row (default: as in training, if the cell uses it; "": none)',
    )  # fmt: skip
    p.add_argument("--time-column", metavar="NAME", help="time of a row (the same default)")
    p.add_argument("--delimiter", metavar="C", help="default: comma, or tab for .tsv")
    p.add_argument(
        "--no-quotes", action="store_true", help="treat double quotes as plain characters"
    )
    p.add_argument(
        "--no-header",
        action="store_true",
        help="there is no header row; columns are called 1, 2, ...",
    )
    add_encoding_flags(p)
    p.add_argument("--format", choices=("tsv", "json"), default="tsv", help="default: tsv")
    p.add_argument("--output", type=Path, metavar="FILE", help="default: stdout")
    p.add_argument(
        "--max-length", type=integer(1), metavar="N",
        help="read only the first N words of a text (default: as in training)",
    )  # fmt: skip
    p.add_argument("--batch-size", type=integer(1), default=64, metavar="N", help="default: 64")
    p.add_argument(
        "--threads", type=integer(1, 1024), default=1, metavar="N", help="threads for a .tsm file"
    )
    p.add_argument("--user-dir", metavar="DIR", help="the --user-dir it was trained with, if any")
    add_device_flags(
        p.add_argument_group("device (a .tsm file runs on the CPU unless --device cuda is given)")
    )
    return p


def open_output(path: Path | None, stack: ExitStack) -> Any:
    """stdout, or a file that appears only when it is complete."""
    if path is None:
        return sys.stdout
    from ..common.atomic import atomic_file

    if not path.parent.is_dir():
        raise UsageError(f"--output {path}: no such folder {path.parent}")
    return Utf8(stack.enter_context(atomic_file(path)))


class Utf8:
    """write(text) into a binary file."""

    def __init__(self, file: Any) -> None:
        self.file = file

    def write(self, text: str) -> None:
        self.file.write(text.encode())


def write(
    predictor: Predictor, items: Iterator[Item], batch_size: int, rows: Rows, update: Any
) -> int:
    """Writes a row for every output, batch by batch; returns how many items were empty."""
    silent = 0
    while batch := list(islice(items, batch_size)):
        there = [item for item in batch if len(item.x)]
        answers = iter(predictor(there) if there else ())
        for item in batch:
            if not len(item.x):
                silent += 1
                rows.add({item.kind: item.name, **predictor.silence()})
                continue
            outputs = next(answers)
            for step, output in enumerate(outputs):
                row: dict[str, Any] = {item.kind: item.name}
                if predictor.stepwise:
                    row["step"] = step + 1
                rows.add(row | predictor.row(output))
        update(len(batch))
    return silent


if __name__ == "__main__":
    raise SystemExit(main())
