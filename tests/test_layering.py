"""Who may use whom. The levels are those of CONTRIBUTING.md; this test walks every import and include."""

from __future__ import annotations

import ast
import re
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
STDLIB = set(sys.stdlib_module_names)

# package -> third-party modules it may load at import time, and inside functions besides
PYTHON = {
    "runtime": ({"numpy"}, {"sentencepiece"}),
    "export": (
        {"numpy", "torch", "onnx", "safetensors"},
        {"tsm.runtime", "onnxruntime", "matplotlib"},
    ),
    "plugin": (
        {"numpy", "torch"},
        {"scipy", "tqdm", "matplotlib", "sentencepiece", "tensorboard"},
    ),
}
# file -> the one further package it may load
EXCEPTIONS = {
    "plugin/data/subword.py": "tsm.runtime",  # its side of sentencepiece
    "plugin/layers/core.py": "tsm.runtime",  # the compiled core under the fused operator
    "export/triton_model.py": "triton_python_backend_utils",  # copied out, Triton runs it
    "plugin/cli/doctor.py": "tsm.runtime",  # looks whether it is there
    "plugin/cli/stream.py": "tsm.runtime",  # runs models in it, without torch
}
# Inside plugin, lowest first: a room may use those before it, never those after it.
ROOMS = ["registry", "config", "user_dir", "extras", "cells", "init", "layers", "models", "archs"]
ROOMS += [
    "data",
    "tasks",
    "criterions",
    "generation",
    "train",
    "trained",
    "analysis",
    "reproduce",
    "cli",
]
TORCH_FREE = ["plugin/registry.py", "plugin/config.py", "plugin/user_dir.py", "plugin/__init__.py"]
TORCH_FREE += [
    "plugin/cells/" + name for name in ("base", "ops", "record", "tape", "derive", "__init__")
]

# C++ level -> levels it may include
CPP = {
    "cells": {"cells"},
    "core": {"core"},
    "kernels": {"cells", "core", "kernels"},
    "engine": {"core", "kernels", "engine"},
    "tsm": {"tsm"},  # the public headers
    "c_api": {"core", "engine", "tsm", "c_api"},
    "bench": {"core", "kernels", "engine", "bench"},
    "bindings": {"core", "kernels", "engine", "bench"},
}
CPP_FOLDERS = {"bindings": "bindings", "bench": "bench", "tsm": "include/tsm"}  # others: src/NAME


def imports(path: Path, root: Path = ROOT):
    """(absolute module name, whether it is loaded with the file) for every import in a file of the package."""
    package = ["tsm", *path.relative_to(root).parent.parts]
    tree = ast.parse(path.read_text())
    lazy = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        for inner in ast.walk(node)
    }
    typing_only = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if node in typing_only:
            continue
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node not in lazy
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            stem = ".".join([*base, *([node.module] if node.module else [])])
            ours = stem.split(".")[0] == "tsm"
            for alias in node.names:  # `from tsm import x` may name a module or a value
                yield (f"{stem}.{alias.name}" if ours else stem), node not in lazy


def files(folder: str):
    found = sorted((ROOT / folder).rglob("*.py"))
    assert found, f"no Python file in {folder}"
    return found


@pytest.mark.parametrize("package", PYTHON)
def test_packages(package):
    at_import, in_functions = PYTHON[package]
    for path in files(package):
        for module, eager in imports(path):
            top = module.split(".")[0]
            if (
                top in STDLIB
                or module in ("tsm", "tsm.__version__")
                or module.startswith(f"tsm.{package}")
            ):
                continue
            name = ".".join(module.split(".")[:2]) if top == "tsm" else top
            allowed = at_import if eager else at_import | in_functions
            allowed = allowed | {"tsm.plugin"} if package == "export" else allowed
            key = str(path.relative_to(ROOT))
            assert name in allowed or EXCEPTIONS.get(key) == name, f"{key} imports {module}"


def test_rooms_of_plugin():
    for path in files("plugin"):
        parts = path.relative_to(ROOT / "plugin").with_suffix("").parts
        room = parts[0]
        if room == "__init__":
            continue
        assert room in ROOMS, f"{path.relative_to(ROOT)}: add its room to ROOMS, lowest first"
        for module, _ in imports(path):
            if not module.startswith("tsm.plugin."):
                continue
            used = module.split(".")[2]
            if used in ROOMS:
                assert ROOMS.index(used) <= ROOMS.index(room), (
                    f"{path.relative_to(ROOT)} uses {module}"
                )


def test_no_circles():
    """Not even through imports inside functions; what only type checkers read does not count."""
    paths = {
        ".".join(("tsm", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(
            ".__init__"
        ): path
        for folder in ("plugin", "export", "runtime", "benchmarks")
        for path in files(folder)
    }

    def module_of(name: str) -> str:
        while name and name not in paths:  # a name inside of a module
            name = name.rpartition(".")[0]
        return name

    used = {m: {module_of(name) for name, _ in imports(path)} - {m} for m, path in paths.items()}
    TopologicalSorter(used).prepare()  # CycleError: names those of a circle


def test_cells_and_commands_need_no_torch_to_import():
    for name in TORCH_FREE:
        path = ROOT / name if name.endswith(".py") else ROOT / f"{name}.py"
        eager = [module for module, at_import in imports(path) if at_import]
        assert not [m for m in eager if m.split(".")[0] == "torch" or "torch_ops" in m], name


def test_nothing_imports_a_bare_package():
    for folder in ("plugin", "export", "runtime", "tests", "examples", "benchmarks"):
        for path in files(folder):
            bare = [m for m, _ in imports(path) if m.split(".")[0] in PYTHON]
            assert not bare, f"{path.relative_to(ROOT)} imports {bare}"


@pytest.mark.parametrize(
    "line, module",
    [
        ("from tsm import runtime", "tsm.runtime"),
        ("from ... import runtime", "tsm.runtime"),
        ("from ...runtime import engine", "tsm.runtime.engine"),
        ("from tsm.plugin import cli", "tsm.plugin.cli"),
        ("from ..cells import torch_ops", "tsm.plugin.cells.torch_ops"),
        ("from torch import nn", "torch"),
    ],
)
def test_every_way_to_import_is_noticed(tmp_path, line, module):
    path = tmp_path / "plugin" / "models" / "planted.py"
    path.parent.mkdir(parents=True)
    path.write_text(f"{line}\ndef late():\n    {line}\n")
    assert list(imports(path, tmp_path)) == [(module, True), (module, False)]


def included(text: str) -> list[str]:
    """The level of every include that names one; ".." for a path that climbs out of its own."""
    paths = [p.split("/") for p in re.findall(r'# *include *[<"]([^>"]+)[>"]', text)]
    levels = [".." if ".." in parts else parts[0] for parts in paths if len(parts) > 1]
    return [level for level in levels if level == ".." or level in CPP]


def test_every_way_to_include_is_noticed():
    lines = '#include "../kernels/error.h"\n#include "x/../../kernels/error.h"\n'
    lines += '#include "kernels/error.h"\n# include <kernels/error.h>\n'
    assert included(lines) == ["..", "..", "kernels", "kernels"]
    assert included('#include "error.h"\n#include <sys/stat.h>\n#include <cmath>\n') == []


def test_cpp_levels():
    seen = 0
    for level, allowed in CPP.items():
        folder = ROOT / "cpp" / CPP_FOLDERS.get(level, f"src/{level}")
        found = [path for kind in ("h", "hpp", "cc", "cu") for path in folder.glob(f"*.{kind}")]
        assert found, f"no C++ file in {folder}"
        for path in found:
            for include in included(path.read_text()):
                seen += 1
                assert include in allowed, f"{path.relative_to(ROOT)} includes {include}/"
    assert seen > 20
