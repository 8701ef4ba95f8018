"""The figures of the pages, one for each of an experiment's drawings (drawings.py)."""

from __future__ import annotations

import hashlib
import json
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..common import style
from ..common.atomic import atomic_file, make_folder
from .drawings import DRAWINGS, VALIDATED, Drawing, Points, split_label
from .recipe import Experiment
from .store import Store

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HEIGHT, WIDTHS, NARROW = (
    3.2,
    {1: 6.0, 2: 3.8, 3: 3.0},
    2.4,
)  # inches; the width of a panel depends on the number of panels
KEY = 1.7  # inches for the legend on the right
COLUMNS = 5  # panels per row
LETTERS = 15  # letters of a panel's title per inch
LETTERS_OF_KEY = 21  # per line


def figure_name(experiment: Experiment, kind: str) -> str:
    end = "" if kind == experiment.figures[0] else f"_{kind}"
    return f"results_{experiment.name}{end}.png"


def title(experiment: Experiment, kind: str) -> str:
    about = DRAWINGS.get(kind).about
    return f"{experiment.title}: {about}" if about else experiment.title


def points_of(experiment: Experiment, kind: str, store: Store) -> Points:
    """The points of the figure."""
    runs = [(variant, store.all_of(variant)) for variant in experiment.variants]
    found = DRAWINGS.get(kind).collect(experiment, runs)
    return {label: points for label, points in found.items() if points}


def drawable(experiment: Experiment, store: Store) -> list[str]:
    """The drawings that have something to show."""
    return [kind for kind in experiment.figures if points_of(experiment, kind, store)]


def draw(experiment: Experiment, kind: str, store: Store, folder: Path) -> Path:
    """Writes the PNG of a drawing that has something to show."""
    lines = points_of(experiment, kind, store)
    drawing = DRAWINGS.get(kind)
    panels = list(dict.fromkeys(condition for _, condition in map(split_label, lines)))
    names, parts = (list(dict.fromkeys(of)) for of in zip(*map(_parts, lines), strict=True))
    size = (WIDTHS.get(len(panels), NARROW), HEIGHT)
    titles = [textwrap.fill(condition, round(LETTERS * size[0])) for condition in panels]
    lines_above = max(text.count("\n") for text in titles)
    top = 0.62 + 0.14 * lines_above if any(panels) else 0.38
    made, axes = style.figure(len(panels), size, right=KEY, top=top, columns=COLUMNS)
    for label, points in lines.items():
        name, part = _parts(label)
        axis, i = axes[panels.index(split_label(label)[1])], names.index(name)
        look: dict[str, Any] = {"color": style.KINDS[i % len(style.KINDS)], "markersize": 3.5}
        dashes = style.DASHES[(i // len(style.KINDS) + parts.index(part)) % len(style.DASHES)]
        look["linestyle"] = drawing.look.get("line", dashes)
        look["marker"] = drawing.look.get("marker", "" if len(points) > 1 else "o")
        axis.plot(
            *zip(*points, strict=True),
            label=textwrap.fill(split_label(label)[0], LETTERS_OF_KEY),
            linewidth=1.3,
            **look,
        )
    for axis, text in zip(axes, titles, strict=True):
        _axes(axis, drawing, len(panels))
        axis.set_title(text, fontsize=8, color=style.INK)
    for axis in axes[::COLUMNS]:
        axis.set_ylabel(_value(drawing, experiment), fontsize=8)
    end_of_row = axes[:COLUMNS][-1]
    middle = (axes[0].get_position().x0 + end_of_row.get_position().x1) / 2
    made.text(middle, 0.02, drawing.x, fontsize=8, ha="center", va="bottom")
    style.legend_right(end_of_row, *axes)
    source = "" if drawing.about else f" ({experiment.source})"
    style.title(made, title(experiment, kind) + source)
    make_folder(folder)
    path = folder / figure_name(experiment, kind)
    with atomic_file(path) as file:
        about = {"Software": None, "Description": stamp(experiment, kind, store)}
        made.savefig(file, format=path.suffix[1:], metadata=about)
    return path


def stamp(experiment: Experiment, kind: str, store: Store) -> str:
    """A fingerprint of the figure's contents, stored in its file to detect stale figures."""
    drawing = DRAWINGS.get(kind)
    shown = [title(experiment, kind), drawing.x, drawing.y, points_of(experiment, kind, store)]
    return hashlib.sha256(json.dumps(shown).encode()).hexdigest()[:16]


def _parts(label: str) -> tuple[str, str]:
    """ "plstm: late resets, T = 200" -> plstm, late resets. Lines of one model have one colour."""
    name, _, part = split_label(label)[0].partition(": ")
    return name, part


def _axes(axis: Axes, drawing: Drawing, panels: int) -> None:
    if drawing.look.get("xlog"):
        axis.set_xscale("log")
    if drawing.look.get("ylog"):
        low, high = axis.dataLim.intervaly
        if high < 100 * low:
            style.log_values(axis)
        else:
            axis.set_yscale("log")
    if "low" in drawing.look:  # a run that has hardly learned would squeeze the others
        axis.set_ylim(bottom=drawing.look["low"])
    if "ticks" in drawing.look:
        axis.set_xticks(range(len(drawing.look["ticks"])), drawing.look["ticks"], fontsize=7)
    elif panels > 1 and not drawing.look.get("xlog"):
        style.few_ticks(axis)


def _value(drawing: Drawing, experiment: Experiment) -> str:
    return drawing.y or f"validation {VALIDATED[experiment.metrics[0].key][1]}"
