"""Timescales of the units: how many steps until exp(-1) is left of what a unit holds.

from gates    T = -1 / log(mean of f_t over data)      (Mahto et al. 2021, equation 3)
from biases   T = -1 / log phi(b_f)                    the gate that the bias alone gives (x = h = 0)
assigned      what a multi-timescale initialiser set the biases to
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..init import inverse_gamma
from ..layers import Recurrent
from .findings.base import Finding, NoSettings, Row, register_analysis
from .needs import FORGET_FACTOR
from .probes.numpy_layer import NumpyLayer
from .probes.retention import retention
from .probes.subject import Subject


def of_factor(f: np.ndarray) -> np.ndarray:
    """-1 / log f: 0 for a shut gate, inf for one that is open to the last bit."""
    with np.errstate(divide="ignore"):
        return np.where(f < 1, -1 / np.log(np.minimum(f, 1)), np.inf)


def gate_timescales(factors: np.ndarray, there: np.ndarray) -> np.ndarray:
    """[H] from forget factors [B,T,H] at the steps that are there [B,T]."""
    return of_factor(factors[there].mean(axis=0))


def bias_timescales(layer: Recurrent) -> np.ndarray | None:
    """[H]; None where the forget factor is not decided by biases alone."""
    if not layer.cell.elementwise:
        return None
    kept, run = retention(layer.cell), NumpyLayer(layer)
    if any(name.startswith("s.") for name in kept.program.inputs()):
        return None
    here = run.tape_inputs(run.bias[None], run.zero_state(1), 1.0)
    return of_factor(np.broadcast_to(kept.factor(here), (1, layer.hidden_size))[0])


def assigned_timescales(layer: Recurrent) -> np.ndarray | None:
    """[H], or None where the initialiser assigns none."""
    if layer.init != "multi_timescale":
        return None
    if layer.init_options.get("timescales") is not None:
        return np.asarray(layer.init_options["timescales"], dtype=np.float64)
    return inverse_gamma(layer.hidden_size, layer.init_options["alpha"])


@dataclass(frozen=True)
class LayerTimescales:
    """[H] each; biases and assigned may be missing. mean_gate: the f that `gates` comes from."""

    gates: np.ndarray
    mean_gate: np.ndarray
    biases: np.ndarray | None
    assigned: np.ndarray | None

    def rank_correlation(self) -> float | None:
        """Spearman's, of assigned and measured; None where there is nothing to rank."""
        if self.assigned is None or len(np.unique(self.assigned)) < 2:
            return None
        return spearman(self.assigned, self.gates)


@dataclass(frozen=True)
class Timescales(Finding):
    """One entry a layer; steps: how many the means are over."""

    label: str
    steps: int
    layers: list[LayerTimescales]

    def table(self) -> list[Row]:
        return [
            {
                "layer": number,
                "unit": unit,
                "timescale_gates": layer.gates[unit],
                "mean_forget_gate": layer.mean_gate[unit],
                "timescale_bias": None if layer.biases is None else layer.biases[unit],
                "timescale_assigned": None if layer.assigned is None else layer.assigned[unit],
            }
            for number, layer in enumerate(self.layers, 1)
            for unit in range(len(layer.gates))
        ]

    def text(self) -> str:
        parts = []
        for number, layer in enumerate(self.layers, 1):
            low, middle, high = np.quantile(layer.gates, [0.1, 0.5, 0.9], method="lower")
            part = (
                f"Layer {number}: half of the {len(layer.gates)} units have a timescale below "
                f"{short(middle)} steps, the slowest tenth one above {short(high)} and the fastest "
                f"tenth one below {short(low)}"
            )
            rank = layer.rank_correlation()
            if rank is not None:
                part += f"; measured and assigned timescales have a rank correlation of {rank:.2f}"
            parts.append(part + ".")
        return f"Means over {self.steps:,} steps. " + " ".join(parts)

    def draw(self, *others: Timescales):
        from .plot_timescales import draw_timescales

        return draw_timescales(self)


@register_analysis(
    "timescales",
    "Timescales of the units, measured",
    "Mahto et al. 2021, A.2 and figure 4",
    needs=(FORGET_FACTOR,),
)
def timescales(subject: Subject, settings: NoSettings) -> Timescales:
    """From the gates on data, beside those of the biases and the assigned ones."""
    found = []
    for layer, factors in zip(subject.layers, subject.factors, strict=True):
        found.append(
            LayerTimescales(
                gate_timescales(factors, subject.there),
                factors[subject.there].mean(axis=0),
                bias_timescales(layer),
                assigned_timescales(layer),
            )
        )
    return Timescales(subject.label, int(subject.there.sum()), found)


def measured(subject: Subject) -> list[np.ndarray]:
    """[H] of every layer, from the gates."""
    return [gate_timescales(factors, subject.there) for factors in subject.factors]


def widest(subject: Subject) -> int:
    """The layer (from 0) whose timescales spread most: assigned ones before measured ones."""
    given = [assigned_timescales(layer) for layer in subject.layers]
    times = [m if a is None else a for a, m in zip(given, measured(subject), strict=True)]
    pool = [i for i, a in enumerate(given) if a is not None] or range(len(times))
    return max(pool, key=lambda i: _spread(times[i]))


def _spread(times: np.ndarray) -> float:
    finite = times[np.isfinite(times) & (times > 0)]
    return float(np.log(finite).std()) if len(finite) else 0.0


def spearman(a: np.ndarray, b: np.ndarray) -> float | None:
    """Correlation of the ranks, ties sharing their mean rank; None where one of them is constant."""
    x, y = _ranks(a), _ranks(b)
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return None
    return float(np.corrcoef(x, y)[0, 1])


def _ranks(values: np.ndarray) -> np.ndarray:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[inverse]


def short(value: float) -> str:
    """Three figures that a reader can take in: 0.17, 3.9, 52, 6,700."""
    if not np.isfinite(value):
        return "infinity" if value > 0 else str(value)
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2g}"
