"""Decay curves of trained units, measured on data.

    S_n = mean over rows and positions t of  f_{t+1} f_{t+2} ... f_{t+n},    f_t = d c_t / d c_{t-1}

is the share of a unit's memory that is left n steps later, averaged over all positions in the data that are
followed by at least n steps. It uses the actual gates, and the actual ages of power-law units. Memory that
returns through h and the recurrent weights is not counted. A constant forget gate gives a straight line if only
the S_n axis is logarithmic, a power law if both axes are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ...cells.tape.ops import NumpyOps
from ...layers import Recurrent
from ...layers.checks import check_dt, check_input, check_lengths, check_state
from .layer_calls import layer_calls
from .numpy_layer import NumpyLayer, array
from .retention import retention

SMALLEST = 1e-300
"""Smaller factors are replaced by this one, so that the logarithm of a closed gate stays finite."""


@dataclass(frozen=True)
class DecayCurves:
    """survival [H, N]: S_n of each unit at the N distances `steps` [N], which are increasing and >= 1."""

    steps: np.ndarray
    survival: np.ndarray
    label: str = ""

    def timescales(self) -> np.ndarray:
        """[H]: steps until the S_n of a unit falls below 1/e; inf if it does not within `steps`."""
        n = np.concatenate([[0], self.steps])
        left = np.concatenate([np.ones((len(self.survival), 1)), self.survival], axis=1)
        log_s = np.log(np.maximum(left, SMALLEST))
        below = log_s < -1
        times = np.full(len(log_s), np.inf)
        for unit in np.flatnonzero(below.any(axis=1)):
            at = int(below[unit].argmax())
            before, after = log_s[unit, at - 1], log_s[unit, at]
            share = (before + 1) / (before - after)
            times[unit] = n[at - 1] + share * (n[at] - n[at - 1])
        return times


def forget_factors(
    layer: Recurrent,
    x: Tensor,
    state: Mapping[str, Tensor] | None = None,
    dt: Tensor | None = None,
) -> np.ndarray:
    """The forget factor f_t of every unit at every step of x [B,T,I]: float64 [B,T,H]."""
    check_input(x, layer.input_size, getattr(x, "dtype", torch.float32))
    batch, steps = x.shape[:2]
    kept, run = retention(layer.cell), NumpyLayer(layer)
    now = run.zero_state(batch)
    if state is not None:
        given = check_state(state, layer.cell, layer.widths, batch)
        now = {name: array(value) for name, value in given.items()}
    times = None
    if dt is not None:
        times = array(check_dt(dt, layer.cell, layer.options, batch, steps))
    zx = run.project(array(x))
    factors = np.empty((batch, steps, layer.hidden_size))
    for t in range(steps):
        here = run.tape_inputs(zx[:, t], now, 1.0 if times is None else times[:, t, None])
        factors[:, t] = kept.factor(here)
        now = layer.cell.tape().run(NumpyOps, here)
    return factors


def decay_curves(
    layer: Recurrent,
    x: Tensor,
    steps: Sequence[int] | np.ndarray | None = None,
    state: Mapping[str, Tensor] | None = None,
    dt: Tensor | None = None,
    lengths: Tensor | Sequence[int] | None = None,
    label: str | None = None,
) -> DecayCurves:
    """The curves of a layer's units on its input x [B,T,I], at `steps`, or by default at about 40 distances up
    to T/2.

    state, dt, lengths: as in a call of the layer. label: text for the figure, by default the name of the cell.
    """
    factors = forget_factors(layer, x, state, dt)
    batch, total = factors.shape[:2]
    if total < 1 or batch < 1:
        raise ValueError(
            f"x has shape {tuple(x.shape)}; accepted: [B, T, I] with B, T of 1 or more"
        )
    lags = _lags(total) if steps is None else np.asarray(steps)
    if lags.ndim != 1 or not len(lags) or lags[0] < 1 or (np.diff(lags) < 1).any():
        raise ValueError(f"steps = {steps!r}; accepted: integers from 1 on, increasing")
    ends = np.full(batch, total)
    if lengths is not None:
        ends = check_lengths(lengths, batch, total).cpu().numpy()
    if lags[-1] > ends.max():
        raise ValueError(f"steps has {lags[-1]}; accepted: up to the longest row, {ends.max()}")
    log_f = np.log(np.maximum(np.abs(factors), SMALLEST))
    zero = np.zeros((batch, 1, log_f.shape[-1]))
    summed = np.concatenate([zero, np.cumsum(log_f, axis=1)], axis=1)  # [B, T+1, H]
    survival = np.empty((log_f.shape[-1], len(lags)))
    for j, n in enumerate(lags):
        product = np.exp(summed[:, n:] - summed[:, :-n])  # [B, T+1-n, H], start t in 0 .. T-n
        counts = np.arange(total + 1 - n) + n <= ends[:, None]
        survival[:, j] = product[counts].mean(axis=0)
    return DecayCurves(lags, survival, layer.cell.name if label is None else label)


def model_decay_curves(
    model: nn.Module, *inputs: Any, steps: Sequence[int] | None = None, **named: Any
) -> list[DecayCurves]:
    """`decay_curves` of every recurrent layer inside `model`, in call order.

    The model is called once without dropout, as `model(*inputs, **named)`, to record the inputs of each layer.
    """
    return [
        decay_curves(
            call.layer,
            call.x,
            steps,
            call.state,
            call.dt,
            call.lengths,
            label=f"{call.layer.cell.name}, layer {i + 1}",
        )
        for i, call in enumerate(layer_calls(model, *inputs, **named))
    ]


def _lags(total: int, count: int = 40) -> np.ndarray:
    """About `count` integers from 1 to T/2, evenly spaced on a logarithmic axis."""
    return np.unique(np.rint(np.geomspace(1, max(1, total // 2), count)).astype(int))
