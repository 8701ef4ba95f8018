"""Writes docs/cells.md and its pictures from the registry; formulas and numbers are never copied by hand.

python docs/build_cells.py            the page and every picture
python docs/build_cells.py --text     the page alone
python docs/build_cells.py --check    exit 1 if the page does not match the registry
"""

from __future__ import annotations

import argparse
import inspect
import io
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

from tsm.plugin import init
from tsm.plugin.analysis import memory_of, plot_forgetting, plot_gates, retention
from tsm.plugin.cells import Cell, get_cell, list_cells
from tsm.plugin.cells.tape import ops
from tsm.plugin.layers import Recurrent

HERE = Path(__file__).parent
PAGE = HERE / "cells.md"
IMAGES = HERE / "img"

TITLES = {
    "gru": "GRU",
    "janet": "JANET",
    "lstm": "LSTM",
    "lstm_decay": "LSTM that decays in continuous time",
    "lstm_fast": "LSTM with a fast forget gate",
    "lstm_refine": "LSTM with a refine gate",
    "lstm_refine_tied": "LSTM with a refine gate, input gate tied",
    "lstm_softsign": "LSTM with a softsign forget gate",
    "min_gru": "minGRU",
    "nru": "Non-saturating recurrent unit (NRU)",
    "plstm": "Power-law LSTM",
    "plstm_fast": "Power-law LSTM with a fast reset gate",
    "plstm_uncoupled": "Power-law LSTM with its own input gate",
    "slstm": "sLSTM of xLSTM",
}
"""Titles of the cells; a cell without one is shown under its registry name."""

REFERENCES = {
    "Beck et al. 2024": "M. Beck, K. Pöppel, M. Spanring, A. Auer, O. Prudnikova, M. Kopp, G. Klambauer, "
    "J. Brandstetter, S. Hochreiter. *xLSTM: extended long short-term memory.* NeurIPS 2024. "
    "[arXiv:2405.04517](https://arxiv.org/abs/2405.04517)",
    "Chandar et al. 2019": "S. Chandar, C. Sankar, E. Vorontsov, S. E. Kahou, Y. Bengio. *Towards "
    "non-saturating recurrent units for modelling long-term dependencies.* AAAI 2019, 33(1), 3280-3287. "
    "[arXiv:1902.06704](https://arxiv.org/abs/1902.06704)",
    "Chien et al. 2021": "H.-Y. S. Chien, J. S. Turek, N. Beckage, V. A. Vo, C. J. Honey, T. L. Willke. "
    "*Slower is better: revisiting the forgetting mechanism in LSTM for slower information decay.* 2021. "
    "[arXiv:2105.05944](https://arxiv.org/abs/2105.05944)",
    "Cho et al. 2014": "K. Cho, B. van Merriënboer, C. Gulcehre, D. Bahdanau, F. Bougares, H. Schwenk, "
    "Y. Bengio. *Learning phrase representations using RNN encoder-decoder for statistical machine "
    "translation.* EMNLP 2014, 1724-1734. [arXiv:1406.1078](https://arxiv.org/abs/1406.1078)",
    "Feng et al. 2024": "L. Feng, F. Tung, M. O. Ahmed, Y. Bengio, H. Hajimirsadeghi. *Were RNNs all we "
    "needed?* 2024. [arXiv:2410.01201](https://arxiv.org/abs/2410.01201)",
    "Gers et al. 2000": "F. A. Gers, J. Schmidhuber, F. Cummins. *Learning to forget: continual prediction "
    "with LSTM.* Neural Computation 12(10), 2451-2471, 2000.",
    "Gu et al. 2020": "A. Gu, C. Gulcehre, T. Paine, M. Hoffman, R. Pascanu. *Improving the gating mechanism "
    "of recurrent neural networks.* ICML 2020, 3800-3809. "
    "[arXiv:1910.09890](https://arxiv.org/abs/1910.09890)",
    "Hochreiter & Schmidhuber 1997": "S. Hochreiter, J. Schmidhuber. *Long short-term memory.* Neural "
    "Computation 9(8), 1735-1780, 1997.",
    "Mahto et al. 2021": "S. Mahto, V. A. Vo, J. S. Turek, A. G. Huth. *Multi-timescale representation "
    "learning in LSTM language models.* ICLR 2021. [arXiv:2009.12727](https://arxiv.org/abs/2009.12727)",
    "Mei & Eisner 2017": "H. Mei, J. Eisner. *The neural Hawkes process: a neurally self-modulating "
    "multivariate point process.* NeurIPS 2017. [arXiv:1612.09328](https://arxiv.org/abs/1612.09328)",
    "Ohno et al. 2022": "K. Ohno, S. Kanai, Y. Ida. *Fast saturating gate for learning long time scales with "
    "recurrent neural networks.* AAAI 2023. [arXiv:2210.01348](https://arxiv.org/abs/2210.01348) (2022)",
    "Tallec & Ollivier 2018": "C. Tallec, Y. Ollivier. *Can recurrent neural networks warp time?* ICLR 2018. "
    "[arXiv:1804.11188](https://arxiv.org/abs/1804.11188)",
    "van der Westhuizen & Lasenby 2018": "J. van der Westhuizen, J. Lasenby. *The unreasonable effectiveness "
    "of the forget gate.* 2018. [arXiv:1804.04849](https://arxiv.org/abs/1804.04849)",
}
"""Papers, by the key that docstrings cite."""

ALSO = {"lstm_refine_tied": "Gu et al. 2020"}
"""Papers of cells whose own docstring does not cite them."""

_ACTIVATION = (
    "At equal gate values it forgets like the LSTM. What differs is the pre-activation (in brackets) "
    "needed for that gate value, and so how far a bias must be trained."
)
_REFINE = (
    "f0 = sigmoid(z_f), r = sigmoid(z_r). At r = 0.5 the refine gate leaves f = f0, as in the LSTM."
)
_POWER = (
    "While the reset gate is closed, S_n = (n + 1)^-p: a straight line on these axes. A reset gate that "
    "stays at r lets the age grow only to (1 - r) / r, so after about 1 / r steps the power law turns into "
    "an exponential."
)
_OUTPUT = "The output is the memory; the curve leaves out feedback through the recurrent weights."
NOTES = {
    "gru": _OUTPUT
    + " The compiled kernels also multiply the rows of zeros for nx and nh: 4 H (I + H) products per step, "
    "as in an LSTM, where 3 H (I + H) would be enough.",
    "janet": _OUTPUT,
    "lstm": "A constant gate forgets exponentially, S_n = f^n: to remember for n steps, it must stay "
    "within 1 / n of 1.",
    "lstm_decay": "Between two events that are dt apart, the memory decays by exp(-dt / tau): tau bounds how "
    "long a unit remembers, even if its forget gate is fully open.",
    "lstm_fast": _ACTIVATION,
    "lstm_refine": _REFINE,
    "lstm_refine_tied": _REFINE,
    "lstm_softsign": _ACTIVATION,
    "min_gru": "The output is the memory. There is no U to store or to multiply by. It runs step by step; "
    "the paper's parallel scan is not used.",
    "nru": "M = `memory_size`, k = `heads`. The memory has no forget factor, so the picture shows layers "
    "with random weights on zero input: the distance between two runs whose memories start at distance 1, "
    "S_n = |m_n - m~_n| / |m_0 - m~_0|. It grows instead of shrinking, because the weights feed the memory "
    "back. Only rows that count as 0 limit it, near |m| = 5e4: the authors compute the norm in float32, where "
    "the fifth powers of such rows overflow. So over some 500 steps and more, training starts with losses in "
    "the thousands, and learning begins after some hundred updates. A language model needs `--reset-state`: a "
    "memory that is carried from segment to segment stays that large. On a GPU it trains step by step, with "
    "kernels of its own; on a CPU as plain PyTorch.",
    "plstm": _POWER,
    "plstm_fast": _POWER,
    "plstm_uncoupled": _POWER,
    "slstm": "The picture uses z_i = 0. A memory is averaged with everything written since: with an open "
    "forget gate S_n = 1 / (n + 1), a power law, until 1 / (1 - f) steps have passed. States start at 0, so "
    "n starts at 1; for the paper's start, n = 0, pass an initial state with l = -30.",
}
"""How to read a cell's formula and picture."""

COUNTS = {"nru": "H (I + H + M + 1) + (2 k + 4 sqrt(k M)) (H + M + 1)"}
"""Number of parameters of a composite cell."""

INIT_OPTIONS = {"chrono": {"t_max": 300}, "multi_timescale": {"alpha": 1.5}}
"""Options for the initialisers that require them."""

SIZE = 128
"""I and H for which the number of parameters is shown."""

INTRO = """\
# Cells

Written by `python docs/build_cells.py` from the registry; do not edit.

A cell is one short element-wise program (`plugin/cells/`), from which the reference, the compiled kernels and
the exports are derived. Below, `'` marks the previous step, products are element-wise, and each gate reads
`z = W x + U h' + b` with its own rows of `weight_x [G*H, I]`, `weight_h [G*H, H]` and `bias [G*H]`, in the
order given; a gate that reads only x or only h has no rows in the other weight, and if no gate reads h there is
no `weight_h`. `I` is the input width, `H` the hidden width, `G` the number of gates. Every state starts at
0. Build a layer with
`Recurrent(cell, I, H, **options)` from `tsm.plugin.layers`.

**Forgetting curves.** Each picture shows how much of what a unit holds at time 0 is left n steps later,

    S_n = d c_n / d c_0 = f_1 f_2 ... f_n,    f_t = d c_t / d c_{t-1},

with constant gates and no new input. On these log-log axes a power law is a straight line, while an exponential
drops off sharply. The legend gives the value of the gate and, in brackets, its pre-activation z. A power-law
unit starts just after a reset (age 0). `tsm.plugin.analysis` computes the curves (`forgetting_curves`), and
those of trained units on data (`decay_curves`)."""


def page() -> str:
    """The whole text."""
    cells = own_cells()
    parts = [INTRO, "\n".join(_contents(cells)), *("\n".join(_section(c)) for c in cells)]
    parts += ["\n".join(_initialisers(cells)), "\n".join(_primitives()), "\n".join(_references())]
    return "\n\n".join(parts) + "\n"


def own_cells() -> list[type[Cell]]:
    """The cells of tsm itself, without those of plugins that happen to be loaded."""
    cells = [get_cell(name) for name in list_cells()]
    return [cell for cell in cells if cell.__module__.startswith("tsm.plugin.")]


def _contents(cells: list[type[Cell]]) -> Iterator[str]:
    yield "| cell | | gates | states | dt | bounded | parameters |"
    yield "|---|---|---|---|---|---|---|"
    for cell in cells:
        yield (
            f"| [`{cell.name}`](#{_anchor(cell)}) | {_title(cell)} | {' '.join(cell.gates)} "
            f"| {' '.join(cell.states)} | {_yes(cell.takes_dt)} | {_yes(cell.bounded)} | {_count(cell)} |"
        )


def _section(cell: type[Cell]) -> Iterator[str]:
    """One cell: summary, formula, table of facts and picture."""
    summary, formula = docstring(cell)
    yield f"## {_heading(cell)}\n"
    yield f"{summary}\n"
    yield f"{textwrap.indent(formula, '    ')}\n"
    yield f"![forgetting curve of {cell.name}](img/{picture(cell).name})\n"
    if cell.name in NOTES:
        yield NOTES[cell.name] + "\n"
    yield "| | |"
    yield "|---|---|"
    for name, value in _facts(cell):
        yield f"| {name} | {value} |"


def _facts(cell: type[Cell]) -> Iterator[tuple[str, str]]:
    alone = {gate: f" (reads {source} alone)" for gate, source in cell.reads.items()}
    yield "gates, in storage order", ", ".join(f"`{g}`{alone.get(g, '')}" for g in cell.gates)
    widths = cell.widths(SIZE, cell.check(SIZE, {}))
    shown = [
        f"`{name}`" + ("" if width == SIZE else f" (its own width, {width} for H = {SIZE})")
        for name, width in widths.items()
    ]
    yield "states, start 0", ", ".join(shown)
    yield "memory", f"`{memory_of(cell)}`"
    if cell.elementwise:
        kept = retention(cell)
        yield (
            "forgetting depends on",
            ", ".join(
                [f"gate `{g}`" for g in kept.gates] + [f"vector `{v}`" for v in kept.vectors]
            ),
        )
    for name, vector in cell.vectors.items():
        low, high = vector.start
        drawn = f"U({low:g}, {high:g})"
        if vector.spread == "log":
            drawn = f"{low:g} to {high:g}, its logarithm evenly"
        yield (
            f"vector `{name}` [H]",
            f"learned as {vector.link}(`{name}_raw`), drawn from {drawn}; "
            f"or fixed with `{name}=`, above {vector.above:g}",
        )
    for name, value in cell.options().items():
        if name not in cell.vectors:
            kind = "constant" if name in cell.constants else "option"
            chosen = (
                f"{cell.check(SIZE, {})[name]!r} for H = {SIZE}" if value is None else repr(value)
            )
            yield f"{kind} `{name}`", f"{chosen} unless given"
    if cell.takes_dt:
        least = cell.shortest_dt(cell.check(SIZE, {}))
        limit = f"at least {least:g} with the default options" if least else "above 0"
        yield "time step `dt`", f"taken, 1 unless given; accepted: {limit}"
    else:
        yield "time step `dt`", "not taken"
    yield "bounded", "yes" if cell.bounded else "no: states may diverge"
    fitting = [f"`{name}`" for name in init.list_initialisers() if fits(cell, name)]
    yield "initialisers that fit", ", ".join(fitting)
    total = sum(p.numel() for p in Recurrent(cell.name, SIZE, SIZE).parameters())
    yield "parameters", f"{_count(cell)}; {total:,} for I = H = {SIZE}"
    if not cell.elementwise:
        shapes = cell.weights(SIZE, cell.check(SIZE, {}))
        listed = ", ".join(f"`{n}` {list(s)}" for n, s in shapes.items())
        yield f"weights besides `weight_x`, `bias` (H = {SIZE})", listed
    yield "paper", "<br>".join(REFERENCES[key] for key in citations(cell))


def _initialisers(cells: list[type[Cell]]) -> Iterator[str]:
    yield "## Initialisers\n"
    yield "`Recurrent(cell, I, H, init=name, init_options={...})`. From `plugin/init.py`:\n"
    yield _fenced(init.__doc__ or "") + "\n"
    names = init.list_initialisers()
    yield "| cell | " + " | ".join(f"`{name}`" for name in names) + " |"
    yield "|---" * (1 + len(names)) + "|"
    for cell in cells:
        marks = " | ".join(_yes(fits(cell, name)) for name in names)
        yield f"| `{cell.name}` | {marks} |"


def _primitives() -> Iterator[str]:
    yield "## Primitives\n"
    yield "The functions that a program may use. From `plugin/cells/tape/ops.py`:\n"
    yield _fenced(ops.__doc__ or "") + "\n"
    yield "![gate activations, their slopes, and the slope left as the gate opens](img/gates.png)\n"
    yield (
        "Left and middle: value and slope of the gate activations. Right: the slope as the gate's value v "
        "approaches 1. A forget gate that must remember for 1,000 steps has 1 - v near 0.001; there the fast "
        "gate still has a useful slope, while the softsign gate has almost none."
    )


def _references() -> Iterator[str]:
    yield "## References\n"
    for key, full in REFERENCES.items():
        yield f"- **{key}**: {full}"


def docstring(cell: type[Cell]) -> tuple[str, str]:
    """(summary, formula): the first paragraph, and the rest unchanged."""
    summary, _, formula = (inspect.getdoc(cell) or "").partition("\n\n")
    return summary.replace("\n", " "), formula


def citations(cell: type[Cell]) -> list[str]:
    """The works that a cell's docstring cites, in order of citation."""
    text = f"{inspect.getdoc(cell)} {ALSO.get(cell.name, '')}"
    places = {key: text.find(key) for key in REFERENCES}
    return sorted((key for key in places if places[key] >= 0), key=places.__getitem__)


def fits(cell: type[Cell], name: str) -> bool:
    """Whether the cell has the gates that the initialiser sets, with an activation that can be inverted."""
    try:
        init.gate_biases(cell, 8, name, INIT_OPTIONS.get(name, {}))
    except ValueError as error:
        if "init_options" in str(error):
            raise ValueError(f"{error}; add them to INIT_OPTIONS") from error
        return False
    return True


def picture(cell: type[Cell]) -> Path:
    return IMAGES / f"forgetting_{cell.name}.png"


def draw() -> Iterator[Path]:
    """Draws every picture, in few colours to keep the files small."""
    for cell in own_cells():
        yield _shrink(plot_forgetting(cell, picture(cell)))
    yield _shrink(plot_gates(IMAGES / "gates.png"))


def _shrink(path: Path) -> Path:
    from PIL import Image

    kept = io.BytesIO()
    Image.open(path).convert("RGB").quantize(64, dither=Image.Dither.NONE).save(
        kept, "png", optimize=True
    )
    path.write_bytes(kept.getvalue())
    return path


def _count(cell: type[Cell]) -> str:
    """The number of parameters as a formula, checked against a layer."""
    if not cell.elementwise:
        return COUNTS.get(cell.name, "see its weights")
    gates, vectors = len(cell.gates), len(cell.vectors)
    of_x, of_h = len(cell.gates_of("x")), len(cell.gates_of("h"))
    own = "" if not vectors else " + H" if vectors == 1 else f" + {vectors} H"
    layer = Recurrent(cell.name, 3, 5)
    count = 5 * (3 * of_x + 5 * of_h + gates + vectors)
    assert sum(p.numel() for p in layer.parameters()) == count
    if cell.reads and of_h:
        return f"H ({of_x} I + {of_h} H + {gates}){own}"
    if not of_h:
        return f"{gates} H (I + 1){own}"
    return f"{gates} H (I + H + 1){own}"


def _title(cell: type[Cell]) -> str:
    return TITLES.get(cell.name, cell.name)


def _heading(cell: type[Cell]) -> str:
    return f"{_title(cell)}: `{cell.name}`"


def _anchor(cell: type[Cell]) -> str:
    """The anchor that GitHub gives the heading."""
    kept = re.sub(r"[^\w\- ]", "", _heading(cell).lower())
    return kept.replace(" ", "-")


def _fenced(text: str) -> str:
    return f"```text\n{inspect.cleandoc(text)}\n```"


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--text", action="store_true", help="write the page, leave the pictures")
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit 1 if the page is stale"
    )
    args = parser.parse_args(argv)
    text = page()
    if args.check:
        if PAGE.is_file() and PAGE.read_text(encoding="utf-8") == text:
            return 0
        print(f"docs/{PAGE.name} is stale: run `python docs/build_cells.py`", file=sys.stderr)
        return 1
    PAGE.write_text(text, encoding="utf-8")
    for path in () if args.text else draw():
        print(f"docs/img/{path.name}: {path.stat().st_size / 1000:.0f} kB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
