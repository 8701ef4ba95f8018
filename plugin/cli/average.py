"""tsm-average: averages the weights of several checkpoints of one run.

    tsm-average runs/lm/checkpoint8.pt runs/lm/checkpoint9.pt --output runs/lm/average.pt
    tsm-average runs/lm --last 5 --output runs/lm/average.pt        its last 5 checkpointN.pt

tsm-eval, tsm-generate, tsm-analyze, tsm-export and --finetune-from-model read the result.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path

from ..command.command import UsageError, command
from ..command.flags import integer, load_plugins, make_parser, strictly
from ..common.inputs import keep_inputs


@command("tsm-average")
def main(argv: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    args = strictly(build_parser(), argv)
    paths = inputs(args.inputs, args.last)
    keep_inputs("--output", [args.output], paths)
    load_plugins(args.user_dir)
    from ..train.average import average_checkpoints
    from ..train.checkpoint import to_bytes, write_checkpoint

    write_checkpoint(to_bytes(average_checkpoints(paths)), args.output)
    names = ", ".join(map(str, paths))
    print(f"{args.output}: the mean of {len(paths)} checkpoint{'s' * (len(paths) > 1)} ({names})")
    return 0


def build_parser() -> argparse.ArgumentParser:
    p = make_parser("tsm-average", __doc__, "tsm-average CKPT... --output FILE [flags]")
    p.add_argument(
        "inputs", nargs="+", type=Path, metavar="CKPT", help="checkpoints, or the folder of a run"
    )
    p.add_argument(
        "--last", type=integer(1), metavar="N", help="with the folder of a run: its last N epochs"
    )
    p.add_argument("--output", type=Path, required=True, metavar="FILE", help="output file")
    p.add_argument("--user-dir", metavar="DIR", help="the --user-dir it was trained with, if any")
    return p


def inputs(given: Sequence[Path], last: int | None) -> list[Path]:
    """The files to average; those of a run folder are ordered by epoch."""
    if len(given) > 1 or not given[0].is_dir():
        if last is not None:
            raise UsageError("--last requires the folder of a run")
        return list(given)
    folder = given[0]
    numbered = sorted(
        (int(match[1]), path)
        for path in folder.iterdir()
        if (match := re.fullmatch(r"checkpoint(\d+)\.pt", path.name))
    )
    if not numbered:
        raise UsageError(f"{folder} has no checkpointN.pt; accepted: the folder of a run")
    if last is None or len(numbered) < last:
        given_last = "--last is missing" if last is None else f"--last is {last}"
        raise UsageError(
            f"{given_last}; {folder} has {len(numbered)} checkpointN.pt; accepted: 1 to "
            f"{len(numbered)}"
        )
    return [path for _, path in numbered[-last:]]


if __name__ == "__main__":
    raise SystemExit(main())
