"""Figures: time per step against the width, and heat maps of ratios over B and H."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .results import Results
from .rivals import EAGER, FLOOR, NN_LSTM, TSM

COLOURS = {"float32": "#1b6ca8", "bfloat16": "#2a9d5c", "int8": "#d1495b"}


def plot(results: Results, where: dict[str, Any], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    cases = results.cases()
    cells = list(dict.fromkeys(case.cell for case in cases))
    shapes = sorted({(case.B, case.T) for case in cases})
    figure, axes = pyplot.subplots(
        len(cells),
        len(shapes),
        figsize=(3.6 * len(shapes) + 1.5, 3.2 * len(cells) + 1.2),
        squeeze=False,
        sharex=True,
    )
    for row, cell in zip(axes, cells, strict=True):
        for axis, (batch, steps) in zip(row, shapes, strict=True):
            mine = [c for c in cases if (c.cell, c.B, c.T) == (cell, batch, steps)]
            draw(axis, results, sorted(mine, key=lambda c: c.H))
            axis.set_title(f"{cell}, B = {batch}, T = {steps}", fontsize=10)
        row[0].set_ylabel("µs per step")
    for axis in axes[-1]:
        axis.set_xlabel("H = I")
    lines = {
        label: handle
        for axis in axes.flat
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    figure.legend(lines.values(), lines.keys(), loc="lower center", ncols=5, fontsize=8)
    figure.suptitle(f"one layer as a stream, one thread: {where['processor']}", fontsize=11)
    figure.tight_layout(rect=(0, 0.09, 1, 1))
    figure.savefig(path, dpi=130)
    pyplot.close(figure)


def draw(axis: Any, results: Results, cases: list[Any]) -> None:
    def line(label: str, times: list[float | None], **style: Any) -> None:
        points = [(c.H, t) for c, t in zip(cases, times, strict=True) if t is not None]
        if points:
            axis.plot(*zip(*points, strict=True), label=label, marker="o", ms=3, **style)

    for dtype, colour in COLOURS.items():
        line(f"tsm {dtype}", [results.time(c, TSM, dtype) for c in cases], color=colour, lw=2)
        floors = [results.time(c, FLOOR, dtype) for c in cases]
        line(f"floor {dtype}", floors, color=colour, ls=":", lw=1)
    for dtype in ("float32", "int8"):
        best = [results.best_ort(c, dtype) for c in cases]
        line(f"ORT {dtype}, best form", best, color=COLOURS[dtype], ls="--", lw=1.2, alpha=0.8)
    for name, colour in ((EAGER, "#777777"), (NN_LSTM, "#b08900")):
        line(name, [results.time(c, name, "float32") for c in cases], color=colour, lw=1)
    axis.set_xscale("log", base=2)
    axis.set_xticks(widths := sorted({case.H for case in cases}), [str(width) for width in widths])
    axis.set_yscale("log")
    axis.grid(True, which="major", alpha=0.3)


def heat_maps(
    panels: dict[str, dict[tuple[int, int], tuple[float, str]]], title: str, path: Path
) -> None:
    """One panel per layer: (B, H) -> (ratio, label). Blue is faster than the rival, red slower."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.colors import TwoSlopeNorm

    if not panels:
        raise ValueError("no shape B x H was measured; accepted: at least one")
    figure, axes = pyplot.subplots(
        1, len(panels), figsize=(7.2 * len(panels), 4.4), squeeze=False, layout="constrained"
    )
    for axis, (name, found) in zip(axes[0], panels.items(), strict=True):
        batches, widths = (sorted({at[i] for at in found}) for i in (0, 1))
        grid = [[found.get((b, h), (float("nan"), ""))[0] for h in widths] for b in batches]
        image = axis.imshow(
            grid, cmap="RdBu_r", norm=TwoSlopeNorm(1, 0, 2), aspect="auto", origin="lower"
        )
        for (batch, hidden), (ratio, label) in found.items():
            at = widths.index(hidden), batches.index(batch)
            axis.text(*at, f"{ratio:.2f}\n{label}", ha="center", va="center", fontsize=8)
        axis.set_xticks(range(len(widths)), [f"{h:,}" for h in widths])
        axis.set_yticks(range(len(batches)), [f"{b:,}" for b in batches])
        axis.set(title=name, xlabel="H", ylabel="B")
    figure.colorbar(image, ax=axes[0], label="time over cuDNN's best")
    figure.suptitle(title, fontsize=11)
    figure.savefig(path, dpi=130)
    pyplot.close(figure)
