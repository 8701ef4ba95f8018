"""One look for all pictures: sizes, colours that a colour-blind reader can tell apart, light axes.

Order is shown by a sequential map (viridis without its pale end), kinds by fixed colours; where lines
could be mistaken for one another they also differ in their dashes.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

KINDS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9")  # of Okabe & Ito
DASHES = ("-", (0, (6, 1.5)), (0, (3, 1.5)), (0, (4, 1.2, 1, 1.2)), (0, (1, 1.2)))
INK, FAINT = "#222222", "#9a9a9a"
DPI = 120


def figure(
    panels: int,
    panel: tuple[float, float],
    right: float = 0.0,
    top: float = 0.38,
    share: bool = True,
) -> tuple[Figure, list[Axes]]:
    """A figure with a row of panels (width, height in inches), room at their right and on top.

    share: all panels have the axes of the first, which alone shows the vertical one's figures.
    """
    from matplotlib.figure import Figure

    left, gap, bottom = 0.62, 0.3 if share else 0.72, 0.5
    width = left + panels * panel[0] + (panels - 1) * gap + max(right, 0.12)
    height = bottom + panel[1] + top
    made = Figure(figsize=(width, height), dpi=DPI)
    axes: list[Axes] = []
    for i in range(panels):
        where = (
            (left + i * (panel[0] + gap)) / width,
            bottom / height,
            panel[0] / width,
            panel[1] / height,
        )
        first = axes[0] if axes and share else None
        axes.append(made.add_axes(where, sharex=first, sharey=first))
    for i, axis in enumerate(axes):
        quiet(axis)
        axis.tick_params(labelleft=i == 0 or not share)
    return made, axes


def quiet(axis: Axes) -> None:
    """Thin frame on two sides, a light grid behind the lines, small figures."""
    axis.spines[["top", "right"]].set_visible(False)
    axis.spines[["left", "bottom"]].set_color(FAINT)
    axis.tick_params(which="both", color=FAINT, labelcolor=INK, labelsize=8)
    axis.grid(True, color="#e6e6e6", linewidth=0.6)
    axis.set_axisbelow(True)


def ordered(count: int) -> list[Any]:
    """`count` colours from dark to light."""
    from matplotlib import colormaps

    return [colormaps["viridis"](x) for x in np.linspace(0.0, 0.82, count)]


def level(axis: Axes, height: float, label: str) -> None:
    """A dotted line at a height worth knowing, named at its right end."""
    axis.axhline(height, color=FAINT, linewidth=0.8, linestyle=":")
    axis.annotate(
        label,
        (1, height),
        (-2, 1),
        xycoords=axis.get_yaxis_transform(),
        textcoords="offset points",
        fontsize=7,
        ha="right",
        color=INK,
    )


def title(made: Figure, text: str) -> None:
    """In the upper left corner."""
    made.suptitle(
        text,
        fontsize=10,
        color=INK,
        x=0.1 / made.get_figwidth(),
        ha="left",
        y=1 - 0.07 / made.get_figheight(),
        va="top",
    )


def save(made: Figure, path: str | Path) -> Path:
    """Write a PNG, or what the suffix says."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    png: dict[str, Any] = {"metadata": {"Software": None}, "pil_kwargs": {"optimize": True}}
    made.savefig(target, **(png if target.suffix == ".png" else {}))
    return target
