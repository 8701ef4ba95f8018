"""tsm.runtime is for servers: it does not load torch, it loads little, and its documentation runs."""

from __future__ import annotations

import doctest
import inspect
import subprocess
import sys

import tsm
import tsm.runtime
from tsm.runtime import _core, isa_levels


def modules_after(code: str) -> set[str]:
    program = f"import sys\n{code}\nprint(*sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return {name.split(".")[0] for name in result.stdout.split()}


def test_streaming_loads_numpy_and_the_standard_library_only(files):
    bare = modules_after("")
    code = "from tsm.runtime import Model\n"
    code += f"Model.load({str(files['lm'])!r}).create_stream().feed([1, 2])"
    loaded = modules_after(code) - bare - set(sys.stdlib_module_names)
    assert {"numpy", "tsm"} <= loaded
    assert loaded - {"numpy", "tsm"} <= {"__editable___tsm_finder", "_tsm_editable", "mkl"}


def test_import_alone_does_not_even_load_numpy():
    assert "numpy" not in modules_after("import tsm.runtime")


def test_documentation_runs(files, monkeypatch):
    monkeypatch.chdir(files["lm"].parent)
    files["lm"].with_name("model.tsm").write_bytes(files["lm"].read_bytes())
    result = doctest.testmod(tsm.runtime, optionflags=doctest.ELLIPSIS)
    assert result.attempted > 10 and result.failed == 0


def test_every_public_name_is_documented():
    for name in tsm.runtime.__all__:
        value = getattr(tsm.runtime, name)
        assert value.__doc__, name
        assert getattr(value, "__module__", "tsm.runtime") == "tsm.runtime", name


def test_stub_matches_the_module():
    """The stub lists what the compiled classes have, and nothing else."""
    import ast
    from pathlib import Path

    tree = ast.parse(Path(inspect.getfile(tsm.runtime)).with_name("_core.pyi").read_text())
    classes = {n.name: n for n in tree.body if isinstance(n, ast.ClassDef)}
    for name in ("Cancel", "Layer", "Model", "PoolEvent", "Stream", "StreamPool"):
        listed = {f.name for f in classes[name].body if isinstance(f, ast.FunctionDef)}
        listed -= {"__init__", "__enter__", "__exit__"}
        there = {n for n in vars(getattr(_core, name)) if not n.startswith("_")}
        assert listed == there, name
    functions = {n.name for n in tree.body if isinstance(n, ast.FunctionDef)}
    there = {n for n in dir(_core) if not n.startswith("_") and callable(getattr(_core, n))}
    missing = there - functions - set(classes)
    assert not missing


def test_one_version():
    assert _core.__version__ == tsm.__version__


def test_levels():
    levels = isa_levels()
    assert levels[0] == "scalar" and len(set(levels)) == len(levels)
    assert _core.active_level() in levels


def test_the_environment_chooses_the_level():
    for level in isa_levels():
        code = "from tsm.runtime import _core; print(_core.active_level())"
        result = subprocess.run(
            [sys.executable, "-c", code],
            env={"TSM_ISA": level, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        )
        assert result.stdout.strip() == level
