"""A cell that is not part of tsm: its header compiles and gives the same results as its program."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tsm.plugin.cells import Cell, Vector
from tsm.plugin.cells.generate import FORMAT, HEADERS, main
from tsm.plugin.cells.tape.derive import differentiate, hoist
from tsm.plugin.cells.tape.ops import NumpyOps
from tsm.plugin.cells.tape.print_cpp import header

SOURCES = Path(__file__).parents[3] / "cpp" / "src"


class Tour(Cell):
    """Not a sensible cell: it has every operation, a vector hoisted out of the loop, and a state that nothing
    reads."""

    name = "tour"
    gates = ("a", "b")
    states = ("h", "c", "idle")
    vectors = {"tau": Vector(link="exp"), "p": Vector()}
    constants = {"beta": 1.5, "a": 0.25, "a_b": 0.75}  # two clash with generated names
    takes_dt = True

    @staticmethod
    def step(ops, z, s, v, const, dt):
        scale = const.beta + 1 - ops.log(2.0)  # constant; used outside and inside the loop
        rate = ops.exp(-1 / v.tau) * const.beta * scale
        new = z.a * scale  # a C++ keyword; `out` is a parameter's name
        out = new * new
        f = ops.sigmoid(z.a + z.a**3) - rate * v.p + const.a * const.a_b
        c = f * s.c - ops.fast_sigmoid(z.b) / (2 - ops.softsign_gate(-z.a)) * dt
        h = ops.tanh(c) * (s.h - ops.log(1 + ops.exp(z.b))) - (-c)
        return dict(h=h + out * out, c=c, idle=1 - v.p)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tour")
    (folder / "tour.h").write_text(header(Tour))
    (folder / "tour.cc").write_text(
        """#include "tour.h"
using M = tsm::Scalar<double>;
using tsm::cells::tour;
extern "C" void forward(const double* v, const double* k, const double* z, const double* s, double dt,
                        double* q, double* out) {
  tour::prepare<M>(v, k, q);
  double a[tour::kGates];
  tour::activate<M>(z, a);
  tour::forward<M>(a, s, q, k, dt, out);
}
extern "C" void backward(const double* v, const double* k, const double* z, const double* s, double dt,
                         const double* q, const double* d, double* dz, double* ds, double* dv) {
  double a[tour::kGates], dq[tour::kPrepared];
  tour::activate<M>(z, a);
  tour::backward<M>(a, s, q, k, dt, d, dz, ds, dq);
  tour::prepare_backward<M>(v, k, dq, dv);
}
"""
    )
    compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++")
    assert compiler, "the tests need the C++ compiler that built tsm"
    command = [
        compiler,
        "-std=c++17",
        "-O1",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-shared",
        "-fPIC",
        f"-I{SOURCES}",
    ]
    subprocess.run([*command, "tour.cc", "-o", "tour.so"], cwd=folder, check=True)
    return ctypes.CDLL(str(folder / "tour.so"))


def pointer(array):
    return array.ctypes.data_as(ctypes.POINTER(ctypes.c_double))


def test_compiled_tour(compiled):
    rng = np.random.default_rng(0)
    tape = Tour.tape()
    wrt = ["z.a", "z.b", "s.h", "s.c", "s.idle", "v.tau", "v.p"]
    derivative = differentiate(tape, wrt)
    for _ in range(50):
        z, s, v, d = (
            rng.normal(size=2),
            rng.normal(size=3),
            rng.uniform(0.5, 2, size=2),
            rng.normal(size=3),
        )
        k, dt = np.array(list(Tour.constants.values())), rng.uniform(0.5, 2)
        q, out, dz, ds, dv = np.empty(8), np.empty(3), np.empty(2), np.empty(3), np.empty(2)
        time = ctypes.c_double(dt)
        compiled.forward(*map(pointer, (v, k, z, s)), time, pointer(q), pointer(out))
        compiled.backward(*map(pointer, (v, k, z, s)), time, *map(pointer, (q, d, dz, ds, dv)))
        inputs = dict(zip(wrt, [*z, *s, *v], strict=True)) | {"dt": dt}
        inputs |= {f"k.{name}": value for name, value in Tour.constants.items()}
        expected = tape.run(NumpyOps, inputs)
        np.testing.assert_allclose(out, list(expected.values()), rtol=1e-12, atol=1e-13)
        incoming = dict(zip(("d.h", "d.c", "d.idle"), d, strict=True))
        gradients = derivative.run(NumpyOps, inputs | incoming)
        found = dict(zip([f"d.{n}" for n in wrt], [*dz, *ds, *dv], strict=True))
        for name, value in gradients.items():
            assert found[name] == pytest.approx(float(value), rel=1e-11, abs=1e-13), name


def test_vectors_are_hoisted():
    prepare, step = hoist(Tour.tape())
    assert {n.op for n in prepare.nodes} >= {"exp", "mul"}, (
        "exp(-1/tau) beta p belongs outside the loop"
    )
    assert not [i for i in step.inputs() if i.startswith("v.")]


def test_command_writes_checks_and_reports(tmp_path, capsys):
    root = ["--root", str(tmp_path)]
    assert main(root) == 2
    headers, page = tmp_path / HEADERS, tmp_path / FORMAT
    headers.mkdir(parents=True)
    page.parent.mkdir()
    page.write_text("Before.\n<!-- table: operations -->\n<!-- end -->\nAfter.\n")
    assert main(root) == 0
    assert main([*root, "--check"]) == 0
    text = page.read_text()
    assert "| `tanh` |" in text and text.startswith("Before.") and text.endswith("After.\n")
    (headers / "lstm.h").write_text("// Generated, and then changed by hand\n")
    (headers / "gone.h").write_text("// Generated from a cell that is no more\n")
    page.write_text(text.replace("tanh x", "tan x"))
    capsys.readouterr()
    assert main([*root, "--check"]) == 1
    assert f"{HEADERS}/gone.h, {HEADERS}/lstm.h, {FORMAT}" in capsys.readouterr().out
    assert main(root) == 0
    assert not (headers / "gone.h").exists() and page.read_text() == text
    assert main([*root, "--check"]) == 0
