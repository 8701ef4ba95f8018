"""The common style of all figures: sizes, colours that colour-blind readers can tell apart, light axes.

Ordered values use a sequential colour map (viridis without its pale end), categories use fixed colours. Lines
that could be confused also differ in their dashes.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .atomic import make_folder, write_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

KINDS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9")  # the palette of Okabe & Ito
DASHES = ("-", (0, (6, 1.5)), (0, (3, 1.5)), (0, (4, 1.2, 1, 1.2)), (0, (1, 1.2)))
INK, FAINT = "#222222", "#9a9a9a"
DPI = 120
WIDTH_OF_LETTER = 0.082  # inches per letter of a 10-point title


def figure(
    panels: int,
    panel: tuple[float, float],
    right: float = 0.0,
    top: float = 0.38,
    share: bool = True,
    bottom: float = 0.5,
    columns: int = 0,
) -> tuple[Figure, list[Axes]]:
    """Makes a figure with panels (width, height in inches) and margins on the right, at the top and below.

    share: all panels share the axes of the first, and only the first panel of a row has vertical tick labels.
    columns: the maximum number of panels in a row (0: all in one row). The gap between rows is `top` plus half
    of `bottom`.
    """
    from matplotlib.figure import Figure

    left, gap = 0.62, 0.3 if share else 0.72
    columns = min(columns or panels, panels)
    rows, between = -(-panels // columns), top + bottom / 2
    width = left + columns * panel[0] + (columns - 1) * gap + max(right, 0.12)
    height = bottom + rows * panel[1] + (rows - 1) * between + top
    made = Figure(figsize=(width, height), dpi=DPI)
    axes: list[Axes] = []
    for i in range(panels):
        row, column = divmod(i, columns)
        where = (
            (left + column * (panel[0] + gap)) / width,
            (bottom + (rows - 1 - row) * (panel[1] + between)) / height,
            panel[0] / width,
            panel[1] / height,
        )
        first = axes[0] if axes and share else None
        axes.append(made.add_axes(where, sharex=first, sharey=first))
    for i, axis in enumerate(axes):
        quiet(axis)
        axis.tick_params(labelleft=i % columns == 0 or not share)
    return made, axes


def quiet(axis: Axes) -> None:
    """Gives the axis a thin frame on two sides, a light grid behind the lines, and small tick labels."""
    axis.spines[["top", "right"]].set_visible(False)
    axis.spines[["left", "bottom"]].set_color(FAINT)
    axis.tick_params(which="both", color=FAINT, labelcolor=INK, labelsize=8)
    axis.grid(True, color="#e6e6e6", linewidth=0.6)
    axis.set_axisbelow(True)


def ordered(count: int) -> list[Any]:
    """`count` colours from dark to light."""
    from matplotlib import colormaps

    return [colormaps["viridis"](x) for x in np.linspace(0.0, 0.82, count)]


def cycle_kinds() -> Iterator[str]:
    """A fixed colour per kind."""
    return cycle(KINDS)


def cycle_dashes() -> Iterator[Any]:
    """A fixed dash pattern per kind."""
    return cycle(DASHES)


def log_values(axis: Axes) -> None:
    """Makes the vertical axis logarithmic with plain tick labels, even if it spans less than a decade."""
    from matplotlib.ticker import FuncFormatter, LogFormatterSciNotation, NullFormatter

    axis.set_yscale("log")
    powers = LogFormatterSciNotation()
    low, high = axis.get_ylim()

    def plain(value: float, place: int | None = None) -> str:
        return f"{value:g}" if 1e-2 <= value < 1e4 else powers(value, place)

    axis.yaxis.set_major_formatter(FuncFormatter(plain))
    axis.yaxis.set_minor_formatter(FuncFormatter(plain) if high < 10 * low else NullFormatter())


def few_ticks(axis: Axes, many: int = 4) -> None:
    """Reduces the number of tick labels below a narrow panel."""
    from matplotlib.ticker import MaxNLocator

    axis.xaxis.set_major_locator(MaxNLocator(many))


def legend_right(axis: Axes, *of: Axes, title: str | None = None) -> None:
    """Draws the legend of `of` (or of the axis itself), each name once, to the right of the axis."""
    found: dict[str, Any] = {}
    for source in of or (axis,):
        for handle, label in zip(*source.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    axis.legend(
        list(found.values()),
        list(found),
        title=title,
        loc="upper left",
        bbox_to_anchor=(1.02, 1.02),
        frameon=False,
        fontsize=7.5,
        title_fontsize=8,
        alignment="left",
        handlelength=2.2,
    )


def color_bar(made: Figure, axis: Axes, scale: Any, label: str) -> None:
    """Draws the colour bar to the right of the axis."""
    box, across = axis.get_position(), made.get_figwidth()
    bar = made.add_axes((box.x1 + 0.14 / across, box.y0, 0.11 / across, box.height))
    made.colorbar(scale, cax=bar)
    bar.set_ylabel(label, fontsize=8.5)
    bar.tick_params(labelsize=8, color=FAINT)
    for spine in bar.spines.values():
        spine.set_visible(False)


def level(axis: Axes, height: float, label: str) -> None:
    """Draws a dotted reference line, labelled at its right end."""
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
    """Writes the title in the upper left corner, in a smaller font if the figure is too narrow."""
    fitting = made.get_figwidth() / (WIDTH_OF_LETTER * max(len(text), 1))
    made.suptitle(
        text,
        fontsize=10 * min(1.0, fitting),
        color=INK,
        x=0.1 / made.get_figwidth(),
        ha="left",
        y=1 - 0.07 / made.get_figheight(),
        va="top",
    )


def rendered(made: Figure, kind: str) -> bytes:
    """The figure as "png" or "svg" bytes; the same figure always gives the same bytes."""
    from matplotlib import rc_context

    options: dict[str, Any] = {"metadata": {"Date": None}}
    if kind == "png":
        options = {"metadata": {"Software": None}, "pil_kwargs": {"optimize": True}}
    buffer = io.BytesIO()
    with rc_context({"svg.hashsalt": "tsm"}):
        made.savefig(buffer, format=kind, **options)
    return buffer.getvalue()


def save(made: Figure, path: str | Path) -> Path:
    """Writes the figure as PNG, or in the format given by the suffix."""
    target = Path(path)
    make_folder(target.parent)
    write_bytes(target, rendered(made, target.suffix[1:]))
    return target
