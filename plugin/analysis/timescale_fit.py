"""Which distribution the units' timescales follow (Mahto et al. 2021, figure 1).

inverse gamma    P(T) = T^(-alpha-1) exp(-1/T) / Gamma(alpha), for alpha in a grid: what power-law
                 dependencies ask for
narrow Gaussian  mean mu in a grid and at the units' own timescales, deviation .1: a single timescale,
                 what a Markov chain asks for

D = max_T |share of units up to T - P(T' <= T)|     (Kolmogorov and Smirnov); less is a better fit
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..config import setting
from .findings.base import Finding, Row, register_analysis
from .needs import FORGET_FACTOR
from .probes.groups import pick_layer
from .probes.subject import Subject
from .timescales import measured, short

ALPHAS = np.round(np.arange(0.1, 5.001, 0.05), 2)
MEANS = np.round(np.arange(0.05, 10.001, 0.05), 2)
QUANTILES = np.arange(0.02, 0.99, 0.02)  # of the timescales: further means, where units are


@dataclass(frozen=True)
class FitSettings:
    """settings of the fit"""

    deviation: float = setting(0.1, "of the narrow Gaussian, in steps")
    fit_layer: int = setting(0, "fit the units of this layer alone; 0: all layers together")


def _distance(there: np.ndarray) -> float:
    """D from a cumulative distribution at the sorted values."""
    count = len(there)
    above = np.arange(1, count + 1) / count - there
    below = there - np.arange(count) / count
    return float(max(above.max(), below.max()))


def inverse_gamma_statistics(values: np.ndarray, alphas: np.ndarray = ALPHAS) -> np.ndarray:
    """D for every alpha, scale 1."""
    from scipy.special import gammaincc

    with np.errstate(divide="ignore"):
        rate = 1 / np.sort(values)
    return np.array([_distance(gammaincc(a, rate)) for a in alphas])


def gaussian_statistics(
    values: np.ndarray, means: np.ndarray = MEANS, deviation: float = 0.1
) -> np.ndarray:
    """D for every mean."""
    from scipy.special import ndtr

    ordered = np.sort(values)
    return np.array([_distance(ndtr((ordered - m) / deviation)) for m in means])


@dataclass(frozen=True)
class TimescaleFit(Finding):
    """values [N]: timescales of all units, longest first; D over both grids, and where it is least."""

    label: str
    values: np.ndarray
    alphas: np.ndarray
    alpha_statistics: np.ndarray
    means: np.ndarray
    mean_statistics: np.ndarray
    deviation: float
    alpha: float
    alpha_statistic: float
    mean: float
    mean_statistic: float

    def table(self) -> list[Row]:
        grids = (
            ("inverse gamma", "alpha", self.alphas, self.alpha_statistics),
            ("gaussian", "mean", self.means, self.mean_statistics),
        )
        return [
            {"distribution": name, "parameter": parameter, "value": x, "ks_statistic": d}
            for name, parameter, grid, statistics in grids
            for x, d in zip(grid, statistics, strict=True)
        ]

    def text(self) -> str:
        better = (
            "the inverse gamma" if self.alpha_statistic < self.mean_statistic else "the Gaussian"
        )
        return (
            f"Of {len(self.values):,} units, the best inverse gamma distribution has alpha = "
            f"{self.alpha:g} with a Kolmogorov-Smirnov distance of {self.alpha_statistic:.3f}, the "
            f"best Gaussian of deviation {self.deviation:g} has its mean at {short(self.mean)} steps with "
            f"{self.mean_statistic:.3f}: {better} is closer. The longest timescale is "
            f"{short(float(self.values[0]))} steps.{self._edge()}"
        )

    def _edge(self) -> str:
        at_edge = [
            name
            for name, best, grid in (
                ("alpha", self.alpha, self.alphas),
                ("the mean", self.mean, self.means),
            )
            if best in (grid[0], grid[-1])
        ]
        if not at_edge:
            return ""
        return f" ({' and '.join(at_edge)} lies at the end of what was tried.)"

    def draw(self, *others: TimescaleFit):
        from .plot_timescale_fit import draw_timescale_fit

        return draw_timescale_fit([self, *others])


def fit(values: np.ndarray, label: str = "", deviation: float = 0.1) -> TimescaleFit:
    """Both families over their grids."""
    by_alpha = inverse_gamma_statistics(values)
    finite = values[np.isfinite(values)]
    own = np.quantile(finite, QUANTILES) if len(finite) else np.empty(0)
    means = np.unique(np.concatenate([MEANS, own]))
    by_mean = gaussian_statistics(values, means, deviation)
    a, m = int(by_alpha.argmin()), int(by_mean.argmin())
    return TimescaleFit(
        label,
        np.sort(values)[::-1],
        ALPHAS,
        by_alpha,
        means,
        by_mean,
        deviation,
        float(ALPHAS[a]),
        float(by_alpha[a]),
        float(means[m]),
        float(by_mean[m]),
    )


@register_analysis(
    "timescale-fit",
    "Which distribution the timescales follow",
    "Mahto et al. 2021, figure 1",
    needs=(FORGET_FACTOR,),
    settings=FitSettings,
    several=True,
)
def timescale_fit(subject: Subject, settings: FitSettings) -> TimescaleFit:
    """The timescales of all units together, as the paper takes them, or of one layer."""
    layers = measured(subject)
    picked = pick_layer("fit_layer", settings.fit_layer, len(layers))
    if not settings.deviation > 0:
        raise ValueError(f"deviation = {settings.deviation}; accepted: above 0")
    chosen = layers if picked is None else [layers[picked]]
    return fit(np.concatenate(chosen), subject.label, settings.deviation)
