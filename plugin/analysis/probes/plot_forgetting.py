"""Plots the forgetting curve of any registered cell.

Each colour is a value of the first gate that forgetting depends on, from half open to keeping nearly
everything. If forgetting depends on a second quantity (a refine gate, an exponent), there is one panel per
value of it. A composite cell is shown at initialisation: a few layers with random weights, over a tenth of the
steps.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...cells import Cell
from ...common import style
from .forgetting import forgetting_curves, gap_curves, gate_input
from .retention import Retention, retention

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LEAKS = (0.5, 0.1, 0.01, 0.001, 1e-6)
"""How far the first gate is from keeping everything."""
OTHERS = (0.2, 0.5, 0.9)
"""Values of the second gate, or fractions of the range in which a vector starts."""
LAYERS, WIDTH = 4, 64
"""For a composite cell: the number of random layers, and their width."""
PANEL = (2.75, 2.35)
SHARE = "share of the memory left, $S_n$"


def plot_forgetting(cell: type[Cell], path: str | Path, steps: int = 10_000) -> Path:
    """Draw S_1 .. S_steps of `cell` on log-log axes and write the picture to `path`."""
    return (_plot_units if cell.elementwise else _plot_layers)(cell, Path(path), steps)


def _plot_units(cell: type[Cell], path: Path, steps: int) -> Path:
    knobs = _knobs(cell, retention(cell))
    first, values = knobs[0] if knobs else ("", np.array([1.0]))
    second, panels = knobs[1] if len(knobs) > 1 else ("", np.array([1.0]))
    given: dict[str, Any] = {name: np.median(middle) for name, middle in knobs[2:]}
    given |= {first: values, second: panels[:, None]}
    curves = forgetting_curves(
        cell,
        steps,
        gates={name: value for name, value in given.items() if name in cell.gates},
        vectors={name: value for name, value in given.items() if name in cell.vectors},
    ).reshape(len(panels), len(values), steps)
    made, axes = style.figure(len(panels), PANEL, right=1.85, top=0.56 if second else 0.38)
    for axis, other, lines in zip(axes, panels, curves, strict=True):
        for curve, value, color, dash in zip(
            lines, values, style.ordered(len(values)), style.DASHES, strict=False
        ):
            label = _label(cell, first, value)
            axis.plot(*_thin(curve), color=color, linestyle=dash, linewidth=1.7, label=label)
        _frame(axis, steps, (1e-4, 1.6))
        if second:
            axis.set_title(f"{second} = {other:.3g}", fontsize=9, color=style.INK)
    axes[0].set_ylabel(SHARE, fontsize=9)
    handles = axes[0].get_legend_handles_labels()
    if first in cell.gates:
        _legend(
            axes[-1], handles, f"gate {first}: {'low' if values[0] > values[-1] else 'high'} keeps"
        )
    elif first:
        _legend(axes[-1], handles, f"vector {first}")
    style.title(made, f"{cell.name}: what is left of a memory after n steps")
    return style.save(made, path)


def _plot_layers(cell: type[Cell], path: Path, steps: int) -> Path:
    import torch

    from ...layers import Recurrent

    made, (axis,) = style.figure(1, PANEL, right=1.85)
    for seed, color, dash in zip(range(LAYERS), style.ordered(LAYERS), style.DASHES, strict=False):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            layer = Recurrent(cell.name, 1, WIDTH).double()
        low, middle, high = np.quantile(
            gap_curves(layer, max(1, steps // 10)), [0.25, 0.5, 0.75], axis=0
        )
        axis.plot(*_thin(middle), color=color, linestyle=dash, linewidth=1.7, label=f"seed {seed}")
        n, bottom = _thin(low)
        axis.fill_between(n, bottom, _thin(high)[1], color=color, alpha=0.15, linewidth=0)
    _frame(axis, steps, (1e-2, 1e4))
    axis.set_ylabel("gap between two memories, $S_n$", fontsize=9)
    _legend(
        axis, axis.get_legend_handles_labels(), f"random layer, H = {WIDTH}\n(median, quartiles)"
    )
    style.title(made, f"{cell.name}: what is left of a memory after n steps")
    return style.save(made, path)


def _knobs(cell: type[Cell], kept: Retention) -> list[tuple[str, np.ndarray]]:
    """The quantities that forgetting depends on, as (name, values to show): the first gate, other gates,
    vectors.

    A gate whose value is not between 0 and 1, such as an exponential one, stays at z = 0.
    """
    gates: list[tuple[str, np.ndarray]] = [
        (name, np.array(OTHERS)) for name in kept.gates if cell.gate_bias(name)
    ]
    vectors = [(name, cell.vectors[name].at(np.array(OTHERS))) for name in kept.vectors]
    if gates:
        name = gates[0][0]
        middle = {other: np.median(values) for other, values in [*gates[1:], *vectors]}
        others = {g: v for g, v in middle.items() if g in cell.gates}
        ends = forgetting_curves(
            cell,
            1,
            gates={name: np.array([0.1, 0.9]), **others},
            vectors={v: x for v, x in middle.items() if v in cell.vectors},
        )
        keeps = ends[1, 0] > ends[0, 0]  # a high forget gate or a low reset gate keeps the memory
        gates[0] = (name, 1 - np.array(LEAKS) if keeps else np.array(LEAKS))
    return gates + vectors


def _label(cell: type[Cell], name: str, value: float) -> str:
    """The value, and for a gate also the pre-activation that gives this value."""
    if name not in cell.gates:
        return _short(value)
    z = float(gate_input(cell, name, value))
    return f"{_short(value)}  (z = {f'{z:.1f}' if 0 < abs(z) < 1000 else _short(z)})"


def _short(value: float) -> str:
    return f"{value:g}".replace("e-0", "e-").replace("e+0", "e")


def _thin(curve: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(n, S_n) at integers n spaced evenly on a logarithmic axis. Values too small to plot become NaN."""
    n = np.unique(np.rint(np.geomspace(1, len(curve), 300)).astype(int))
    values = curve[n - 1]
    return n, np.where(values > 1e-12, values, np.nan)


def _frame(axis: Axes, steps: int, span: tuple[float, float]) -> None:
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlim(1, steps)
    axis.set_ylim(*span)
    style.level(axis, 1 / np.e, "1/e")
    axis.set_xlabel("steps n", fontsize=9)


def _legend(axis: Axes, handles: tuple[list[Any], list[Any]], title: str) -> None:
    axis.legend(
        *handles,
        title=title,
        loc="upper left",
        bbox_to_anchor=(1.02, 1.02),
        frameon=False,
        fontsize=8,
        title_fontsize=8.5,
        alignment="left",
        handlelength=2.6,
    )
