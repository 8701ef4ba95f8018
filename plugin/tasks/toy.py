"""The toy long-time-scale problem: how fast does gradient descent open a gate? (FG, fig. 2)

    L(z) = |f^10 - 1|,  f = phi(z);   descent: z <- z - dL/dz,   flow: dz/dtau = -dL/dz

so dz/dtau = 10 f^9 phi'(z). The faster the gate saturates, the faster it learns (FG theorem 0.4):

    gate      phi(z)                               1 - f of the flow (FG table 1)
    softsign  (softsign(z/2) + 1)/2                tau^-1/3
    sigmoid   sigma(z)                             tau^-1
    refine    r(1-(1-f0)^2) + (1-r) f0^2           tau^-1   (two numbers: z of f0 and z of r)
    fast      sigma(sinh z)                        at most W^2(c tau^-1/2), W Lambert's function

Every gate starts at z = 0, f = 1/2. Gates return u = 1 - f and its derivative, because computing 1 - f from f
near 1 would lose all significant digits. There is no sequence and no model, only functions that compute the
curves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..common.lazy import np
from ..registry import unknown

SPAN = 10  # t1 - t0
Point = tuple[float, ...]  # z, or (z, z_r)
Gate = Callable[[Point], tuple[float, Point]]  # z -> u = 1 - f, df/dz


def _sigmoid(z: float) -> float:
    e = math.exp(-abs(z))
    return (e if z < 0 else 1.0) / (1.0 + e)


def sigmoid(z: Point) -> tuple[float, Point]:
    u = _sigmoid(-z[0])
    return u, (u * (1 - u),)


def fast(z: Point) -> tuple[float, Point]:
    u = _sigmoid(-math.sinh(z[0]))
    return u, (u * (1 - u) * math.cosh(z[0]),)


def softsign(z: Point) -> tuple[float, Point]:
    slope = 1 / (2 + abs(z[0])) ** 2
    u = 1 / (2 + abs(z[0]))
    return (u if z[0] >= 0 else 1 - u), (slope,)


def refine(z: Point) -> tuple[float, Point]:
    u0, s = _sigmoid(-z[0]), _sigmoid(-z[1])  # 1 - f0, 1 - r
    f0, r = 1 - u0, 1 - s
    u = r * u0 * u0 + s * u0 * (1 + f0)
    return u, ((r * 2 * u0 + s * 2 * f0) * f0 * u0, 2 * f0 * u0 * r * s)


GATES: dict[str, tuple[Gate, Point]] = {
    "softsign": (softsign, (0.0,)),
    "sigmoid": (sigmoid, (0.0,)),
    "refine": (refine, (0.0, 0.0)),
    "fast": (fast, (0.0,)),
}
"""Name -> gate and starting point."""


@dataclass(frozen=True)
class Curve:
    """u = 1 - f at the times tau, for descent with learning rate 1 and for flow."""

    tau: np.ndarray
    descent: np.ndarray
    flow: np.ndarray


def toy_curves(
    steps: int = 100_000, points: int = 200, gates: Sequence[str] = tuple(GATES)
) -> dict[str, Curve]:
    """The curves of all gates over `steps` updates, at about `points` times spaced evenly in log tau."""
    if steps < 1 or points < 2:
        raise ValueError(f"steps is {steps}, points {points}; accepted: 1 and 2 or more")
    spaced = np.unique(np.round(np.geomspace(1, steps, points)).astype(np.int64))
    tau = np.concatenate([[0], spaced])
    return {name: Curve(tau, descent(name, tau), flow(name, tau)) for name in gates}


def descent(name: str, tau: np.ndarray) -> np.ndarray:
    """1 - f after tau updates (integers, ascending) with learning rate 1."""
    gate, z = _gate(name)
    out, done = [], 0
    for t in tau.tolist():
        for _ in range(t - done):
            z = _move(z, _velocity(gate, z), 1.0)
        done = t
        out.append(gate(z)[0])
    return np.array(out)


def flow(name: str, tau: np.ndarray, step: float = 0.01) -> np.ndarray:
    """1 - f of the flow at times tau (ascending), by fourth-order Runge-Kutta in s = log(1 + tau).

    dz/ds = (1 + tau) dz/dtau is smooth over all decades except where f starts to rise. A step changes s by at
    most `step` and 1 + |z| by at most the fraction `step`, so the error is below 1e-7.
    """
    gate, z = _gate(name)

    def rate(s: float, z: Point) -> Point:
        return _move(tuple(0.0 for _ in z), _velocity(gate, z), math.exp(s))

    out, s = [], 0.0
    for end in np.log1p(tau).tolist():
        while s < end:
            k1 = rate(s, z)
            pace = max(k / (1 + abs(a)) for k, a in zip(k1, z, strict=True))
            h = min(end - s, step / (1 + pace))
            k2 = rate(s + h / 2, _move(z, k1, h / 2))
            k3 = rate(s + h / 2, _move(z, k2, h / 2))
            k4 = rate(s + h, _move(z, k3, h))
            for k, share in ((k1, 1), (k2, 2), (k3, 2), (k4, 1)):
                z = _move(z, k, share * h / 6)
            s = end if h == end - s else s + h
        out.append(gate(z)[0])
    return np.array(out)


def rate_exponent(tau: np.ndarray, u: np.ndarray, since: float) -> float:
    """The least-squares slope of log u against log tau for tau >= since: -1/3, -1, ..."""
    late = tau >= since
    return float(np.polyfit(np.log(tau[late]), np.log(u[late]), 1)[0])


def _gate(name: str) -> tuple[Gate, Point]:
    if name not in GATES:
        raise unknown("gate", name, list(GATES))
    return GATES[name]


def _velocity(gate: Gate, z: Point) -> Point:
    """-dL/dz = 10 f^9 df/dz."""
    u, slopes = gate(z)
    pull = SPAN * (1 - u) ** (SPAN - 1)
    return tuple(pull * slope for slope in slopes)


def _move(z: Point, v: Point, by: float) -> Point:
    return tuple(a + by * b for a, b in zip(z, v, strict=True))
