"""Which distribution the units' timescales follow (Mahto et al. 2021, figure 1).

inverse gamma    P(T) = T^(-alpha-1) exp(-1/T) / Gamma(alpha), for alpha in a grid: the distribution that gives
                 power-law dependencies
narrow Gaussian  mean mu from a grid or equal to a unit's own timescale, standard deviation .1: a single
                 timescale, which is enough for a Markov chain

D = max_T |share of units up to T - P(T' <= T)|     (Kolmogorov-Smirnov); a smaller D is a better fit
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..common import style
from ..common.numbers import short
from ..config import setting
from .findings.base import Finding, Row, register_analysis
from .needs import FORGET_FACTOR
from .probes.groups import pick_layer
from .probes.subject import Subject
from .probes.timescale import measured, unit_of_time

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PANEL = (2.5, 2.3)

ALPHAS = np.round(np.arange(0.1, 5.001, 0.05), 2)
MEANS = np.round(np.arange(0.05, 10.001, 0.05), 2)
QUANTILES = np.arange(0.02, 0.99, 0.02)  # the timescales at these quantiles are also tried as means


@dataclass(frozen=True)
class FitSettings:
    """settings of the fit"""

    deviation: float = setting(
        0.1, "standard deviation of the narrow Gaussian, in the unit of the timescales"
    )
    fit_layer: int = setting(0, "fit the units of this layer only; 0: all layers together")


def _distance(there: np.ndarray) -> float:
    """Computes D from the cumulative distribution at the sorted values."""
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
    """values [N]: timescales of all units, longest first. alpha_statistics and mean_statistics: D for every
    entry of alphas and of means."""

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
    unit: str = "steps"

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
            f"best Gaussian of deviation {self.deviation:g} has its mean at {short(self.mean)} {self.unit} "
            f"with {self.mean_statistic:.3f}: {better} is closer. The longest timescale is "
            f"{short(float(self.values[0]))} {self.unit}.{self._edge()}"
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
        return f" ({' and '.join(at_edge)} lies at the end of the range that was tried.)"

    def draw(self, *others: TimescaleFit):
        return draw_timescale_fit([self, *others])


def fit(
    values: np.ndarray, label: str = "", deviation: float = 0.1, unit: str = "steps"
) -> TimescaleFit:
    """Fits both families over their grids."""
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
        unit,
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
    """Fits the timescales of all units together, as in the paper, or those of one layer."""
    layers = measured(subject)
    picked = pick_layer("fit_layer", settings.fit_layer, len(layers))
    if not settings.deviation > 0:
        raise ValueError(f"deviation = {settings.deviation}; accepted: above 0")
    chosen = layers if picked is None else [layers[picked]]
    unit = unit_of_time(subject).name
    return fit(np.concatenate(chosen), subject.label, settings.deviation, unit)


def draw_timescale_fit(found: Sequence[TimescaleFit]) -> Figure:
    """Each model has a colour. In the first panel, solid lines are inverse gamma fits and dashed lines are
    Gaussian fits."""
    made, (units, alphas, means) = style.figure(3, PANEL, right=1.85, top=0.5, share=False)
    for color, one in zip(style.cycle_kinds(), found, strict=False):
        count = len(one.values)
        at = np.arange(1, count + 1)
        name = one.label if len(found) > 1 else "measured"
        shown = np.where(np.isfinite(one.values), one.values, np.nan)
        units.plot(at, shown, ".", color=color, markersize=3, alpha=0.7, label=name)
        share = at / (count + 1)  # share of units that are slower
        fitted = style.KINDS[1] if len(found) == 1 else color
        units.plot(
            at, _inverse_gamma(share, one.alpha), color=fitted, linewidth=1.4,
            label=rf"inverse gamma, $\alpha$ = {one.alpha:g}",
        )  # fmt: skip
        other = style.KINDS[2] if len(found) == 1 else color
        gauss = _gaussian(share, one.mean, one.deviation)
        units.plot(
            at, np.where(gauss > 0, gauss, np.nan), color=other, linewidth=1.4,
            linestyle=style.DASHES[2], label=rf"Gaussian, $\mu$ = {one.mean:.3g}",
        )  # fmt: skip
        for axis, grid, statistics, line, best in (
            (alphas, one.alphas, one.alpha_statistics, fitted, one.alpha),
            (means, one.means, one.mean_statistics, other, one.mean),
        ):
            axis.plot(grid, statistics, color=line, linewidth=1.6)
            axis.plot([best], [statistics.min()], "o", color=line, markersize=4)
    style.log_values(units)
    units.set_xlabel("units, longest timescale first", fontsize=9)
    units.set_ylabel(f"timescale, {found[0].unit}", fontsize=9)
    alphas.set_xlabel(r"inverse gamma $\alpha$", fontsize=9)
    if max(one.means[-1] for one in found) > 20:
        means.set_xscale("log")
    means.set_xlabel(rf"Gaussian mean $\mu$, {found[0].unit}", fontsize=9)
    for axis in (alphas, means):
        axis.set_ylim(0, 1.02)
        axis.set_ylabel("Kolmogorov-Smirnov $D$", fontsize=9)
    style.legend_right(means, units)
    style.title(made, "which distribution the timescales follow")
    return made


def _inverse_gamma(share: np.ndarray, alpha: float) -> np.ndarray:
    from scipy.stats import invgamma

    return invgamma.isf(share, alpha)


def _gaussian(share: np.ndarray, mean: float, deviation: float) -> np.ndarray:
    from scipy.stats import norm

    return norm.isf(share, mean, deviation)
