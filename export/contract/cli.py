"""tsm-cell: checks a cell of your own.

    tsm-cell check cell.py      the cells that this file registers
    tsm-cell check FOLDER       the cells of a --user-dir folder
    tsm-cell check lstm         a cell of tsm, or of an installed package

One line per check: -[✓] passed, -[x] failed, -[ ] skipped, with what was measured. Exit code 0: none failed.
1: a check failed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...plugin.command.bar import bar
from ...plugin.command.command import UsageError, command
from ...plugin.command.flags import load_plugins, make_parser, strictly
from ...plugin.user_dir import import_file, import_user_dir

if TYPE_CHECKING:
    from .checks import Result

MARKS = {True: "✓", False: "x", None: " "}


@command("tsm-cell")
def main(argv: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    if not argv or argv[0].startswith("-"):
        strictly(
            make_parser("tsm-cell", __doc__, "tsm-cell check CELL [--json]"), argv or ["--help"]
        )
    if argv[0] != "check":
        raise UsageError(f"{argv[0]!r} is not something that tsm-cell does; accepted: check")
    return check(strictly(check_parser(), argv[1:]))


def check_parser() -> argparse.ArgumentParser:
    p = make_parser("tsm-cell check", __doc__, "tsm-cell check CELL [--json]")
    p.add_argument("cell", metavar="CELL", help="a Python file, a folder, or the name of a cell")
    p.add_argument("--json", action="store_true", help="print JSON")
    return p


def check(args: argparse.Namespace) -> int:
    """`tsm-cell check`."""
    names = cells_of(args.cell)
    from ...plugin.cells import get_cell
    from .checks import check_cell

    results: dict[str, list[Result]] = {name: [] for name in names}
    for name in names:
        for result in check_cell(get_cell(name), _progress):
            results[name].append(result)
            if not args.json:
                print(line(name, result), flush=True)
        if not args.json:
            print(summary(name, results[name]))
    if args.json:
        rows = [{"cell": name, **asdict(r)} for name in names for r in results[name]]
        print(json.dumps(rows, indent=2))
    return int(any(r.passed is False for every in results.values() for r in every))


def cells_of(what: str) -> list[str]:
    """The names of the cells to check, from a file, a folder or a name."""
    from ...plugin.cells import get_cell, list_cells

    load_plugins(None)
    path = Path(what)
    if not path.exists():
        if path.suffix == ".py" or len(path.parts) > 1:
            raise FileNotFoundError(
                f"{what} does not exist; accepted: a Python file, a folder or a cell"
            )
        return [get_cell(what).name]
    before = set(list_cells())
    if path.is_dir():
        modules = import_user_dir(path)
    elif path.suffix == ".py":
        modules = [import_file(path)]
    else:
        raise UsageError(f"{what} is not a Python file; accepted: *.py, a folder or a cell")
    names = [n for n in list_cells() if n not in before or get_cell(n).__module__ in modules]
    if not names:
        raise UsageError(
            f'{what} registers no cell; accepted: a file with a class under @register_cell("NAME") '
            "(docs/plugins.md)"
        )
    return names


@contextmanager
def _progress(name: str, steps: int) -> Iterator[Any]:
    """A bar for the checks that take long."""
    if not steps:
        yield lambda done: None
        return
    with bar(name, steps, "steps") as update:
        yield update


def line(cell: str, result: Result) -> str:
    skipped = "skipped: " if result.passed is None else ""
    return f"-[{MARKS[result.passed]}] {cell}: {result.check}: {skipped}{result.note}"


def summary(cell: str, results: Sequence[Result]) -> str:
    """The line after all checks of a cell."""
    counts = {
        word: sum(r.passed is passed for r in results)
        for word, passed in (("passed", True), ("failed", False), ("skipped", None))
    }
    return f"{cell}: " + ", ".join(f"{n} {word}" for word, n in counts.items() if n)


if __name__ == "__main__":
    sys.exit(main())
