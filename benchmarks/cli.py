"""tsm-bench: measures the speed of tsm on this machine, beside rivals in the same run.

    tsm-bench stream --quick        streaming: against ONNX Runtime, torch and the memory floor
    tsm-bench train                 a training step: against torch.nn.LSTM and the eager cell
    tsm-bench epoch --data DIR      epochs of a recipe: against the same recipe on torch.nn.LSTM
    tsm-bench pool                  many streams that generate: against one call per request
    tsm-bench serve --beside all    a load on tsm-serve: against a plain loop, polling and Triton

Results are checked before anything is timed. `tsm-bench stream --help` says what is measured and how.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from ..plugin.command.command import command
from ..plugin.command.flags import make_parser, strictly
from . import epoch, pool, serve, stream, train

PARTS = {"epoch": epoch, "pool": pool, "serve": serve, "stream": stream, "train": train}


@command("tsm-bench")
def main(argv: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    if argv and argv[0] in PARTS:
        return PARTS[argv[0]].run(strictly(build_parser(argv[0]), argv[1:]))
    parser = make_parser("tsm-bench", __doc__, "tsm-bench epoch|pool|serve|stream|train [flags]")
    parser.add_argument("what", choices=PARTS, metavar="epoch|pool|serve|stream|train")
    strictly(parser, argv)  # --help, --version, or an error
    return 2


def build_parser(part: str) -> argparse.ArgumentParser:
    """Of one of the parts."""
    name = f"tsm-bench {part}"
    parser = make_parser(name, PARTS[part].__doc__ or "", f"{name} [flags]")
    PARTS[part].add_flags(parser)
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
