"""Power-law LSTM: the memory decays as a power of the time since its last reset, not exponentially.

The paper stores k, the time of the last reset. As the clock t grows without bound, t - k loses all its
significant digits. Carrying the age a = t - k instead is mathematically the same and needs no clock:

    k = r t + (1 - r) k'               =>  a = (1 - r) (a' + dt)
    f = ((t - k + 1) / (t - dt - k~ + 1 + eps))^-p,  k~ = r (t - dt + 1) + (1 - r) k'
                                       =>  f = (((1 - r) (a' + 1) + eps) / (a + 1))^p

A float32 age stops growing at 2^24 dt, where adding dt no longer changes it. With dt near 1 this is harmless,
since f is then within 1e-7 of 1. With a dt of 1e-3 this happens at an age of 16,777, when the memory should
still be decaying.
"""

from __future__ import annotations

from .base import Cell, Vector, register_cell
from .lstm import lstm_update


def power_law(ops, keep, s, v, const, dt):
    """(f, age) after a step of length dt that keeps a fraction `keep` = 1 - r of the age."""
    age = keep * (s.age + dt)
    f = ops.exp(v.p * ops.log((keep * (s.age + 1) + const.eps) / (age + 1)))
    return f, age


class PowerLawCell(Cell):
    """Declarations shared by the power-law cells: states, the exponent p per unit, eps, and dt."""

    states = ("h", "c", "age")
    vectors = {"p": Vector(link="sigmoid", start=(0.0, 1.0), above=0.0)}
    constants = {"eps": 1e-3}
    takes_dt = True

    @classmethod
    def check(cls, hidden_size, options):
        full = super().check(hidden_size, options)
        if not 0 < full["eps"] <= 1:
            raise ValueError(
                f"eps = {full['eps']!r}; accepted: above 0, and at most the shortest dt (1)"
            )
        return full

    @classmethod
    def shortest_dt(cls, options):
        return options["eps"]  # a shorter step would make f exceed 1


@register_cell("plstm")
class Plstm(PowerLawCell):
    """Power-law forget gate (Chien et al. 2021, eq. 4-8 and A.1), input gate coupled as i = 1 - f.

    r = sigmoid(z_r);  a = (1 - r) (a' + dt);  f = (((1 - r)(a' + 1) + eps) / (a + 1))^p
    c = f c' + (1 - f) tanh(z_g);  h = sigmoid(z_o) tanh(c)
    """

    gates = ("r", "o", "g")

    @staticmethod
    def step(ops, z, s, v, const, dt):
        keep = ops.sigmoid(-z.r)  # 1 - r without cancellation
        f, age = power_law(ops, keep, s, v, const, dt)
        return dict(lstm_update(ops, z, s, f=f, i=1 - f), age=age)


@register_cell("plstm_uncoupled")
class PlstmUncoupled(PowerLawCell):
    """Power-law forget gate (Chien et al. 2021) with an input gate of its own.

    r = sigmoid(z_r);  a = (1 - r) (a' + dt);  f = (((1 - r)(a' + 1) + eps) / (a + 1))^p
    c = f c' + sigmoid(z_i) tanh(z_g);  h = sigmoid(z_o) tanh(c)
    """

    gates = ("r", "i", "o", "g")

    @staticmethod
    def step(ops, z, s, v, const, dt):
        keep = ops.sigmoid(-z.r)
        f, age = power_law(ops, keep, s, v, const, dt)
        return dict(lstm_update(ops, z, s, f=f, i=ops.sigmoid(z.i)), age=age)


@register_cell("plstm_fast")
class PlstmFast(PowerLawCell):
    """Power-law forget gate (Chien et al. 2021) whose reset gate saturates fast (Ohno et al. 2022).

    r = sigmoid(sinh(z_r));  a = (1 - r) (a' + dt);  f = (((1 - r)(a' + 1) + eps) / (a + 1))^p
    c = f c' + (1 - f) tanh(z_g);  h = sigmoid(z_o) tanh(c)
    """

    gates = ("r", "o", "g")

    @staticmethod
    def step(ops, z, s, v, const, dt):
        keep = ops.fast_sigmoid(-z.r)
        f, age = power_law(ops, keep, s, v, const, dt)
        return dict(lstm_update(ops, z, s, f=f, i=1 - f), age=age)
