"""Timescales that an inverse gamma distribution assigns for each alpha, and how good such models are.

Mahto et al. 2021, figure 9 (what alpha means for H units) and figure 10 (perplexity of models trained with
different alpha: give several checkpoints).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..init import inverse_gamma
from .findings.base import Finding, NoSettings, Row, register_analysis
from .needs import FORGET_FACTOR
from .probes.performance import performance
from .probes.subject import Subject
from .timescale_fit import inverse_gamma_statistics
from .timescales import measured, short, widest

ALPHAS = np.array([0.3, 0.4, 0.5, 0.56, 0.7, 1.0, 1.5, 2.0])


@dataclass(frozen=True)
class AlphaSweep(Finding):
    """curves [A,H]: timescales of H units at each alpha. measured [H]: those of `layer`, longest first.

    statistics [A]: Kolmogorov-Smirnov distance of each alpha to `measured`. alpha: what the model was
    trained with, None where its timescales were not assigned so. score: on the split, by `metric`.
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
            f"would assign up to {short(low[0])} steps (median {short(float(np.median(low)))}), "
            f"alpha = {self.alphas[-1]:g} up to {short(high[0])} (median "
            f"{short(float(np.median(high)))}). The measured timescales are closest to alpha = "
            f"{self.alphas[best]:g} of those shown (D = {self.statistics[best]:.3f}). {own}"
        )

    def draw(self, *others: AlphaSweep):
        from .plot_alpha_sweep import draw_alpha_sweep

        return draw_alpha_sweep([self, *others])


@register_analysis(
    "alpha-sweep",
    "Timescales for each alpha",
    "Mahto et al. 2021, figures 9 and 10",
    needs=(FORGET_FACTOR,),
    several=True,
)
def alpha_sweep(subject: Subject, settings: NoSettings) -> AlphaSweep:
    """For the layer whose timescales an alpha set, else the one whose measured ones spread most."""
    times = measured(subject)
    given = [layer.init_options.get("alpha") for layer in subject.layers]
    chosen = next((i for i, alpha in enumerate(given) if alpha is not None), None)
    at = widest(subject) if chosen is None else chosen
    values = np.sort(times[at])[::-1]
    curves = np.array([inverse_gamma(len(values), alpha) for alpha in ALPHAS])
    statistics = inverse_gamma_statistics(values, ALPHAS)
    alpha = None if chosen is None else given[chosen]
    metric, score = performance(subject)
    return AlphaSweep(
        subject.label, at + 1, ALPHAS, curves, values, statistics, alpha, metric, score
    )
