"""The picture of the fits: sorted timescales with the best of both families, and D over their parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..common import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .timescale_fit import TimescaleFit

PANEL = (2.5, 2.3)


def draw_timescale_fit(found: Sequence[TimescaleFit]) -> Figure:
    """Colours are models; in the first panel lines are the inverse gamma, dotted ones the Gaussian."""
    made, (units, alphas, means) = style.figure(3, PANEL, right=1.85, top=0.5, share=False)
    for color, one in zip(style.cycle_kinds(), found, strict=False):
        count = len(one.values)
        at = np.arange(1, count + 1)
        name = one.label if len(found) > 1 else "measured"
        shown = np.where(np.isfinite(one.values), one.values, np.nan)
        units.plot(at, shown, ".", color=color, markersize=3, alpha=0.7, label=name)
        share = at / (count + 1)  # of the units that are slower
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
    units.set_ylabel("timescale, steps", fontsize=9)
    alphas.set_xlabel(r"inverse gamma $\alpha$", fontsize=9)
    if max(one.means[-1] for one in found) > 20:
        means.set_xscale("log")
    means.set_xlabel(r"Gaussian mean $\mu$, steps", fontsize=9)
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
