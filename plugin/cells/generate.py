"""`make cells`: generates source files from the cells and primitives.

cpp/src/cells/generated    a C++ header per element-wise cell, all.h that lists them, primitives.h
export/FORMAT.md           its table of operations
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from . import CELLS, Cell
from .tape import print_cpp, print_primitives

HEADERS, FORMAT = Path("cpp/src/cells/generated"), Path("export/FORMAT.md")
_TABLE = re.compile(r"(<!-- table: operations -->\n).*?(<!-- end -->)", re.DOTALL)


def cells() -> list[type[Cell]]:
    """The built-in element-wise cells."""
    known = (CELLS.get(name) for name in CELLS)
    package = Cell.__module__.rpartition(".")[0]
    return [c for c in known if c.elementwise and c.__module__.startswith(package)]


def files(root: Path) -> dict[Path, str]:
    """Path -> contents of all generated files in the source tree `root`."""
    listing = [
        "// Generated from plugin/cells by `make cells`. Do not edit.",
        "// clang-format off",
        "#pragma once",
        *(f'#include "cells/generated/{c.name}.h"' for c in cells()),
        "",
        "// X(cell) for every cell, in the order of their names.",
        "#define TSM_FOR_EACH_CELL(X) " + " ".join(f"X({c.name})" for c in cells()),
        "",
    ]
    page = (root / FORMAT).read_text(encoding="utf-8")
    table = print_primitives.table()
    return {
        **{HEADERS / f"{c.name}.h": print_cpp.header(c) for c in cells()},
        HEADERS / "all.h": "\n".join(listing),
        HEADERS / "primitives.h": print_primitives.header(),
        FORMAT: _TABLE.sub(lambda found: f"{found[1]}{table}\n{found[2]}", page),
    }


def stale(root: Path) -> list[Path]:
    """The generated files of `root` that are missing, out of date, or belong to no cell."""
    wanted = files(root)
    found = [p.relative_to(root) for p in (root / HEADERS).glob("*.h")]
    differing = [
        path
        for path, text in wanted.items()
        if not (root / path).is_file() or (root / path).read_text(encoding="utf-8") != text
    ]
    return sorted({*differing, *found} - ({*wanted} - {*differing}))


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description="Write the files that are generated from the cells."
    )
    parser.add_argument("--root", type=Path, default=Path(), help="root of a source tree of tsm")
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit with code 1 if a file is stale"
    )
    args = parser.parse_args(argv)
    if not (args.root / HEADERS).is_dir() or not (args.root / FORMAT).is_file():
        print(f"tsm: no {HEADERS} and {FORMAT} in {args.root.resolve()}", file=sys.stderr)
        return 2
    paths = stale(args.root)
    names = ", ".join(map(str, paths))
    if args.check:
        print(
            f"stale: {names}; run `make cells`" if paths else "all generated files are up to date"
        )
        return 1 if paths else 0
    wanted = files(args.root)
    for path in paths:
        if path in wanted:
            (args.root / path).write_text(wanted[path], encoding="utf-8")
        else:
            (args.root / path).unlink()
    print(f"{len(wanted)} generated files, changed: {names or 'none'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
