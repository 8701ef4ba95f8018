"""tsm-doctor reports what is installed, even without torch or the compiled core."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from tsm.plugin.cells import list_cells
from tsm.plugin.cli import _doctor_torch
from tsm.plugin.cli.doctor import library, library_lines, main, package
from tsm.plugin.layers.choose import Route
from tsm.plugin.layers.core import on_torchs_threads
from tsm.runtime import _core

BLOCKED = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name in {names!r} or name.split(".")[0] in {names!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Blocked())
from tsm.plugin.cli.doctor import main
code = main({argv!r})
assert not [name for name in {names!r} if name in sys.modules]
raise SystemExit(code)
"""


def without(names: list[str], *argv: str) -> subprocess.CompletedProcess[str]:
    program = BLOCKED.format(names=names, argv=list(argv))
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """Sets a writable home: ONNX Runtime prints a warning on stderr if it cannot write a file there when
    loaded."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)


@pytest.fixture(scope="module")
def report():
    from contextlib import redirect_stdout
    from io import StringIO

    with redirect_stdout(StringIO()) as out:
        assert main(["--json"]) == 0
    return json.loads(out.getvalue())


def test_what_is_found(report):
    named = report["packages"]["torch"]["version"]  # the version in a wheel's name may lack +cu130
    assert named.partition("+")[0] == torch.__version__.partition("+")[0]
    assert report["cpu_threads"]["count"] == torch.get_num_threads()
    assert report["cpu_threads"]["of_torch"] == on_torchs_threads
    assert report["core"]["cells"] == sorted(_core.cells)
    assert report["core"]["cuda_built_in"] == _core.with_cuda
    assert set(report["core"]["not_compiled"]) == set(list_cells()) - set(_core.cells)
    assert report["core"]["levels"] == _core.isa_levels()
    assert report["core"]["active_level"] == _core.active_level()


def test_backends(report):
    table = {(b["device"], b["dtype"]): b for b in report["backends"]}
    assert set(table["cpu", "float32"]["fused"]) == set(_core.cells) & set(list_cells())
    assert table["cpu", "float16"]["use"].startswith("reference (dtype")
    assert "not element-wise" in table["cpu", "float32"]["reference"]["nru"]


def test_self_test_runs_every_fused_cell(report):
    on_cpu = [t for t in report["self_test"] if t["device"] == "cpu"]
    assert {t["cell"] for t in on_cpu} == set(_core.cells) & set(list_cells())
    assert all(t["ok"] and 0 <= t["difference"] < 1e-4 for t in on_cpu)


def test_text(capsys):
    assert main([]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    for part in ("compiled core: yes", "backend of", "self-test", "nvcc", "sentencepiece"):
        assert part in out


def test_the_path_of_a_gpu(capsys, monkeypatch):
    core = SimpleNamespace(recurrence_cuda_path=lambda device: "163 KB: teams")
    monkeypatch.setattr(_doctor_torch, "_core", core)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    monkeypatch.setattr(_doctor_torch, "choose", lambda *_: Route("layer_cuda"))
    words = "compute capability 8.0, 163 KB: teams"
    assert _doctor_torch.path(0) == words
    monkeypatch.setattr(_doctor_torch, "choose", lambda *_: Route("reference", "it is too old"))
    assert _doctor_torch.path(0) == "plain PyTorch: it is too old"
    monkeypatch.undo()
    found = {"built_for": "13.0", "devices": ["A100"], "paths": [words], "problem": None}
    monkeypatch.setattr(_doctor_torch, "cuda", lambda: found)
    assert main([]) == 0
    assert f"training on GPU 0: {words}" in capsys.readouterr().out


@pytest.mark.parametrize("trouble", [float("nan"), 0.5, RuntimeError("no kernel\nhere")])
def test_a_failing_self_test_is_exit_1(capsys, monkeypatch, trouble):
    def difference(name, device):
        if isinstance(trouble, Exception):
            raise trouble
        return trouble

    monkeypatch.setattr(_doctor_torch, "_difference", difference)
    assert main([]) == 1
    assert "FAIL" in capsys.readouterr().out


def test_without_torch():
    result = without(["torch", "tqdm", "sentencepiece"])
    assert (result.returncode, result.stderr) == (0, "")
    assert "they need torch: pip install 'timescale-models[train]'" in result.stdout
    assert "compiled core: yes" in result.stdout
    found = json.loads(without(["torch"], "--json").stdout)
    assert found["packages"]["torch"] == {
        "version": None,
        "problem": "not installed",
        "needs": "pip install 'timescale-models[train]'",
    }
    assert found["core"]["cells"] == sorted(_core.cells)


def test_without_the_core():
    result = without(["tsm.runtime._core"])
    assert (result.returncode, result.stderr) == (0, "")
    assert "compiled core: no (" in result.stdout and "_core" in result.stdout
    assert "the compiled core is missing" in result.stdout  # why layers run the reference
    assert "nothing to test" in result.stdout


def test_a_level_that_is_not_there():
    env = {**os.environ, "TSM_ISA": "mmx"}
    argv = [sys.executable, "-m", "tsm.plugin.cli.doctor"]
    result = subprocess.run(argv, capture_output=True, text=True, env=env)
    assert "in use: none, as TSM_ISA = 'mmx' is not one of them" in result.stdout, result.stderr


def test_the_library_for_c(tmp_path, monkeypatch):
    if shutil.which("pkg-config") is None:
        pytest.skip("needs pkg-config")
    monkeypatch.setenv("PKG_CONFIG_PATH", str(tmp_path))
    monkeypatch.setenv("PKG_CONFIG_LIBDIR", str(tmp_path))
    assert library() is None
    assert "not found" in library_lines(None)[0]
    pc = "libdir=/opt/lib/../lib\nName: tsm\nDescription: x\nVersion: 9.8.7\n"
    (tmp_path / "tsm.pc").write_text(pc)
    assert library() == {"version": "9.8.7", "folder": "/opt/lib"}
    assert library_lines(library()) == ["library for C and C++: 9.8.7 in /opt/lib"]


def test_a_package_that_is_broken(tmp_path, monkeypatch):
    (tmp_path / "broken_one.py").write_text("raise OSError('libfoo.so: cannot open')")
    monkeypatch.syspath_prepend(tmp_path)
    assert package("broken_one")["problem"] == "OSError: libfoo.so: cannot open"


def test_flags(capsys):
    assert main(["--jsno"]) == 2
    assert "did you mean --json?" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["eval", "generate", "doctor"])
def test_as_module(name):
    argv = [sys.executable, "-m", f"tsm.plugin.cli.{name}"]
    result = subprocess.run([*argv, "--help"], capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith(f"usage: tsm-{name}")


@pytest.mark.parametrize("name", ["eval", "generate"])
def test_other_commands_say_what_they_need(name):
    program = BLOCKED.format(names=["torch"], argv=["--path", "x.pt"])
    program = program.replace("cli.doctor", f"cli.{name}")
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert result.returncode == 2
    assert result.stderr == (
        f"tsm-{name}: error: torch is missing: needs pip install 'timescale-models[train]'\n"
    )
