"""tsm-export: writes a trained model as a file for other runtimes, verified to be the same model.

    tsm-export tsm         --path CKPT --output model.tsm                the C++ runtime; --dtype bfloat16, int8
    tsm-export onnx        --path CKPT --output model.onnx               ONNX Runtime; --recurrence scan, loop,
                                                                         unrolled (--chunk-size), lstm_op;
                                                                         --inputs lengths,dt or fewer, or none
    tsm-export torchscript --path CKPT --output model.pt                 libtorch
    tsm-export pt2         --path CKPT --output model.pt2                torch.export
    tsm-export triton      --path CKPT --output models/                  a model repository for NVIDIA Triton
    tsm-export verify      FILE [--path CKPT]                            an existing file: verify --help

Every export is verified against the model in float64, with one line per check: every tensor, every output and,
below float32, the quality (--quality-limit), on --data or on a sample. On failure the exit code is 1, and no
file of that name is written. An existing file is replaced, but never a folder: Triton models are added to those
already in it. FILE.report.json and FILE.drift.png are written beside the file.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from ..plugin.command.bar import bar
from ..plugin.command.command import command
from ..plugin.command.flags import integer, load_plugins, make_parser, strictly
from ..plugin.common.inputs import keep_inputs
from .cli_checks import Lines, add_check_flags, open_data

FORMATS = ("tsm", "onnx", "torchscript", "pt2", "triton")
RECURRENCES = ("scan", "loop", "unrolled", "lstm_op")
DTYPES = ("float32", "float16", "bfloat16", "int8")


@command("tsm-export")
def main(argv: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    if argv and argv[0] == "verify":
        from .cli_verify import verify_command

        return verify_command(argv[1:])
    args = strictly(build_parser(), argv)
    load_plugins(args.user_dir)
    from ..plugin.trained import open_trained
    from .entry import export, written
    from .verify.verify import VerifyError

    code = sorted(Path(args.user_dir).glob("*.py")) if args.user_dir else []
    keep_inputs("--output", written(args.output), [args.path, args.data, *code])
    trained = open_trained(args.path)
    data = None if args.data is None else open_data(trained, args)

    with bar("stream", args.verify_steps or None, "steps") as update:
        try:
            report = export(
                trained,
                args.output,
                args.format,
                args.recurrence,
                args.chunk_size,
                args.dtype,
                inputs=args.inputs,
                steps=args.verify_steps,
                text=data,
                quality_limit=args.quality_limit,
                progress=say,
                watch=Lines(update),
            )
        except VerifyError as error:
            failed = sum(not check.passed for check in error.report.checks)
            raise ArithmeticError(
                f"{failed} of {len(error.report.checks)} checks failed; {args.output} was not "
                f"written (see {args.output}.report.json)"
            ) from error
    print(f"{args.output}: {report.facts['bytes']:,} bytes, {len(report.checks)} checks passed")
    return 0


def say(what: str) -> None:
    """Shows what is being done."""
    if sys.stderr.isatty():
        print(f"tsm-export: {what}", file=sys.stderr)


def build_parser() -> argparse.ArgumentParser:
    p = make_parser("tsm-export", __doc__, "tsm-export FORMAT --path CKPT --output FILE [flags]")
    p.add_argument("format", choices=FORMATS, metavar="FORMAT", help=", ".join(FORMATS))
    model = p.add_argument_group("model")
    model.add_argument("--path", metavar="CKPT", required=True, help="checkpoint of tsm-train")
    model.add_argument(
        "--user-dir", metavar="DIR", help="the --user-dir it was trained with, if any"
    )
    model.add_argument("--output", metavar="FILE", required=True, type=Path, help="what to write")
    how = p.add_argument_group("how")
    how.add_argument(
        "--recurrence",
        choices=RECURRENCES,
        help="form of the time loop (default: the format's own)",
    )
    how.add_argument(
        "--chunk-size", type=integer(1), metavar="T", help="steps of an unrolled graph"
    )
    how.add_argument("--dtype", choices=DTYPES, default="float32", help="type of the matrices")
    how.add_argument(
        "--inputs", type=names, metavar="NAMES",
        help="inputs of an ONNX graph besides x and the states: lengths, dt, lengths,dt or none (default: "
        "lengths, and dt if the cell takes it)",
    )  # fmt: skip
    add_check_flags(p)
    return p


def names(text: str) -> tuple[str, ...]:
    """Parses a comma-separated list; "none" is the empty list."""
    return () if text == "none" else tuple(text.split(","))


if __name__ == "__main__":
    sys.exit(main())
