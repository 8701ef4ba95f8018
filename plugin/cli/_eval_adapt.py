"""The flags of tsm-eval for language models that learn from the text while they are scored."""

from __future__ import annotations

import argparse
import math
from typing import TYPE_CHECKING, Any

from ..command.command import UsageError
from ..command.flags import integer, number

if TYPE_CHECKING:
    from ..evaluation.adapt import Adaptation

THETA, SHARE = 0.66, 0.13  # close to those of Merity et al. 2018 for Penn Treebank


def add_adaptation_flags(p: argparse.ArgumentParser) -> None:
    """Adds the flags of dynamic evaluation and of the cache."""
    learn = p.add_argument_group("language models that learn from the text while they are scored")
    learn.add_argument(
        "--dynamic-lr",
        type=number(0, math.inf),
        default=0.0,
        metavar="LR",
        help="dynamic evaluation: learning rate of the step after each --tokens-per-sample tokens",
    )
    learn.add_argument(
        "--dynamic-decay",
        type=number(0, 1),
        metavar="SHARE",
        help="how far the weights return to the trained ones at each step (default: 0)",
    )
    learn.add_argument(
        "--cache-size", type=integer(1), metavar="N", help="neural cache over the last N tokens"
    )
    learn.add_argument(
        "--cache-theta",
        type=number(0, math.inf),
        metavar="THETA",
        help=f"how strongly the cache prefers similar states (default: {THETA})",
    )
    learn.add_argument(
        "--cache-lambda",
        type=number(0, 1),
        metavar="SHARE",
        help=f"share of the cache in the probability (default: {SHARE})",
    )


def adaptation_of(args: argparse.Namespace) -> Adaptation:
    """The settings from the flags. A flag without effect is an error."""
    from ..evaluation.adapt import Adaptation

    for flag, goes_with in (
        ("dynamic_decay", "dynamic_lr"),
        ("cache_theta", "cache_size"),
        ("cache_lambda", "cache_size"),
    ):
        if getattr(args, flag) is not None and not getattr(args, goes_with):
            one, other = (f"--{name.replace('_', '-')}" for name in (flag, goes_with))
            raise UsageError(f"{one} requires {other}")
    theta = THETA if args.cache_theta is None else args.cache_theta
    share = SHARE if args.cache_lambda is None else args.cache_lambda
    if args.cache_size and not 0 < share < 1:
        raise UsageError(f"--cache-lambda is {share:g}; accepted: above 0 and below 1")
    size = args.cache_size or 0
    return Adaptation(args.dynamic_lr, args.dynamic_decay or 0.0, size, theta, share)


def adaptation_lines(r: dict[str, Any]) -> list[str]:
    """The line of the report about adaptation, if the model adapted."""
    if "adaptation" not in r:
        return []
    a = r["adaptation"]
    dynamic = f"dynamic evaluation (lr {a['lr']:g}, decay {a['decay']:g})" if a["lr"] else ""
    cache = f"cache of {a['size']:,} (theta {a['theta']:g}, lambda {a['share']:g})"
    return [f"With {' and '.join(filter(None, [dynamic, cache if a['size'] else '']))}"]
