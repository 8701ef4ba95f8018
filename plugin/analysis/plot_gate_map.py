"""The picture of the forget gates: groups of units against the symbols that are read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..common import style
from .timescales import short

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .gate_map import GateMap

HEIGHT = 2.7
WIDTH_OF_STEP, WIDEST, NARROWEST = 0.115, 4.6, 2.0
LONGEST_WORD = 12


def draw_gate_map(found: GateMap) -> Figure:
    """A panel a layer, most forgetful units on top; dark is forgotten, light is kept."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    steps = len(found.symbols)
    width = min(WIDEST, max(NARROWEST, WIDTH_OF_STEP * steps))
    names = [_name(s) for s in found.symbols]
    room = 0.056 * max(len(n) for n in names) + 0.1
    made, axes = style.figure(
        len(found.layers), (width, HEIGHT), right=0.95, top=0.6, share=False, bottom=0.3 + room
    )
    scale = ScalarMappable(Normalize(0, 1), "viridis")
    for number, (axis, layer) in enumerate(zip(axes, found.layers, strict=True), 1):
        axis.imshow(
            layer.gates, aspect="auto", interpolation="nearest", cmap="viridis", vmin=0, vmax=1
        )
        axis.grid(False)
        axis.set_title(f"layer {number}", fontsize=8.5, color=style.INK)
        axis.set_xticks(*_ticks(names, width), rotation=90, fontsize=6.5)
        axis.set_xlabel(found.reads, fontsize=9)
        _name_groups(axis, layer.assigned, layer.group, len(layer.gates))
    axes[0].set_ylabel(_axis_label(found), fontsize=8.5)
    style.color_bar(made, axes[-1], scale, "forget gate (0 forgets, 1 keeps)")
    style.title(made, f"{found.label}: forget gates over {steps} steps")
    return made


def _axis_label(found: GateMap) -> str:
    sizes = sorted({layer.group for layer in found.layers})
    units = "single units" if sizes == [1] else f"groups of {' or '.join(map(str, sizes))} units"
    assigned = any(layer.assigned is not None for layer in found.layers)
    return f"{units}{', assigned steps' if assigned else ''}"


def _ticks(names: list[str], width: float) -> tuple[list[int], list[str]]:
    """As many names as have room."""
    every = max(1, int(np.ceil(len(names) * 0.1 / width)))
    at = list(range(0, len(names), every))
    return at, [names[i] for i in at]


def _name_groups(axis, assigned: np.ndarray | None, group: int, count: int) -> None:
    """The assigned timescales where there are any, else the numbers of the units."""
    at = np.unique(np.linspace(0, count - 1, min(count, 8)).round().astype(int))
    if assigned is None:
        axis.set_yticks(at, [str(int(i) * group + 1) for i in at])
        return
    axis.set_yticks(at, [short(float(assigned[i])) for i in at])


def _name(symbol: str) -> str:
    """A symbol as a label: white space is shown, a long word cut."""
    shown = {" ": "_", "\n": "\\n", "\t": "\\t"}.get(symbol, symbol).replace("$", r"\$")
    return shown if len(shown) <= LONGEST_WORD else shown[: LONGEST_WORD - 2] + ".."
