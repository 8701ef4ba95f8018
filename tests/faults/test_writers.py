"""Everything is written through plugin/common/atomic.py, except for the files listed here with a reason."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HOME = {"plugin/common/atomic.py", "plugin/data/staged_folder.py"}
WRITING = {
    "os": {"rename", "replace", "link", "truncate", "ftruncate", "write", "open"},
    "np": {"save", "savez", "savez_compressed", "savetxt"},
    "torch": {"save"},
    "shutil": {"copy", "copy2", "copyfile", "copytree", "move"},
}
METHODS = {"write_text", "write_bytes", "tofile", "savefig", "rename", "symlink_to"}


def calls(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, function) of every call that may write a named file."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        function = node.func
        if isinstance(function, ast.Name) and function.id == "open" and _writes(node, 1):
            yield node.lineno, "open"
        elif isinstance(function, ast.Attribute):
            owner = function.value.id if isinstance(function.value, ast.Name) else ""
            if owner in WRITING:
                if function.attr in WRITING[owner] and not _only_reads(node):
                    yield node.lineno, f"{owner}.{function.attr}"
            elif function.attr in METHODS or (function.attr == "open" and _writes(node, 0)):
                yield node.lineno, function.attr


def _only_reads(call: ast.Call) -> bool:
    """os.open(path, os.O_RDONLY)"""
    return len(call.args) > 1 and ast.unparse(call.args[1]) == "os.O_RDONLY"


def _writes(call: ast.Call, place: int) -> bool:
    given = [*call.args[place : place + 1], *(k.value for k in call.keywords if k.arg == "mode")]
    return any(
        isinstance(mode, ast.Constant)
        and isinstance(mode.value, str)
        and mode.value.strip("rwaxbt+") == ""
        and set(mode.value) & set("wax+")
        for mode in given
    )


def found() -> dict[str, set[str]]:
    out: dict[str, set[str]] = {}
    for folder in ("plugin", "export", "runtime", "src/tsm"):
        for path in (ROOT / folder).rglob("*.py"):
            name = path.relative_to(ROOT).as_posix()
            if "src/tsm/" in name and path.resolve() != path.absolute():
                continue  # a symlink into another folder
            writing = {what for _, what in calls(ast.parse(path.read_text()))}
            if writing:
                out[name] = writing
    return out


def test_nobody_else_writes():
    there = {name: calls for name, calls in found().items() if name not in HOME}
    assert there == {name: calls for name, (calls, _) in ELSEWHERE.items()}


def test_the_search_sees_what_it_should():
    for text in (
        "open('x', 'w')", "open('x', mode='ab')", "path.open('wb')", "Path('x').write_text('')",
        "os.replace(a, b)", "np.save('x', a)", "shutil.move(a, b)", "figure.savefig(path)",
    ):  # fmt: skip
        assert list(calls(ast.parse(text))), text
    for text in (
        "open('x')", "open('x', 'rb')", "path.open()", "text.replace('a', 'b')", "os.open(path, os.O_RDONLY)",
    ):  # fmt: skip
        assert not list(calls(ast.parse(text))), text


IN_STAGE = "into the hidden folder of an export, which is fsynced as a whole"
NOWHERE = "/dev/null, for a reader that is gone"
IN_MEMORY = "into memory or an atomic_file"
ELSEWHERE: dict[str, tuple[set[str], str]] = {
    "plugin/cells/generate.py": (
        {"write_text"},
        "sources of this repository, made again by make cells",
    ),
    "export/entry.py": ({"os.rename", "os.replace"}, "from the stage to its place, then fsynced"),
    "export/onnx/file.py": ({"open", "rename", "write_bytes"}, IN_STAGE),
    "export/verify/checks.py": ({"np.savez"}, IN_MEMORY),
    "export/common/seal.py": ({"open", "write_bytes", "write_text"}, IN_STAGE),
    "export/triton/repository.py": ({"shutil.copyfile", "write_text"}, IN_STAGE),
    "plugin/common/style.py": ({"savefig"}, IN_MEMORY),
    "plugin/command/command.py": ({"os.open"}, NOWHERE),
    "plugin/cli/train.py": ({"os.open"}, NOWHERE),
    "plugin/data/build/reviews.py": ({"np.save"}, IN_MEMORY),
    "plugin/reproduce/figures.py": ({"savefig"}, IN_MEMORY),
    "plugin/reproduce/history.py": (
        {"open"},
        "a log that grows; half a line at its end is dropped",
    ),
    "plugin/reproduce/stand_in.py": ({"write_bytes", "write_text"}, "into a temporary folder"),
    "plugin/train/checkpoint.py": ({"torch.save"}, IN_MEMORY),
    "plugin/train/lock.py": ({"open"}, "an empty file"),
    "plugin/train/progress.py": ({"open"}, "a log that grows"),
    "runtime/serving/store/sqlite.py": ({"os.open"}, "an empty file, which SQLite then writes"),
}
