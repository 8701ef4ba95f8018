"""The overall quality of a file, which decides whether an export below float32 passes.

    perplexity     of a language model: |perplexity / float64's - 1|
    divergence     of the outputs of a classifier or tagger: mean KL(float64 || file), in nats
    squared error  of outputs that are numbers: mean squared difference relative to their variance

They are measured on the given data or else on a sample: for a language model, text that it generates; for other
models, random inputs. A perplexity that is 1% higher means a loss that is 0.01 nats higher and, on the model's
own text, a divergence of 0.01 nats; so one limit serves all three. Individual outputs are reported but not
judged: along a stream they show how sensitive the model is, not how good.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..common.runner import Array, Runner, State, feed
from .data import Data, log_softmax

LIMIT = 0.01


@dataclass(frozen=True)
class Quality:
    """Quality of one runner. values: loss, perplexity, accuracy, ..., if there are targets."""

    criterion: str
    found: float
    values: dict[str, float]
    variance: float


def measure(data: Data, runners: Sequence[Runner], criterion: str) -> list[Quality]:
    """Runs all runners over the data; the first one, float64, is the reference for the others."""
    states: list[State | None] = [None] * len(runners)
    sums: list[dict[str, tuple[float, float]]] = [{} for _ in runners]
    away = np.zeros(len(runners))
    spread, first, count = 0.0, 0.0, 0
    for piece in data.pieces():
        outputs = []
        for number, runner in enumerate(runners):
            state = None if piece.fresh else states[number]
            logits, states[number] = feed(runner, piece.x, state, piece.dt, piece.lengths)
            outputs.append(piece.counted(np.asarray(logits, np.float64)))
            for name, (total, weight) in piece.sums(logits).items():
                before = sums[number].get(name, (0.0, 0.0))
                sums[number][name] = (before[0] + total, before[1] + weight)
        count += outputs[0].size if criterion == "squared error" else len(outputs[0])
        spread += float(np.square(outputs[0]).sum())
        first += float(outputs[0].sum())
        for number, output in enumerate(outputs):
            away[number] += _distance(outputs[0], output, criterion)
    count = max(count, 1)
    variance = max(spread / count - (first / count) ** 2, 1e-12)
    away /= count * (variance if criterion == "squared error" else 1.0)
    found: list[Quality] = []
    for own, distance in zip(sums, away.tolist(), strict=True):
        values = data.values({n: t / max(w, 1e-12) for n, (t, w) in own.items()})
        if criterion == "perplexity":
            more = values["loss"] - (found[0].values if found else values)["loss"]  # in bits
            values["divergence"] = distance
            distance = abs(math.expm1(min(more, 1000.0) * math.log(2)))
        else:
            values[criterion] = distance
        found.append(
            Quality(criterion, distance if distance < math.inf else math.inf, values, variance)
        )
    return found


def _distance(exact: Array, found: Array, criterion: str) -> float:
    if criterion == "squared error":
        return float(np.square(found - exact).sum())
    p, q = log_softmax(exact), log_softmax(found)
    return float((np.exp(p) * (p - q)).sum())
