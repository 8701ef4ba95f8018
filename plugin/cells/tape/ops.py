"""The primitives of cell programs, and the classes that run them.

A cell is a short element-wise program over an abstract `ops` (see `base.py`). Besides `+ - * /`, unary minus
and integer powers it may use the functions in `PRIMITIVES`. Every backend implements a few basic primitives
itself (exp, log, sigmoid, tanh). The others are defined by formulas in `Defined`, which `make cells` prints as
C++ into `cpp/src/cells/generated/primitives.h`, with the list of all primitives.

    exp(x), log(x), tanh(x)
    sigmoid(x)               1 / (1 + e^-x)
    fast_sigmoid(x)          sigmoid(sinh x)
    softsign_gate(x)         1/2 + x / (2 (2 + |x|))
    log_sigmoid(x)           log(1 / (1 + e^-x)), finite for every x; log(e^a + e^b) = a - log_sigmoid(a - b)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = Any  # what `ops` works on: numpy array, torch tensor, recorded value

FAST_LIMIT = 7.5
"""|x| beyond which fast_sigmoid is constant: 0 or 1 to the last bit of a float64, with slope 0.

cosh(7.5) = 904 still fits into a float16; for larger x, sinh and cosh overflow.
"""


class Defined:
    """Primitives defined in terms of simpler ones, once for all backends; `cls` is the current `ops`.

    Besides the basic primitives, a formula may use the simple operations abs, clip, sinh and cosh. A method
    `..._slope` is a derivative that has no short formula in terms of the primitive's value.
    """

    exp: Any
    log: Any
    sigmoid: Any
    tanh: Any
    abs: Any
    clip: Any
    sinh: Any
    cosh: Any

    @classmethod
    def fast_sigmoid(cls, x: Array) -> Array:
        return cls.sigmoid(cls.sinh(cls.clip(x, -FAST_LIMIT, FAST_LIMIT)))

    @classmethod
    def fast_sigmoid_slope(cls, x: Array) -> Array:
        """Not computed as y (1 - y) cosh x, because cosh would magnify the rounding error of 1 - y."""
        within = cls.clip(x, -FAST_LIMIT, FAST_LIMIT)
        e = cls.exp(-cls.abs(cls.sinh(within)))
        return e / (1 + e) ** 2 * cls.cosh(within)

    @classmethod
    def softsign_gate(cls, x: Array) -> Array:
        return 0.5 + 0.5 * (x / (2 + cls.abs(x)))

    @classmethod
    def softsign_gate_slope(cls, x: Array) -> Array:
        return 1 / (2 + cls.abs(x)) ** 2

    @classmethod
    def log_sigmoid(cls, x: Array) -> Array:
        """min(x, 0) - log(1 + e^-|x|)"""
        size = cls.abs(x)
        return 0.5 * (x - size) - cls.log(1 + cls.exp(-size))


DEFINED: dict[str, Callable[..., Array]] = {
    name: value.__func__ for name, value in vars(Defined).items() if isinstance(value, classmethod)
}
"""Name -> its formula over (ops, x)."""


class NumpyOps(Defined):
    """The primitives on numpy arrays of any float type. In float64 they are the ground truth for the tests."""

    exp = staticmethod(np.exp)
    log = staticmethod(np.log)
    tanh = staticmethod(np.tanh)
    abs = staticmethod(np.abs)
    clip = staticmethod(np.clip)
    sinh = staticmethod(np.sinh)
    cosh = staticmethod(np.cosh)

    @staticmethod
    def sigmoid(x: Array) -> Array:
        e = np.exp(-np.abs(x))  # never overflows
        return np.where(x < 0, e, 1) / (1 + e)

    # Composite cells (nru) also need linear algebra over the last axis.
    matmul = staticmethod(np.matmul)

    @staticmethod
    def transpose(x: Array) -> Array:
        return np.swapaxes(x, -1, -2)

    @staticmethod
    def concat(parts: list[Array]) -> Array:
        return np.concatenate(parts, axis=-1)

    @staticmethod
    def reshape(x: Array, shape: tuple[int, ...]) -> Array:
        return np.reshape(x, shape)

    @staticmethod
    def relu(x: Array) -> Array:
        return np.maximum(x, 0)

    @staticmethod
    def mean(x: Array, axis: int) -> Array:
        return np.mean(x, axis=axis)

    @staticmethod
    def layer_norm(x: Array) -> Array:
        centred = x - np.mean(x, axis=-1, keepdims=True)
        return centred / np.sqrt(np.mean(centred**2, axis=-1, keepdims=True) + 1e-5)

    power = staticmethod(np.power)
    at_least = maximum = staticmethod(np.maximum)

    @staticmethod
    def is_at_most(x: Array, y: Array) -> Array:
        return (x <= y).astype(x.dtype)

    @staticmethod
    def row_max(x: Array) -> Array:
        return np.max(x, axis=-1, keepdims=True)

    @staticmethod
    def row_sum(x: Array) -> Array:
        return np.sum(x, axis=-1, keepdims=True)


Logit = Callable[[float], float]


@dataclass(frozen=True)
class Primitive:
    """One element-wise function: a description, its derivative and, for gates, the inverse that initialisers
    need.

    `derivative(ops, args, y, g)` computes the gradient of each argument with the same `ops`, so that the
    derivative of a recorded program can also be recorded. `bias_for(logit)` is the argument at which a gate's
    value v has log(v / (1 - v)) = logit. v is the value of the primitive or, with `log`, its exponential.
    """

    value: str
    derivative: Callable[[Any, tuple[Array, ...], Array, Array], tuple[Array, ...]] | None
    bias_for: Logit | None = None
    log: bool = False  # the value is the logarithm of a gate


def _softsign_bias(logit: float) -> float:
    return math.copysign(math.expm1(abs(logit)), logit)


PRIMITIVES: dict[str, Primitive] = {
    "add": Primitive("a + b", lambda ops, a, y, g: (g, g)),
    "sub": Primitive("a - b", lambda ops, a, y, g: (g, -g)),
    "mul": Primitive("a b", lambda ops, a, y, g: (g * a[1], g * a[0])),
    # g / a[1] occurs twice but is recorded once.
    "div": Primitive("a / b", lambda ops, a, y, g: (g / a[1], -(g / a[1] * y))),
    "neg": Primitive("-x", lambda ops, a, y, g: (-g,)),
    "exp": Primitive("e^x", lambda ops, a, y, g: (g * y,)),
    "log": Primitive("ln x", lambda ops, a, y, g: (g / a[0],)),
    "sigmoid": Primitive(
        "1 / (1 + e^-x)", lambda ops, a, y, g: (g * (y * (1 - y)),), lambda logit: logit
    ),
    "tanh": Primitive("tanh x", lambda ops, a, y, g: (g * (1 - y * y),)),
    "fast_sigmoid": Primitive(
        f"sigmoid(sinh x), x clamped to ±{FAST_LIMIT}",
        lambda ops, a, y, g: (g * ops.fast_sigmoid_slope(a[0]),),
        math.asinh,
    ),
    "softsign_gate": Primitive(
        "1/2 + x / (2 (2 + |x|))",
        lambda ops, a, y, g: (g * ops.softsign_gate_slope(a[0]),),
        _softsign_bias,
    ),
    "log_sigmoid": Primitive(
        "ln(1 / (1 + e^-x))",
        lambda ops, a, y, g: (g * ops.sigmoid(-a[0]),),
        lambda logit: logit,
        log=True,
    ),
    # Slopes only appear in differentiated programs; second derivatives are not supported.
    "fast_sigmoid_slope": Primitive("derivative of fast_sigmoid", None),
    "softsign_gate_slope": Primitive("derivative of softsign_gate", None),
}
"""Every operation that a recorded program may contain."""

ARITHMETIC: dict[str, Callable[..., Array]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "neg": lambda a: -a,
}
"""The operations that are Python operators rather than methods of `ops`."""
