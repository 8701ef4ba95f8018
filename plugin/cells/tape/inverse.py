"""Computes the bias that gives a gate a desired starting value.

The gate of input z is the first value between 0 and 1 that a program computes from z alone: a gate primitive
(sigmoid, fast_sigmoid, softsign_gate, or log_sigmoid, the logarithm of a gate) applied to z or to a function of
z, as in sigmoid(z + z^3).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from .ops import PRIMITIVES, NumpyOps
from .tape import Literal, Ref, Tape

LARGEST = 1e6
"""Biases are searched for between -LARGEST and LARGEST."""


def gate_bias(tape: Tape, gate: str) -> Callable[[float], float] | None:
    """The map logit -> bias for input `gate`, or None if the program does not use it as a gate.

    A program may write the complement 1 - v as act(-z). The inverses of the primitives are odd functions, so
    the same inverse works for v and for 1 - v. Any other monotone function of z inside the primitive is
    inverted by bisection.
    """
    alone: set[Ref] = {gate}
    for number, node in enumerate(tape.nodes):
        if not alone.intersection(node.args):
            continue
        if not all(a in alone or isinstance(a, Literal) for a in node.args):
            continue
        inverse = PRIMITIVES[node.op].bias_for
        if inverse is None:
            alone.add(number)
            continue
        inside = node.args[0]
        if inside == gate or _is_negative(tape, inside, gate):
            return inverse
        argument = Tape(tape.nodes, {"x": inside}).pruned()
        return lambda logit: _bisect(argument, gate, inverse(logit))
    return None


def _is_negative(tape: Tape, ref: Ref, gate: str) -> bool:
    return isinstance(ref, int) and tape.nodes[ref].op == "neg" and tape.nodes[ref].args == (gate,)


def _bisect(argument: Tape, gate: str, wanted: float) -> float:
    """Solves argument(z) = wanted for a monotone function."""

    def value(z: float) -> float:
        with np.errstate(over="ignore"):
            return float(argument.run(NumpyOps, {gate: np.float64(z)})["x"])

    low, high = -LARGEST, LARGEST
    if value(low) > value(high):
        low, high = high, low
    if not value(low) <= wanted <= value(high):
        raise ValueError(f"no bias between {-LARGEST:g} and {LARGEST:g} gives the gate's value")
    for _ in range(200):
        middle = (low + high) / 2
        if value(middle) < wanted:
            low = middle
        else:
            high = middle
        if math.isclose(low, high, rel_tol=1e-15, abs_tol=1e-15):
            break
    return (low + high) / 2
