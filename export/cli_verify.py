"""tsm-export verify: is an exported file intact, and does it match the model?

    tsm-export verify model.onnx                    every byte, and that it runs; a .tsm, .pt, .pt2 file or a
                                                    Triton repository as well
    tsm-export verify model.onnx --path CKPT        also the full verification: every tensor and every output

One line per check; exit code 1 if one fails. A damaged file is not read further.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..plugin.command.bar import bar
from ..plugin.command.command import UsageError
from ..plugin.command.flags import load_plugins, make_parser, strictly
from .cli_checks import Lines, add_check_flags, open_data


def verify_command(argv: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    p = make_parser("tsm-export verify", __doc__, "tsm-export verify FILE [--path CKPT] [flags]")
    p.add_argument("file", metavar="FILE", type=Path, help="what tsm-export wrote")
    p.add_argument("--path", metavar="CKPT", help="the checkpoint that it was made from")
    p.add_argument("--user-dir", metavar="DIR", help="the --user-dir it was trained with, if any")
    add_check_flags(p)
    args = strictly(p, argv)
    if args.data is not None and args.path is None:
        raise UsageError("--data needs --path")
    load_plugins(args.user_dir)
    from ..plugin.trained import open_trained
    from .existing import verify_file

    trained = None if args.path is None else open_trained(args.path)
    data = None if args.data is None or trained is None else open_data(trained, args)
    with bar("stream", args.verify_steps or None, "steps") as update:
        report = verify_file(
            args.file,
            trained,
            steps=args.verify_steps,
            text=data,
            quality_limit=args.quality_limit,
            watch=Lines(update),
        )
    failed = sum(not check.passed for check in report.checks)
    if failed:
        raise ArithmeticError(f"{args.file}: {failed} of {len(report.checks)} checks failed")
    print(f"{args.file}: {len(report.checks)} checks passed")
    return 0
