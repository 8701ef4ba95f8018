"""The picture of a resampled text: the same bigrams, and no information over longer distances."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..common import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .markov import Markov

PANEL = (2.7, 2.4)


def draw_markov(found: Markov) -> Figure:
    """Counts of the frequent bigrams in both texts; mutual information against distance."""
    made, (pairs, information) = style.figure(2, PANEL, right=1.5, top=0.5, share=False)
    there = found.pairs[(found.pairs > 0).all(axis=1)]
    ends = [there.min() * 0.8, there.max() * 1.25] if len(there) else [1, 10]
    pairs.plot(ends, ends, color=style.FAINT, linewidth=0.9)
    pairs.plot(there[:, 0], there[:, 1], ".", color=style.KINDS[0], markersize=3, alpha=0.6)
    pairs.set(xscale="log", yscale="log")
    pairs.set_xlabel("bigrams in the text, per million", fontsize=9)
    pairs.set_ylabel("in the resampled text, per million", fontsize=9)
    for (name, values), color, dash in zip(
        found.information.items(), style.KINDS, style.DASHES, strict=False
    ):
        shown = np.where(values > found.noise, values, np.nan)
        information.plot(
            found.distances, shown, "o", linestyle=dash, color=color, markersize=3.5,
            linewidth=1.4, label=f"{name} text",
        )  # fmt: skip
    information.set(xscale="log", yscale="log")
    if found.noise > 0:
        style.level(information, found.noise, "noise of the estimate")
    information.set_xlim(0.9, found.distances[-1] * 1.1)
    information.set_xlabel("distance d, tokens", fontsize=9)
    information.set_ylabel("excess mutual information, bits", fontsize=9)
    style.legend_right(information)
    style.title(made, "a text resampled from its bigrams")
    return made
