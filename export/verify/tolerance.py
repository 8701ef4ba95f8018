"""How far a float32 file may be from float64: a small multiple of the rounding error of this model.

An operation in float32 rounds by up to u = 2^-24 of its result, and a sum of K products, in any order, by about
sqrt(K) u. Their effect depends on the model: a recurrence may forget errors or amplify them. So the effect is
measured: the model is run in float32 (reference.py, with PyTorch's sums) on the same inputs, and each of its
outputs is some distance e away from float64. Another float32 program should be about as far away:

    allowed = MULTIPLE (e + u sqrt(K)) size,    size = max(1, largest |float64| of that output)

with e relative to size, from this output or from some random streams, whichever is larger, and K the longest
sum in the model. MULTIPLE covers other orders of summation and other versions of exp, tanh and sigmoid: ONNX
Runtime's sigmoid has an absolute error of up to 2 u, which near 0 is a relative error of thousands of u. Over
all architectures with random weights, in tsm's runtime, ONNX Runtime and TorchScript, the largest error was 2.2
(e + u sqrt(K)) size; for a trained power-law LSTM the factor was 13 in ONNX Runtime and below 1 in the others.

If e exceeds LOST, float32 has diverged from float64, and nothing can be compared any more. This happens in
cells with unbounded states (`nru`), which may also exceed the range of float32; the long stream ends there.
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
"""Below float32: largest error of a row relative to the signal. See `structure`."""


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
    """e of every output; infinite for NaN."""
    worst = {}
    for name, value in expected.items():
        error = np.abs(found[name] - value).max(initial=0.0) / size_of(value)
        worst[name] = float(error) if np.isfinite(error) else math.inf
    return worst


def allowed(expected: Array, share: float, terms: int) -> float:
    """The error that is allowed in each number of an output; 0 if float32 has diverged."""
    if share > LOST:
        return 0.0
    return MULTIPLE * (share + U * math.sqrt(terms)) * size_of(expected)


def structure(found: Array, expected: Array, centred: bool = False) -> tuple[float, float]:
    """Returns (error, signal) of a whole output, for precisions below float32.

    error: the RMS error of the worst row; signal: the RMS of the output or, with `centred`, of its variation
    over rows and steps. Rounding to 8 bits gives an error of some percent of the signal, a lost state about
    100%.
    """
    error = np.square(found.astype(np.float64) - expected).reshape(len(expected), -1).mean(axis=1)
    rows = expected.reshape(-1, expected.shape[-1])
    signal = float(np.square(rows).mean())
    if centred:
        signal = max(float(np.square(rows - rows.mean(axis=0)).mean()), 0.1 * signal)
    worst = math.sqrt(error.max(initial=0.0)) if np.isfinite(error).all() else math.inf
    return worst, math.sqrt(max(signal, 1e-12))
