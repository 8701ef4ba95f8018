"""The committed C++ headers and the table in FORMAT.md match the current programs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tsm.plugin.cells.generate import cells, stale
from tsm.plugin.cells.tape.print_cpp import header
from tsm.plugin.cells.tape.program import program_hash
from tsm.runtime import _core

ROOT = Path(__file__).parents[2]


def test_nothing_is_stale():
    assert stale(ROOT) == [], "run `make cells`"


def test_the_core_was_built_from_them(compiled_cell):
    info = _core.cells[compiled_cell.name]
    assert info["gates"] == len(compiled_cell.gates)
    assert info["states"] == len(compiled_cell.states)
    assert info["vectors"] == len(compiled_cell.vectors)
    assert info["constants"] == len(compiled_cell.constants)
    assert info["takes_dt"] == compiled_cell.takes_dt
    assert info["hash"] == program_hash(compiled_cell)
    assert set(_core.cells) == {cell.name for cell in cells()}


def test_headers_are_readable(compiled_cell):
    """Computed temporaries are used more than once, and loaded values at least once."""
    text = header(compiled_cell)
    for body in text.split("TSM_CELL")[1:]:
        for line in body.splitlines():
            if line.strip().startswith("const V "):
                name = line.split()[2]
                words = "".join(c if c.isalnum() or c == "_" else " " for c in body).split()
                computed = not line.rstrip(";").split(" = ")[1].endswith("]")
                assert words.count(name) >= (3 if computed else 2), f"{compiled_cell.name}: {line}"


def test_a_changed_formula_does_not_run_the_compiled_one():
    """If a cell was edited without running `make cells`, the layer says why it uses the reference."""
    code = """
from tsm.plugin.cells.lstm import Lstm
step = Lstm.step
Lstm.step = staticmethod(lambda ops, z, s, v, const, dt: {**step(ops, z, s, v, const, dt), "h": ops.tanh(z.o)})
Lstm.tape.__func__.cache_clear()
import torch
from tsm.plugin.layers.choose import choose
print(choose(Lstm, torch.float32, torch.device("cpu")).why)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "compiled with another formula" in done.stdout, done.stdout + done.stderr
