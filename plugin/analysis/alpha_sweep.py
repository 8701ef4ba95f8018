"""The timescales that an inverse gamma distribution assigns for each alpha, and the scores of models trained
with them.

Mahto et al. 2021, figure 9 (the timescales of H units for each alpha) and figure 10 (perplexity of models
trained with different values of alpha, if several checkpoints are given).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..common import style
from ..common.numbers import short
from ..init import inverse_gamma
from .findings.base import Finding, NoSettings, Row, register_analysis
from .needs import FORGET_FACTOR
from .probes.performance import performance
from .probes.subject import Subject
from .probes.timescale import measured, unit_of_time, widest
from .timescale_fit import inverse_gamma_statistics

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PANEL = (3.0, 2.5)

ALPHAS = np.array([0.3, 0.4, 0.5, 0.56, 0.7, 1.0, 1.5, 2.0])


@dataclass(frozen=True)
class AlphaSweep(Finding):
    """curves [A,H]: timescales of H units for each alpha. measured [H]: timescales of `layer`, longest first.

    statistics [A]: Kolmogorov-Smirnov distance between the timescales of each alpha and `measured`. alpha: the
    value that the model was trained with, or None if its timescales were not assigned this way. score: the
    value of `metric` on the split.
    """

    label: str
    layer: int
    alphas: np.ndarray
    curves: np.ndarray
    measured: np.ndarray
    statistics: np.ndarray
    alpha: float | None
    metric: str
    score: float
    unit: str

    def table(self) -> list[Row]:
        return [
            {
                "alpha": alpha,
                "longest": curve[0],
                "median": np.median(curve),
                "share_below_20": (curve < 20).mean(),
                "ks_statistic": statistic,
                "trained_with": self.alpha,
                "metric": self.metric,
                "score": self.score,
            }
            for alpha, curve, statistic in zip(
                self.alphas, self.curves, self.statistics, strict=True
            )
        ]

    def text(self) -> str:
        low, high = self.curves[0], self.curves[-1]
        best = int(self.statistics.argmin())
        own = (
            f"The model was trained with alpha = {self.alpha:g} and its {self.metric} is "
            f"{short(self.score)}."
            if self.alpha is not None
            else f"The model's timescales were not assigned by an alpha; its {self.metric} is "
            f"{short(self.score)}."
        )
        return (
            f"For the {len(self.measured)} units of layer {self.layer}, alpha = {self.alphas[0]:g} "
            f"would assign up to {short(low[0])} {self.unit} (median {short(float(np.median(low)))}), "
            f"alpha = {self.alphas[-1]:g} up to {short(high[0])} (median "
            f"{short(float(np.median(high)))}). The measured timescales are closest to alpha = "
            f"{self.alphas[best]:g} of those shown (D = {self.statistics[best]:.3f}). {own}"
        )

    def draw(self, *others: AlphaSweep):
        return draw_alpha_sweep([self, *others])


@register_analysis(
    "alpha-sweep",
    "Timescales for each alpha",
    "Mahto et al. 2021, figures 9 and 10",
    needs=(FORGET_FACTOR,),
    several=True,
)
def alpha_sweep(subject: Subject, settings: NoSettings) -> AlphaSweep:
    """Uses the layer whose timescales were set by alpha, or else the one with the widest spread."""
    times = measured(subject)
    given = [layer.init_options.get("alpha") for layer in subject.layers]
    chosen = next((i for i, alpha in enumerate(given) if alpha is not None), None)
    at = widest(subject) if chosen is None else chosen
    values = np.sort(times[at])[::-1]
    curves = np.array([inverse_gamma(len(values), alpha) for alpha in ALPHAS])
    statistics = inverse_gamma_statistics(values, ALPHAS)
    alpha = None if chosen is None else given[chosen]
    metric, score = performance(subject)
    unit = unit_of_time(subject).name
    return AlphaSweep(
        subject.label, at + 1, ALPHAS, curves, values, statistics, alpha, metric, score, unit
    )


def draw_alpha_sweep(found: Sequence[AlphaSweep]) -> Figure:
    """Plots the assigned curves and the model's own timescales; also the scores if several models have an
    alpha."""
    scored = sorted((one.alpha, one.score) for one in found if one.alpha is not None)
    made, axes = style.figure(1 + (len(scored) > 1), PANEL, right=1.55, top=0.5, share=False)
    first, curves = found[0], axes[0]
    units = np.arange(1, first.curves.shape[1] + 1)
    for color, alpha, curve in zip(
        style.ordered(len(first.alphas)), first.alphas, first.curves, strict=True
    ):
        curves.plot(units, curve, color=color, linewidth=1.3, label=rf"$\alpha$ = {alpha:g}")
    shown = np.where(np.isfinite(first.measured), first.measured, np.nan)
    curves.plot(units, shown, ".", color=style.KINDS[1], markersize=3, label="measured")
    style.log_values(curves)
    curves.set_xlabel(f"units of layer {first.layer}, longest timescale first", fontsize=9)
    curves.set_ylabel(f"timescale, {first.unit}", fontsize=9)
    if len(scored) > 1:
        alphas, scores = zip(*scored, strict=True)
        axes[1].plot(alphas, scores, "o-", color=style.KINDS[0], markersize=4, linewidth=1.4)
        axes[1].set_xlabel(r"$\alpha$ that the model was trained with", fontsize=9)
        axes[1].set_ylabel(first.metric, fontsize=9)
    style.legend_right(axes[-1], curves)
    style.title(made, f"{first.label}: timescales assigned by each alpha")
    return made
