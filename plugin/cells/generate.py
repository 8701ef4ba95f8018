"""`make cells`: write every element-wise cell as a C++ header into `cpp/src/cells/generated`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from . import CELLS, Cell
from .tape.print_cpp import header

Headers = dict[str, str]


def headers() -> Headers:
    """File name -> text for all element-wise cells that are part of tsm, and the list of them."""
    cells = [CELLS.get(name) for name in CELLS]
    ours = [
        c
        for c in cells
        if c.elementwise and c.__module__.startswith(Cell.__module__.rpartition(".")[0])
    ]
    listing = [
        "// Generated from plugin/cells by `make cells`. Do not edit.",
        "// clang-format off",
        "#pragma once",
        *(f'#include "cells/generated/{c.name}.h"' for c in ours),
        "",
        "// X(cell) for every cell, in the order of their names.",
        "#define TSM_FOR_EACH_CELL(X) " + " ".join(f"X({c.name})" for c in ours),
        "",
    ]
    return {**{f"{c.name}.h": header(c) for c in ours}, "all.h": "\n".join(listing)}


def stale(folder: Path) -> list[str]:
    """Names of the generated files in `folder` that are missing, out of date, or without a cell."""
    wanted = headers()
    found = {p.name for p in folder.glob("*.h") if p.read_text().startswith("// Generated")}
    differing = [n for n, text in wanted.items() if n in found and (folder / n).read_text() != text]
    return sorted(differing + list(found ^ set(wanted)))


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Write the generated C++ headers of all cells.")
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("cpp/src/cells/generated"),
        help="folder of the headers",
    )
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit 1 when a header is stale"
    )
    args = parser.parse_args(argv)
    if not args.output.is_dir():
        print(
            f"tsm: no folder {args.output}; run this in the root of a source tree", file=sys.stderr
        )
        return 2
    names = stale(args.output)
    if args.check:
        print(
            f"stale: {', '.join(names)}; run `make cells`"
            if names
            else "all headers are up to date"
        )
        return 1 if names else 0
    wanted = headers()
    for name in names:
        if name in wanted:
            (args.output / name).write_text(wanted[name])
        else:
            (args.output / name).unlink()
    print(f"{len(wanted)} headers in {args.output}, changed: {', '.join(names) or 'none'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
