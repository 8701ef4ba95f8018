"""As tests/README.md says, the tests in tests/conformance run over the registry."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tsm.plugin.cells import list_cells

FILES = sorted((Path(__file__).parents[1] / "conformance").glob("test_*.py"))


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_a_test_over_the_registry_names_no_cell(path, request):
    arguments = request.config.pluginmanager.get_plugin(str(path.parents[1] / "conftest.py"))
    cells, registry = set(list_cells()), set(arguments.CELL_ARGUMENTS)
    tests = [
        node
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    ]
    over_all = [test for test in tests if registry & {a.arg for a in test.args.args}]
    assert over_all, f"{path.name}: no test takes its cells from the registry"
    for test in over_all:
        literals = {node.value for node in ast.walk(test) if isinstance(node, ast.Constant)}
        assert not cells & literals, f"{path.name}: {test.name} names {cells & literals}"
