"""How far a file in float32 may be from float64: a small multiple of what rounding does to this very model.

An operation in float32 rounds by up to u = 2^-24 of its result, and a sum of K products, whose order is the
consumer's own, by about sqrt(K) u. What becomes of that is the model's affair: a recurrence forgets errors
or makes them grow. So it is measured, not guessed: the model itself is run in float32 (reference.py, sums
as PyTorch takes them) on the same inputs, and each of its outputs is some e away from float64. Another
float32 program is as far away, for the same reasons:

    allowed = MULTIPLE (e + u sqrt(K)) size,    size = max(1, largest |float64| of that output)

with e as a share of size, of that answer or of some random streams, whichever is larger, and K the longest
sum of the model. MULTIPLE covers other orders of sums, and other exp, tanh and sigmoid: ONNX Runtime's
sigmoid is right to 2 u, which near 0 is thousands of u of itself. Over all architectures with random
weights, in the runtime, ONNX Runtime and TorchScript, the largest error was 2.2 (e + u sqrt(K)) size; of a
trained power-law LSTM it was 13 in ONNX Runtime and below 1 in the others.

Where e exceeds LOST, float32 has left float64's path, and nothing can be compared any more. That happens in
cells whose states are not bounded (`nru`), which also leave the range of a float32; the long stream ends
there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from ..common.runner import Array

if TYPE_CHECKING:
    from ...plugin.models import SequenceModel

U = 2.0**-24
MULTIPLE = 64
LOST = 1e-3
STRUCTURE = 0.5
"""Below float32: largest error of a row, as a share of the signal. See `structure`."""


def longest_sum(model: SequenceModel) -> int:
    """K: products in one sum."""
    widths = [model.decoder.in_features]
    for number, layer in enumerate(model.layers):
        reads = (
            1
            if number == 0 and model.embed is not None and model.embed.one_hot
            else layer.input_size
        )
        widths.append(reads + sum(layer.widths.values()))
    return max(widths)


def size_of(expected: Array) -> float:
    """What errors are a share of."""
    return max(1.0, float(np.abs(expected).max(initial=0.0)))


def shares(found: Mapping[str, Array], expected: Mapping[str, Array]) -> dict[str, float]:
    """e of every output: infinite where it is not a number."""
    worst = {}
    for name, value in expected.items():
        error = np.abs(found[name] - value).max(initial=0.0) / size_of(value)
        worst[name] = float(error) if np.isfinite(error) else math.inf
    return worst


def allowed(expected: Array, share: float, terms: int) -> float:
    """The error that is allowed in each number of an output: none where float32 is lost."""
    if share > LOST:
        return 0.0
    return MULTIPLE * (share + U * math.sqrt(terms)) * size_of(expected)


def structure(found: Array, expected: Array, centred: bool = False) -> tuple[float, float]:
    """(error, signal) of an output below float32 as a whole.

    error: the worst row's root mean square; signal: how large the output is, or with `centred` how much it
    varies over rows and steps. Rounding to 8 bits makes some percent of it,
    a state that is forgotten about all of it.
    """
    error = np.square(found.astype(np.float64) - expected).reshape(len(expected), -1).mean(axis=1)
    rows = expected.reshape(-1, expected.shape[-1])
    signal = float(np.square(rows).mean())
    if centred:
        signal = max(float(np.square(rows - rows.mean(axis=0)).mean()), 0.1 * signal)
    worst = math.sqrt(error.max(initial=0.0)) if np.isfinite(error).all() else math.inf
    return worst, math.sqrt(max(signal, 1e-12))
