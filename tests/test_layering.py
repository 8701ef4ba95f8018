"""Who may use whom. The levels are read from CONTRIBUTING.md; these tests walk every import and include."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
STDLIB = set(sys.stdlib_module_names)

# package -> third-party modules it may load at import time, and those it may load only inside functions
PYTHON = {
    "runtime": (
        {"numpy"},
        {
            "sentencepiece",
            "redis",
            "uvicorn",
            "opentelemetry",
            "prometheus_client",
            "websockets",
            "ray",
            "grpc",
            "google",
        },
    ),
    "export": (
        {"numpy", "torch", "onnx", "safetensors"},
        {"tsm.runtime", "onnxruntime", "onnxscript", "matplotlib"},
    ),
    "plugin": (
        {"numpy", "torch"},
        {"scipy", "tqdm", "yaml", "matplotlib", "sentencepiece", "tensorboard"},
    ),
}
# file -> the one additional package it may load
EXCEPTIONS = {
    "plugin/train/progress.py": "wandb",  # where it is installed
    "plugin/data/readers/hugging_face.py": "datasets",  # where it is installed
    "plugin/data/subword.py": "tsm.runtime",  # its sentencepiece code
    "plugin/layers/core.py": "tsm.runtime",  # the compiled core under the fused operator
    "export/triton/model.py": "triton_python_backend_utils",  # copied into the repository and run by Triton
    "plugin/cli/doctor.py": "tsm.runtime",  # checks whether it is installed
    "plugin/loaded/tsm_file.py": "tsm.runtime",  # the same, for tsm.load
    "plugin/cli/stream.py": "tsm.runtime",  # runs models in it, without torch
}
# Importing these does not load torch; a file that needs torch at import has "torch" in its name.
TORCH_FREE = [
    "plugin/*.py",
    "plugin/cells/**/*.py",
    "plugin/command/*.py",
    "plugin/common/*.py",
    "plugin/data/**/*.py",
    "plugin/cli/*.py",
    "runtime/**/*.py",
]
LAYERS_THEMSELVES = {
    "plugin/archs.py",
    "plugin/criterions.py",
    "plugin/generation.py",
    "plugin/init.py",
}
LAYERS_THEMSELVES |= {"plugin/trained.py"}


def levels() -> dict[str, str]:
    """Folder or module -> what its row allows it to use; lowest first."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    found: dict[str, str] = {}
    for row in re.findall(r"^\| (`.*) \|$", text, re.MULTILINE):
        cells = row.split(" | ")
        names, uses = re.findall(r"`(.+?)`", cells[0]), cells[-1]
        folder = names[0].rpartition("/")[0]
        found |= {name if "/" in name else f"{folder}/{name}".lstrip("/"): uses for name in names}
    return found


LEVELS = levels()
PACKAGES = ("runtime", "plugin", "export", "benchmarks")
# Lowest first: a file may use its own level and lower ones, never higher ones.
PYTHON_LEVELS = [name for name in LEVELS if not name.startswith("cpp/")]
# C++ folder as named in includes -> its path, and the folders it may include
CPP_FILES = (".h", ".hpp", ".cc", ".cu", ".cuh", ".cu.in")
SOURCE_FILES = (*CPP_FILES, ".py", ".c", ".cmake", ".in", ".js", ".mjs", ".css", ".html")
CPP_FOLDERS = {
    re.sub("^cpp/(src/|include/)?", "", name): ROOT / name
    for name in LEVELS
    if name.startswith("cpp/")
}
CPP = {
    name: {name, *LEVELS[str(folder.relative_to(ROOT))].split(", ")} - {"-"}
    for name, folder in CPP_FOLDERS.items()
}
MOST_FILES = 25  # of one folder


def test_the_table_of_levels():
    """The table names every existing level, and nothing else."""
    assert all((ROOT / name).is_dir() or (ROOT / f"{name}.py").is_file() for name in LEVELS)
    assert {*PYTHON_LEVELS} == {level_of(path) for path in PATHS.values()}
    sources = {p.parent for p in (ROOT / "cpp").rglob("*") if p.name.endswith(CPP_FILES)}
    assert {*CPP_FOLDERS.values()} == sources - {ROOT / "cpp/fuzz"}
    for folder, used in CPP.items():
        below = list(CPP)[: list(CPP).index(folder) + 1]
        assert used <= {*below}, folder  # so there are no circles


def imports(path: Path, root: Path = ROOT, for_types: bool = False):
    """(absolute module name, whether it is loaded with the file) for every import in a file of the package.

    for_types: also those under `if TYPE_CHECKING`, which are never loaded.
    """
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
        if node in typing_only and not for_types:
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


def module_at(path: Path) -> str:
    """plugin/cells/lstm.py -> tsm.plugin.cells.lstm"""
    return ".".join(("tsm", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(
        ".__init__"
    )


PATHS = {module_at(path): path for package in PACKAGES for path in files(package)}


def all_uses(paths: Mapping[str, Path], root: Path) -> dict[Path, set[Path]]:
    """File -> the tsm files that it imports, also inside functions and for type checkers."""
    found: dict[Path, set[Path]] = {path: set() for path in paths.values()}
    for path in found:
        for name, _ in imports(path, root, for_types=True):
            if name.startswith("tsm.runtime._core"):  # compiled
                continue
            while name and name not in paths:  # a name inside of a module
                name = name.rpartition(".")[0]
            if name:
                found[path].add(paths[name])
        found[path].discard(path)
    return found


USES = all_uses(PATHS, ROOT)


def level_of(path: Path) -> str:
    """The table row for a file: its own, or that of its folder."""
    own = path.relative_to(ROOT).with_suffix("")
    return str(own) if str(own) in PYTHON_LEVELS else str(own.parent)


def test_python_levels():
    """Every file uses only its own level and those above it in the table (also for types), so there are no
    cycles between folders either."""
    seen = 0
    for path in PATHS.values():
        level = level_of(path)
        assert level in PYTHON_LEVELS, f"{path.relative_to(ROOT)}: add a row for {level}"
        for used in USES[path]:
            seen += 1
            assert PYTHON_LEVELS.index(level_of(used)) <= PYTHON_LEVELS.index(level), (
                f"{path.relative_to(ROOT)} uses {used.relative_to(ROOT)}"
            )
    assert seen > 1000


def circle(uses: Mapping[Path, set[Path]]) -> list[str]:
    """The files of one cycle; [] if there is none."""
    try:
        TopologicalSorter(uses).prepare()
    except CycleError as error:
        return [path.name for path in error.args[1]]
    return []


def test_no_circles(tmp_path):
    """No cycles between files, not even through imports inside functions or for type checkers."""
    assert circle(USES) == []
    (tmp_path / "plugin").mkdir()
    a, b = tmp_path / "plugin/a.py", tmp_path / "plugin/b.py"
    b.write_text("from .a import f")
    paths = {"tsm.plugin.a": a, "tsm.plugin.b": b}
    for late in ("if TYPE_CHECKING:", "def g():"):
        a.write_text(f"{late}\n    from .b import g")
        assert {*circle(all_uses(paths, tmp_path))} == {"a.py", "b.py"}


def test_every_python_file_is_looked_at():
    """Each Python file is in a level, is a test, or is in a folder outside the levels that nothing imports."""
    beside = {"tests", "examples", "docs", "src"}
    for path in ROOT.rglob("*.py"):
        parts = path.relative_to(ROOT).parts
        if parts[0].startswith((".", "build")) or parts[0] in {*PACKAGES, *beside}:
            continue
        assert parts == ("cpp", "src", "core", "build_unicode.py"), path  # writes a header


def full_folders(root: Path) -> list[str]:
    """The folders with more source files than a reader takes in at a glance, tests included."""
    count: Counter[Path] = Counter()
    for top in root.iterdir():
        if top.is_dir() and not top.name.startswith((".", "build")):
            found = [path.parent for path in top.rglob("*") if path.name.endswith(SOURCE_FILES)]
            count.update(folder.relative_to(root) for folder in found)
    return sorted(str(folder) for folder, files in count.items() if files > MOST_FILES)


def test_no_folder_is_a_mere_list(tmp_path):
    assert full_folders(ROOT) == []
    for kind in ("py", "cc"):
        folder = tmp_path / "tests" / kind
        folder.mkdir(parents=True)
        for i in range(MOST_FILES):
            (folder / f"{i}.{kind}").touch()
        (folder / "data.json").touch()
    assert full_folders(tmp_path) == []
    (tmp_path / "tests/py/one_more.h").touch()
    assert full_folders(tmp_path) == ["tests/py"]


def test_cells_data_and_commands_need_no_torch_to_import():
    """This includes everything that they import in turn, and the commands in pyproject.toml."""
    paths = {str(p.relative_to(ROOT)) for kind in TORCH_FREE for p in ROOT.glob(kind)}
    named = {path for path in paths if "torch" in path}
    assert named and paths >= LAYERS_THEMSELVES
    modules = {
        "tsm." + path.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
        for path in paths - named - LAYERS_THEMSELVES
    }
    scripts = re.findall(
        r'^tsm-\w+ = "(.+):main"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE
    )
    assert len(scripts) > 8
    code = "import sys, importlib\nsys.modules['torch'] = None\n"
    code += f"for name in {sorted(modules | {*scripts})}: importlib.import_module(name)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_no_module_takes_the_name_of_what_its_package_gives():
    """Loading a module sets it as an attribute of its package, which would hide a function of the same name.

    This is safe if the package imports the function from that module, because the function is then set last.
    """
    for folder in PACKAGES:
        for package in (ROOT / folder).rglob("__init__.py"):
            modules = {p.stem for p in package.parent.iterdir() if p.suffix == ".py" or p.is_dir()}
            for node in ast.parse(package.read_text()).body:
                names = {a.asname or a.name for a in getattr(node, "names", [])}
                if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                    names = {node.name}
                if isinstance(node, ast.ImportFrom) and node.module:
                    names -= {node.module}
                elif isinstance(node, (ast.Import, ast.ImportFrom)):
                    continue  # of modules
                assert not names & modules, f"{package.relative_to(ROOT)}: {names & modules}"


def test_nothing_imports_a_bare_package():
    for folder in (*PACKAGES, "tests", "examples"):
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
        ("from ..cells import lstm", "tsm.plugin.cells.lstm"),
        ("from torch import nn", "torch"),
    ],
)
def test_every_way_to_import_is_noticed(tmp_path, line, module):
    path = tmp_path / "plugin" / "models" / "planted.py"
    path.parent.mkdir(parents=True)
    path.write_text(f"{line}\ndef late():\n    {line}\n")
    assert list(imports(path, tmp_path)) == [(module, True), (module, False)]


def included(text: str) -> list[str]:
    """The folder of every include of a tsm header; ".." for a path that leaves its folder."""
    paths = [p.split("/") for p in re.findall(r'# *include *[<"]([^>"]+)[>"]', text)]
    ours = {name.split("/")[0] for name in CPP} | {".."}
    folders = [".." if ".." in parts else "/".join(parts[:-1]) for parts in paths]
    return [folder for folder in folders if folder.split("/")[0] in ours]


def test_every_way_to_include_is_noticed():
    lines = '#include "../kernels/error.h"\n#include "x/../../kernels/error.h"\n'
    lines += '#include "kernels/error.h"\n# include <kernels/cpu/error.h>\n'
    assert included(lines) == ["..", "..", "kernels", "kernels/cpu"]
    assert included('#include "error.h"\n#include <sys/stat.h>\n#include <cmath>\n') == []


def cpp_files(folder: Path) -> list[Path]:
    found = sorted(path for path in folder.iterdir() if path.name.endswith(CPP_FILES))
    assert found, f"no C++ file in {folder}"
    return found


def test_cpp_levels():
    seen = 0
    for name, allowed in CPP.items():
        for path in cpp_files(CPP_FOLDERS[name]):
            for include in included(path.read_text()):
                seen += 1
                assert include in allowed, f"{path.relative_to(ROOT)} includes {include}/"
    assert seen > 200


def test_training_and_streaming_are_apart():
    """Training and streaming do not use each other, not even through another folder."""

    def reached(name: str) -> set[str]:
        return {name}.union(*(reached(used) for used in CPP[name] - {name}))

    def is_training(name: str) -> bool:
        return "train" in name.split("/")

    def is_streaming(name: str) -> bool:
        return name.endswith("/stream") or name.startswith(("engine", "c_api"))

    training, streaming = [*filter(is_training, CPP)], [*filter(is_streaming, CPP)]
    assert len(training) == 5 and len(streaming) > 5
    for names, apart in ((training, is_streaming), (streaming, is_training)):
        for name in names:
            assert not [*filter(apart, reached(name))], name


def test_every_file_of_cpp_is_of_a_kind_that_is_looked_at():
    """Otherwise, files with a new extension would be skipped silently."""
    kinds = {path.name.partition(".")[2] for path in (ROOT / "cpp" / "src").rglob("*.*")}
    assert {f".{kind}" for kind in kinds} - {".py"} <= set(CPP_FILES)  # .py: writes a header
