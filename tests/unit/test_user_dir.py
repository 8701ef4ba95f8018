"""Third-party plug-ins from a folder and from installed packages."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tsm.plugin.user_dir import import_user_dir

CELL = """
from tsm.plugin import register_cell
from tsm.plugin.cells import Cell

@register_cell("{name}")
class Mine(Cell):
    gates = ("g",)
    states = ("h",)

    @staticmethod
    def step(ops, z, s, v, const, dt):
        return dict(h=ops.tanh(z.g))
"""


def python(code: str, **options):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, **options)


def test_a_folder_of_files_and_a_package(tmp_path):
    loose, package = tmp_path / "loose", tmp_path / "package"
    for folder in (loose, package):
        folder.mkdir()
    (loose / "one.py").write_text(CELL.format(name="one"))
    (package / "__init__.py").write_text("from . import two")
    (package / "two.py").write_text(CELL.format(name="two"))
    code = f"""
from tsm.plugin import list_cells
from tsm.plugin.user_dir import import_user_dir
for folder in ({str(loose)!r}, {str(package)!r}, {str(loose)!r}):
    import_user_dir(folder)
print(sorted(set(list_cells()) & {{"one", "two"}}))
"""
    result = python(code)
    assert result.stdout.strip() == "['one', 'two']", result.stderr


def install(folder: Path, text: str) -> None:
    """Installs a distribution "their-cells" whose entry point "theirs" is a module with the source `text`."""
    (folder / "their_cells.py").write_text(text)
    info = folder / "their_cells-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-cells\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[tsm.plugins]\ntheirs = their_cells\n")


def test_an_installed_package_is_found_by_its_entry_point(tmp_path):
    install(tmp_path, CELL.format(name="theirs"))
    code = f"""
import sys; sys.path.insert(0, {str(tmp_path)!r})
from tsm.plugin.user_dir import load_entry_points
from tsm.plugin import list_cells
print(load_entry_points(), "theirs" in list_cells())
"""
    result = python(code)
    assert result.stdout.strip() == "['theirs'] True", result.stderr


def test_errors(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such folder"):
        import_user_dir(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="has no Python file"):
        import_user_dir(tmp_path / "empty")
    clash = tmp_path / "clash"
    clash.mkdir()
    (clash / "again.py").write_text(CELL.format(name="lstm"))
    with pytest.raises(ValueError, match="cell 'lstm' is already registered"):
        import_user_dir(clash)


def test_a_broken_installed_package_is_named(tmp_path):
    install(tmp_path, CELL.format(name="theirs") + "import no_such_package\n")
    code = f"""
import sys; sys.path.insert(0, {str(tmp_path)!r})
from tsm.plugin.cli.train import main
sys.exit(main(["--list"]))
"""
    result = python(code)
    assert result.returncode == 2 and result.stderr.count("\n") == 1, result.stderr
    assert "the installed plug-in 'theirs' (their_cells) cannot be imported" in result.stderr
    assert "ModuleNotFoundError: No module named 'no_such_package'" in result.stderr


def test_a_failed_import_leaves_nothing_behind(tmp_path):
    """A second try gives the same error; once the error is fixed, all names are registered, the user's and the
    built-in ones."""
    folder = tmp_path / "broken"
    folder.mkdir()
    (folder / "__init__.py").write_text("from . import cell, last")
    (folder / "cell.py").write_text(CELL.format(name="mine") + "import tsm.plugin.tasks\n")
    (folder / "last.py").write_text("surely_not_defined\n")
    code = f"""
from pathlib import Path
from tsm.plugin import list_cells
from tsm.plugin.user_dir import import_user_dir
for _ in range(2):
    try:
        import_user_dir({str(folder)!r})
    except ValueError as error:
        print(error)
    assert "mine" not in list_cells()
Path({str(folder / "last.py")!r}).write_text("repaired = True\\n")
import_user_dir({str(folder)!r})
from tsm.plugin.tasks import TASKS
print("mine" in list_cells(), "lstm" in list_cells(), "adding" in TASKS)
"""
    result = python(code)
    first, second, names = result.stdout.splitlines()
    cause = "NameError: name 'surely_not_defined' is not defined"
    assert first == second == f"{folder / '__init__.py'} cannot be imported: {cause}"
    assert names == "True True True", result.stderr
