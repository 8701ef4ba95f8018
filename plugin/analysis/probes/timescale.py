"""Timescale of a unit: the number of steps, or the time, until exp(-1) of its memory is left.

from gates    T = -1 / log(mean of f_t over data)      (Mahto et al. 2021, equation 3)
              times the mean dt, if the model reads time steps
from biases   T = -1 / log phi(b_f)                    the gate that the bias alone gives (x = h = 0)
assigned      the timescale for which a multi-timescale initialiser set the bias

The last two are for dt = 1.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...init import inverse_gamma
from ...layers import Recurrent
from ...train.objective import takes_dt
from .numpy_layer import NumpyLayer
from .retention import retention
from .subject import Subject

OF_DT = "units of dt"


def of_factor(f: np.ndarray) -> np.ndarray:
    """-1 / log f: 0 for a closed gate, inf for one that is exactly 1."""
    with np.errstate(divide="ignore"):
        return np.where(f < 1, -1 / np.log(np.minimum(f, 1)), np.inf)


def gate_timescales(factors: np.ndarray, valid: np.ndarray) -> np.ndarray:
    """Timescales [H], in steps, from forget factors [B,T,H]; valid [B,T]: false at padding steps."""
    return of_factor(factors[valid].mean(axis=0))


def bias_timescales(layer: Recurrent) -> np.ndarray | None:
    """Timescales [H] from the biases; None if the forget factor also depends on states."""
    if not layer.cell.elementwise:
        return None
    kept, run = retention(layer.cell), NumpyLayer(layer)
    if any(name.startswith("s.") for name in kept.program.inputs()):
        return None
    here = run.tape_inputs(run.bias[None], run.zero_state(1), 1.0)
    return of_factor(np.broadcast_to(kept.factor(here), (1, layer.hidden_size))[0])


def assigned_timescales(layer: Recurrent) -> np.ndarray | None:
    """The assigned timescales [H], or None if the initialiser assigns none."""
    if layer.init != "multi_timescale":
        return None
    if layer.init_options.get("timescales") is not None:
        return np.asarray(layer.init_options["timescales"], dtype=np.float64)
    return inverse_gamma(layer.hidden_size, layer.init_options["alpha"])


class Unit(NamedTuple):
    """What timescales are measured in, and the mean duration of a step in it."""

    name: str = "steps"
    step: float = 1.0


def unit_of_time(subject: Subject) -> Unit:
    """The unit of dt if the model reads time steps from the data, else steps."""
    dt = subject.sample.dt
    return Unit() if dt is None else Unit(OF_DT, float(dt.cpu().numpy()[subject.valid].mean()))


def unit_of_biases(subject: Subject) -> Unit:
    """The unit of timescales for dt = 1."""
    return Unit(OF_DT) if takes_dt(subject.model) else Unit()


def measured(subject: Subject) -> list[np.ndarray]:
    """Timescales [H] of every layer, measured from the gates, in `unit_of_time`."""
    step = unit_of_time(subject).step
    return [gate_timescales(factors, subject.valid) * step for factors in subject.factors]


def widest(subject: Subject) -> int:
    """The layer (from 0) with the widest spread of timescales. Layers with assigned timescales are
    preferred."""
    given = [assigned_timescales(layer) for layer in subject.layers]
    times = [m if a is None else a for a, m in zip(given, measured(subject), strict=True)]
    pool = [i for i, a in enumerate(given) if a is not None] or range(len(times))
    return max(pool, key=lambda i: _spread(times[i]))


def _spread(times: np.ndarray) -> float:
    finite = times[np.isfinite(times) & (times > 0)]
    return float(np.log(finite).std()) if len(finite) else 0.0
