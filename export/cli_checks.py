"""What `tsm-export` and `tsm-export verify` share: the flags of the verification, its data and its output."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..plugin.command.flags import integer
from .verify.report import Check, Watch

if TYPE_CHECKING:
    from ..plugin.trained import Trained

STEPS = 10_000
DATA_STEPS = 20_000
QUALITY = 0.01


class Lines(Watch):
    """Prints checks on stdout and the progress of the long stream on stderr."""

    def __init__(self, update: Callable[[int], None]) -> None:
        self.update, self.done = update, 0

    def check(self, check: Check) -> None:
        print(check.line(), flush=True)

    def steps(self, done: int, total: int) -> None:
        self.update(done - self.done)
        self.done = done


def add_check_flags(p: argparse.ArgumentParser) -> None:
    """Adds the flags that set how the file is compared with the model."""
    check = p.add_argument_group("verification")
    check.add_argument(
        "--verify-steps", type=integer(0), default=STEPS, metavar="N",
        help=f"length of the long stream (default {STEPS:,})",
    )  # fmt: skip
    check.add_argument(
        "--quality-limit", type=share, default=QUALITY, metavar="X",
        help="below float32: the largest accepted relative change of the perplexity or, for other models, "
        f"divergence of the outputs in nats; on --data, or on a sample (default {QUALITY})",
    )  # fmt: skip
    check.add_argument(
        "--data",
        metavar="DIR",
        nargs="?",
        const="",
        help="also compare loss and accuracy on a preprocessed folder (without DIR: the folder of training)",
    )
    check.add_argument(
        "--gen-subset", default="valid", metavar="SPLIT", help="valid (default), test"
    )
    check.add_argument(
        "--data-steps", type=integer(1), default=DATA_STEPS, metavar="N",
        help=f"use about this many steps of it (default {DATA_STEPS:,})",
    )  # fmt: skip


def share(text: str) -> float:
    """A number above 0."""
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not 0 < found < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r}; accepted: a number above 0")
    return found


def open_data(trained: Trained, args: argparse.Namespace) -> Any:
    """The data that the model was trained on."""
    from ..plugin.criterions import CRITERIONS
    from ..plugin.evaluation.eval_task import data_of_training, open_task
    from .common.facts import takes_dt
    from .verify.data import TaskData

    folder = args.data or data_of_training(trained, " after --data")
    task = open_task(trained, folder, None)
    criterion = CRITERIONS.get(trained.config["criterion"])()
    padded = getattr(trained.model.settings, "read_at", "last") == "end"
    return TaskData(
        task, criterion, args.gen_subset, args.data_steps, takes_dt(trained.model), padded
    )
