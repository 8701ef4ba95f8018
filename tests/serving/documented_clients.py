"""The clients of docs/serving.md, as a reader would paste them: `ask`, `send` and `talk`."""

from __future__ import annotations

import ast
from typing import Any

from documented import ROOT, blocks

PAGE = ROOT / "docs" / "serving.md"
DEFINED = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.Assign)


def clients(netloc: str = "localhost:8080") -> dict[str, Any]:
    """The functions defined on the page, by name, for the server at `netloc`; requests at module level are left
    out."""
    space: dict[str, Any] = {}
    for block in blocks(PAGE):
        if block.language != "python":
            continue
        tree = ast.parse(block.code.replace("localhost:8080", netloc))
        if not any(isinstance(node, ast.FunctionDef) for node in tree.body):
            continue  # not a client: it may need packages that are not installed here
        kept = [node for node in tree.body if isinstance(node, DEFINED) and not _asks(node)]
        exec(compile(ast.Module(kept, []), block.where, "exec"), space)
    return space


def _asks(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign) and any(isinstance(n, ast.Call) for n in ast.walk(node))
