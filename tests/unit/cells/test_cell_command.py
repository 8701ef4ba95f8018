"""tsm-cell check: what it says of cells that fulfil their contract, and of those that break it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

from tsm.export.contract import checks
from tsm.export.contract.checks import CHECKS
from tsm.export.contract.cli import main
from tsm.plugin.cells.base import CELLS
from tsm.plugin.layers import Recurrent
from tsm.runtime import _core

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "user_dir" / "leaky.py"
CELL = """
from tsm.plugin import register_cell
from tsm.plugin.cells import Cell, Vector

calls = []

@register_cell("{name}")
class Mine(Cell):
    gates = ("g", "o")
    states = ("h", "c")
    {declared}

    @staticmethod
    def step(ops, z, s, v, const, dt):
        g, o = ops.tanh(z.g), ops.sigmoid(z.o)
        kind = ops.__name__ if isinstance(ops, type) else "Recorder"
{body}
        return dict(h=h, c=c)
"""
GOOD = "c = 0.5 * s.c + g\nh = o * ops.tanh(c)"


@pytest.fixture
def write(tmp_path):
    """write(body, declared) -> a file with a cell of its own; the registry forgets it afterwards."""
    before = set(CELLS.names())

    def write(body: str = GOOD, declared: str = "") -> Path:
        path = tmp_path / f"mine_{len(list(tmp_path.iterdir()))}.py"
        text = CELL.format(name=path.stem, declared=declared, body=textwrap.indent(body, " " * 8))
        path.write_text(text)
        return path

    yield write
    for name in set(CELLS.names()) - before:
        del CELLS._entries[name], CELLS._makers[name]
    for name in [n for n in sys.modules if n.startswith(f"tsm_user_{tmp_path.name}")]:
        del sys.modules[name]


def results(path: Path, capsys) -> tuple[int, dict[str, dict]]:
    code = main(["check", str(path), "--json"])
    rows = json.loads(capsys.readouterr().out)
    assert [row["check"] for row in rows] == [check.name for check in CHECKS]
    return code, {row["check"]: row for row in rows}


def test_a_cell_that_fulfils_all(write, capsys):
    path = write()
    assert main(["check", str(path)]) == 0
    *lines, last = capsys.readouterr().out.splitlines()
    assert [line.split(": ")[1] for line in lines] == [check.name for check in CHECKS]
    assert all(line.startswith(f"-[✓] {path.stem}: ") for line in lines), lines
    assert last == f"{path.stem}: {len(CHECKS)} passed"


ONLY_RECORDED = "c = g * (1.5 if kind == 'Recorder' else 1)\nh = o * c"
BROKEN = {  # check -> (body of step, other declarations, what is said)
    "formula": (
        "c = g * (1.01 if kind == 'TorchOps' else 1)\nh = o * c",
        "",
        r"y: .* allowed 1\.\d*e-12",
    ),
    "gradient": (
        "c = ops.tanh(z.g.detach()) if kind == 'TorchOps' else g\nh = o * c",
        "",
        "mismatch.* input 0.*inputs: x, h, c, weight_x",
    ),
    "tape": (ONLY_RECORDED, "", r"h: 64 of 64 differ; worst at \(\d+,\).*\(tape float64"),
    "chunks": (
        "calls.append(g)\nc = s.c + (g if len(calls) % 5 else -g)\nh = o * c",
        "",
        r"y, cut at \[.*\]: \d+ of \d+ differ",
    ),
    "dt": (GOOD, "takes_dt = True", "takes_dt is declared, but a dt of 2 gives the states of a dt"),
    "extremes": (
        "c = ops.exp(z.g)\nh = o * ops.tanh(c)",
        "",
        "c is inf in float32 with z = {'g': 89.0",
    ),
    "nan": ("c = 0.5 * s.c + g\nh = ops.tanh(c)", "", "a NaN in element .* of .* vanished"),
    "bounded": ("c = s.c + g\nh = c", "", r"\|h\| grows from .* declares bounded = False"),
    "stream": (ONLY_RECORDED, "", "logits of lm tokens: .*stream float32"),
    "stream chunks": (ONLY_RECORDED, "", "logits with float32 weights"),
    "long stream": (
        "c = 3.9 * s.c * (1 - s.c) + 1e-6 * g * g\nh = o * c",
        "",
        "error .* in the last quarter, allowed 0.0002",
    ),
    "onnx": (ONLY_RECORDED, "", "logits at .* expected .* allowed"),
    "torchscript": (ONLY_RECORDED, "", "logits at .* expected .* allowed"),
}


@pytest.mark.parametrize("name", [check.name for check in CHECKS])
def test_a_cell_that_breaks(name, write, capsys, monkeypatch):
    body, declared, said = BROKEN[name]
    monkeypatch.setattr(checks, "CHECKS", [check for check in CHECKS if check.name == name])
    path = write(body, declared)
    assert main(["check", str(path)]) == 1
    line, last = capsys.readouterr().out.splitlines()
    assert line.startswith(f"-[x] {path.stem}: {name}: ") and re.search(said, line), line
    assert last == f"{path.stem}: 1 failed"


TAU = 'vectors = {{"tau": Vector(link="exp", start={start})}}\n    takes_dt = True'
LEAK = "f = ops.exp(-dt / v.tau)\nc = f * s.c + (1 - f) * g\n"


@pytest.mark.parametrize(
    ("body", "declared"),
    [
        (LEAK + "h = o * ops.tanh(c)", TAU.format(start="(1000.0, 10000.0)")),
        (LEAK + "h = 10 * o * ops.tanh(c)", TAU.format(start="(1000.0, 10000.0)")),
        ("f = ops.sigmoid(z.o - 9)\nh = c = s.h + f * (z.g - s.h)", 'reads = {"g": "x", "o": "x"}'),
    ],
    ids=["long memory", "long memory times 10", "leaky, linear"],
)
def test_a_bounded_cell_may_approach_its_bound_slowly(body, declared, write, capsys, monkeypatch):
    monkeypatch.setattr(checks, "CHECKS", [check for check in CHECKS if check.name == "bounded"])
    assert main(["check", str(write(body, declared))]) == 0, capsys.readouterr().out


def test_a_decay_for_the_whole_layer(write, capsys):
    """Primitives of numbers alone: a constant, and the default dt."""
    body = "c = ops.exp(-const.rate) * ops.exp(-const.rate * dt) * s.c + g\nh = o * ops.tanh(c)"
    path = write(body, 'constants = {"rate": 0.1}\n    takes_dt = True')
    assert main(["check", str(path)]) == 0, capsys.readouterr().out
    assert torch.isfinite(Recurrent(path.stem, 3, 4)(torch.randn(2, 5, 3))[0]).all()


@pytest.mark.parametrize(
    ("name", "body", "declared", "said"),
    [
        ("extremes", GOOD, TAU.format(start="(1.0, 9.0)"), "tau is declared but not read"),
        (
            "extremes",
            "e = ops.exp(v.tau / dt)\nf = e / (1 + e)\nc = f * s.c + (1 - f) * g\nh = o * ops.tanh(c)",
            TAU.format(start="(1.0, 9.0)"),
            "h is nan in float32 .* and dt = 1e-30",
        ),
        ("bounded", "c = s.c + 1\nh = g * ops.log(1 + c)", "", r"\|h\| grows from .* x = 3;"),
        ("bounded", "c = s.c + g\nh = o * c", "", r"\|h\| grows from"),
        ("bounded", "c = 2 * s.c + g\nh = o * c", "", r"\|h\| grows from .* to (inf|nan)"),
    ],
)
def test_a_cell_that_breaks_in_another_way(name, body, declared, said, write, capsys, monkeypatch):
    monkeypatch.setattr(checks, "CHECKS", [check for check in CHECKS if check.name == name])
    assert main(["check", str(write(body, declared))]) == 1
    line = capsys.readouterr().out.splitlines()[0]
    assert re.search(said, line), line


def test_an_error_in_the_cell_s_own_code_is_a_failed_check(write, capsys):
    path = write("c = g\nh = o * ops.tanh(c if kind == 'Recorder' else {}['no such'])")
    code, rows = results(path, capsys)
    assert code == 1 and rows["formula"]["note"] == "KeyError: 'no such'"
    assert rows["tape"]["passed"] is False and rows["nan"]["passed"] is False


def test_an_unbounded_cell_is_spared(write, capsys):
    code, rows = results(write("c = s.c + g\nh = c", "bounded = False"), capsys)
    skipped = {name: row["note"] for name, row in rows.items() if row["passed"] is None}
    assert skipped == dict.fromkeys(["extremes", "bounded"], "declared bounded = False")
    assert code == int(any(row["passed"] is False for row in rows.values()))


def cell_named(name: str, body: str = GOOD) -> str:
    return CELL.format(name=name, declared="", body=textwrap.indent(body, " " * 8))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1", 'registers no cell; accepted: a file with a class under @register_cell("NAME")'),
        ("def f(:", "cannot be imported: SyntaxError: "),
        ("import no_such_package", "ModuleNotFoundError: No module named 'no_such_package'"),
        (cell_named("lstm"), "cell 'lstm' is already registered"),
        (cell_named("two words"), "cell name 'two words'; accepted"),
        (cell_named("mine", "c = h = g if z.g > 0 else o"), "cannot branch on a value"),
    ],
)
def test_a_file_that_cannot_be_checked(text, said, tmp_path, capsys):
    (tmp_path / "mine.py").write_text(text)
    assert main(["check", str(tmp_path / "mine.py")]) == 2
    error = capsys.readouterr().err
    assert said in error and "mine.py" in error and error.count("\n") == 1, error


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("check lstmm", "unknown cell 'lstmm'; did you mean lstm"),
        ("check nowhere/a.py", "nowhere/a.py does not exist; accepted: a Python file, a folder"),
        ("check", "missing: CELL; accepted: tsm-cell check CELL [--json]"),
        ("check lstm plstm", "'plstm' is unexpected"),
        ("compare lstm", "'compare' is not something that tsm-cell does; accepted: check"),
    ],
)
def test_wrong_words(words, said, capsys):
    assert main(words.split()) == 2
    assert said in capsys.readouterr().err


def test_help_loads_neither_torch_nor_numpy():
    for words in ("--help", "check --help", "no-such"):
        code = "import sys\nfrom tsm.export.contract.cli import main\n"
        code += f"try: main({words.split()!r})\nexcept SystemExit: pass\n"
        code += "assert not {'torch', 'numpy'} & set(sys.modules)"
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_without_the_source_tree_and_without_pytest(tmp_path):
    """As from an installed wheel: a copy of the package elsewhere, and no package that only tests need."""
    package = tmp_path / "installed" / "tsm"
    shutil.copytree(
        ROOT / "src" / "tsm", package, ignore=shutil.ignore_patterns("_core*", "__pycache__")
    )
    shutil.copy(_core.__file__, package / "runtime")
    shutil.copy(EXAMPLE, tmp_path)
    code = f"""
import sys
sys.path[:0] = [{str(package.parent)!r}]
sys.path += [{str(Path(torch.__file__).parents[1])!r}]
for name in ("pytest", "_pytest", "hypothesis", "onnxruntime"):
    sys.modules[name] = None
import importlib.util
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "onnxruntime" else find(name, *rest)
import tsm
assert tsm.__file__ == {str(package / "__init__.py")!r}, tsm.__file__
from tsm.export.contract.cli import main
sys.exit(main(["check", "leaky.py"]))
"""
    command = [sys.executable, "-S", "-c", code]  # -S: no .pth file of an editable install
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    *lines, last = done.stdout.splitlines()
    skipped = "-[ ] leaky: onnx: skipped: onnxruntime not installed: pip install 'timescale-models[export]'"
    assert skipped in lines and last == f"leaky: {len(CHECKS) - 1} passed, 1 skipped", done.stdout
