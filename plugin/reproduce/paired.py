"""Two variants compared seed by seed, and two word models sequence by sequence.

The updates until a level are known only for runs that reached it. If a run did not, both runs of its seed are
compared over the updates that it made, or if neither did, over those of the shorter run; a run that was below
the level until then counts with all of them. So slow runs are not left out. The true difference has the same
sign and is larger; if it is 0 here, it is unknown. A run that diverged was followed until then.

Paired bootstrap of word models (MTS tables 1 and 3):
sequences   100 words each of the test text, the same ones for both models
a sample    as many sequences, drawn with replacement; both models' perplexities on it
interval    percentiles 2.5 and 97.5 of the 10,000 differences
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..common.lazy import np
from ..evaluation.frequency_bins import SAMPLES, bootstrap
from .quantities import Quantity, value_of
from .recipe import Metric
from .store import Summary

ALIKE = 0.9  # runs of about the same length: the shorter one has this part of the other's epochs
BITS = "sequence_bits"  # in a summary's details: [bits, words] of every sequence


@dataclass(frozen=True)
class Difference:
    """The difference between two runs with the same seed. bound: if the true one may be larger, which of them
    did not reach the level; else empty."""

    seed: int
    value: float
    bound: str = ""

    @property
    def unknown(self) -> bool:
        return bool(self.bound) and self.value == 0


def differences(
    what: Metric | Quantity,
    first: Sequence[Summary],
    second: Sequence[Summary],
    *,
    times: float = 1.0,
) -> list[Difference]:
    """a - times * b for each seed for which both runs tell something. Both must be at their end or about
    equally long, unless the value is the updates until a level."""
    others = {run.seed: run for run in second}
    pairs = [(run, others[run.seed]) for run in first if run.seed in others]
    return [one for a, b in pairs if (one := _difference(what, a, b, times)) is not None]


def _difference(what: Metric | Quantity, a: Summary, b: Summary, times: float) -> Difference | None:
    of_a, of_b = _seen(a, what), _seen(b, what)
    comparable = alike(a, b) or (isinstance(what, Metric) and what.level)
    if of_a is None or of_b is None or not comparable:
        return None
    first, second = of_a[0], times * of_b[0]
    end = min(of_a[1], times * of_b[1])
    value = min(first, end) - min(second, end)
    if math.isinf(end):
        return Difference(a.seed, value)
    late = [run.variant for run, when in ((a, first), (b, second)) if when > end]
    who = "neither" if len(late) == 2 else f"{late[0]} not"
    within = end if late == [a.variant] else end / times
    return Difference(a.seed, value, f"{who} within {within:,.0f} updates")


def alike(a: Summary, b: Summary) -> bool:
    """Whether both runs are at their end, or about equally long."""
    return (a.ended and b.ended) or min(a.epochs, b.epochs) >= ALIKE * max(a.epochs, b.epochs)


def _seen(run: Summary, what: Metric | Quantity) -> tuple[float, float] | None:
    """The value of a run, and the updates for which it was followed, both infinite where there is no end: the
    level was not reached by the last validation, or the value is known."""
    value = value_of(run, what)
    if value is not None:
        return value, math.inf
    best = run.metrics.get("valid_accuracy")
    if not isinstance(what, Metric) or best is None or best >= what.level or not run.history:
        return None
    return math.inf, run.history[-1]["update"]


def shown(pairs: Sequence[Difference], what: Metric | Quantity) -> str:
    """The mean and its error; or every seed's difference, if some are only bounds."""
    if any(one.bound for one in pairs):
        return ", ".join(_words(one, what) for one in pairs)
    mean, error = mean_and_error([one.value for one in pairs])
    return signed(what, mean) + ("" if error is None else f" ± {what.show(error)}")


def _words(one: Difference, what: Metric | Quantity) -> str:
    if not one.bound:
        return signed(what, one.value)
    side = "below" if one.value < 0 else "above"
    return "unknown" if one.unknown else f"{side} {signed(what, one.value)}"


def signed(what: Metric | Quantity, value: float) -> str:
    return f"{value * what.scale:+,.{what.digits}f}"


def bounds(pairs: Sequence[Difference]) -> str:
    """The seeds whose difference is only a bound, as a remark."""
    return "".join(f"; seed {one.seed}: {one.bound}" for one in pairs if one.bound)


def mean_and_error(values: Sequence[float]) -> tuple[float, float | None]:
    """The mean, and its standard error if there are at least two values."""
    mean = math.fsum(values) / len(values)
    if len(values) < 2:
        return mean, None
    variance = math.fsum((v - mean) ** 2 for v in values) / (len(values) - 1)
    return mean, math.sqrt(variance / len(values))


def far_apart(values: Sequence[float]) -> bool:
    """Whether the values are too far apart for a mean, so that they are listed instead."""
    mean, error = mean_and_error(values)
    return error is not None and error > 0.05 * abs(mean)


def paired_interval(first: Sequence[Summary], second: Sequence[Summary]) -> str | None:
    """a - b over the seeds for which both models have bits; None if there are none."""
    a, b = (
        {run.seed: run.details[BITS] for run in runs if BITS in run.details}
        for runs in (first, second)
    )
    both = sorted(set(a) & set(b))
    if not both:
        return None
    ends = [bootstrap_interval(np.array(a[seed]), np.array(b[seed])) for seed in both]
    shown = ", ".join(
        f"{low:+.2f} to {high:+.2f} (seed {seed})"
        for seed, (low, high) in zip(both, ends, strict=True)
    )
    return f"95% of {SAMPLES:,} paired bootstrap samples: {shown}"


def bootstrap_interval(a: np.ndarray, b: np.ndarray, samples: int = SAMPLES) -> tuple[float, float]:
    """The interval of perplexity a - perplexity b; a, b [sequences, 2]: bits and words."""
    if a.shape != b.shape or not np.array_equal(a[:, 1], b[:, 1]):
        raise ValueError("two models scored different sequences; accepted: the same text for both")
    bits = np.stack([a[:, 0], b[:, 0]], axis=1)
    drawn = bootstrap(bits, np.stack([a[:, 1], b[:, 1]], axis=1), samples, 0, lambda blocks: blocks)
    low, high = np.percentile(drawn[:, 0] - drawn[:, 1], [2.5, 97.5])
    return float(low), float(high)
