"""Draws the pictures of README.md: docs/img/forgetting.png from the cells' formulas, docs/img/idea.svg.

python docs/build_pictures.py
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tsm.plugin.analysis import forgetting_curves
from tsm.plugin.cells import get_cell

if TYPE_CHECKING:
    from matplotlib.axes import Axes

IMAGES = Path(__file__).parent / "img"
STEPS = 100_000
FORGET = (0.9, 0.99, 0.999)  # forget gates of the LSTM units
EXPONENTS = (0.75, 0.5, 0.25)  # p of the power-law units
SHUT = 1e-9  # their reset gate: so small that no unit resets within the picture
ORANGE, BLUE, GREEN, GREY = "#d55e00", "#0072b2", "#009e73", "#777777"


def draw_forgetting(path: Path) -> None:
    """How much of an input is left after n steps: S_n = f_1 f_2 ... f_n with the gates constant."""
    from matplotlib.figure import Figure
    from PIL import Image

    lstm = forgetting_curves(get_cell("lstm"), STEPS, gates={"f": np.array(FORGET)})
    power = forgetting_curves(
        get_cell("plstm"), STEPS, gates={"r": SHUT}, vectors={"p": np.array(EXPONENTS)}
    )
    figure = Figure(figsize=(7.6, 3.7), layout="constrained")
    axes = figure.add_subplot(xscale="log", yscale="log", xlim=(1, STEPS), ylim=(1e-4, 1.3))
    for curve, f in zip(lstm, FORGET, strict=True):
        low = int(np.searchsorted(-curve, -3e-4))  # the label goes to the lower left of the curve
        _line(axes, curve, ORANGE, f"f = {f:g}", low, (-5, 0), "right")
    for curve, p in zip(power, EXPONENTS, strict=True):
        _line(axes, curve, BLUE, f"p = {p:g}", 20_000, (0, 5), "left")
    axes.text(8e4, 0.72, "LSTM: $f^{\\,n}$", color=ORANGE, fontsize=12, ha="right")
    axes.text(8e4, 0.36, "power-law LSTM: $(n + 1)^{-p}$", color=BLUE, fontsize=12, ha="right")
    axes.set_xlabel("n, steps since the input was stored")
    axes.set_ylabel("share of it that is left")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(which="major", color="#e5e5e5", linewidth=0.6)
    drawn, kept = io.BytesIO(), io.BytesIO()
    figure.savefig(drawn, dpi=130)
    small = Image.open(drawn).convert("RGB").quantize(64, dither=Image.Dither.NONE)
    small.save(kept, "png", optimize=True)
    path.write_bytes(kept.getvalue())


def _line(
    axes: Axes, curve: np.ndarray, color: str, label: str, at: int, by: tuple[int, int], side: str
) -> None:
    n = np.unique(np.geomspace(1, STEPS, 400).astype(int))
    axes.plot(n, curve[n - 1], color=color, linewidth=2)
    point = (at, curve[at - 1])
    axes.annotate(label, point, by, textcoords="offset points", color=color, ha=side, va="bottom")


BACKENDS = (
    ("numpy", "ground truth", GREY),
    ("PyTorch", "reference, autograd", GREY),
    ("C++", "CPU kernels", BLUE),
    ("CUDA", "GPU kernels", BLUE),
    ("ONNX, torch", "exported graphs", GREEN),
    (".tsm file", "streaming runtime", GREEN),
)


def idea() -> str:
    """formula -> tape -> every backend, as SVG."""
    parts = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 840 250" font-size="13"'
        ' font-family="Helvetica, Arial, sans-serif" fill="#222">',
        "<title>One formula per cell; everything else is derived from it</title>",
        '<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7"'
        ' orient="auto"><path d="M0 0 L10 5 L0 10 z" fill="#222"/></marker></defs>',
        '<rect width="840" height="250" fill="#fff"/>',
        _box(20, 20, 260, 62, ORANGE, "formula", "one step() per cell, written once in Python"),
        _box(340, 20, 220, 62, ORANGE, "tape", "list of element-wise operations"),
        _box(620, 20, 200, 62, ORANGE, "derivative", "tape of the backward step"),
        _arrow(280, 51, 338, 51, "record"),
        _arrow(560, 51, 618, 51, "derive"),
        '<path d="M450 82 V124 M720 82 V108 H450 M74 124 H766" fill="none" stroke="#222"/>',
    ]
    for i, (name, role, color) in enumerate(BACKENDS):
        x = 12 + 138 * i
        parts.append(f'<path d="M{x + 63} 124 V150" stroke="#222" marker-end="url(#tip)"/>')
        parts.append(_box(x, 152, 126, 58, color, name, role))
    parts.append(
        '<text x="420" y="236" text-anchor="middle" font-size="12" fill="#555">'
        "The tests compare all of them with one another, for every registered cell.</text>"
    )
    return "\n".join([*parts, "</svg>", ""])


def _box(x: int, y: int, width: int, height: int, color: str, name: str, role: str) -> str:
    middle = x + width // 2
    return (
        f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="6" fill="{color}" fill-opacity="0.12"'
        f' stroke="{color}"/><text x="{middle}" y="{y + height // 2 - 4}" text-anchor="middle"'
        f' font-weight="bold">{name}</text><text x="{middle}" y="{y + height // 2 + 15}"'
        f' text-anchor="middle" font-size="11">{role}</text>'
    )


def _arrow(x: int, y: int, to_x: int, to_y: int, label: str) -> str:
    return (
        f'<path d="M{x} {y} L{to_x} {to_y}" stroke="#222" marker-end="url(#tip)"/>'
        f'<text x="{(x + to_x) // 2}" y="{y - 7}" text-anchor="middle" font-size="11">{label}</text>'
    )


if __name__ == "__main__":
    draw_forgetting(IMAGES / "forgetting.png")
    (IMAGES / "idea.svg").write_text(idea(), encoding="utf-8")
