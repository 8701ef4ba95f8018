"""Prints the primitives of `ops.py` as a C++ header, and as the table in the description of model files."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from .ops import DEFINED, PRIMITIVES, Array
from .print_cpp import SYMBOL, Printer
from .program import MOST_NAMES, MOST_VALUES
from .record import called
from .rows import SimpleRecorder

OPERATIONS = [*SYMBOL, *(n for n, p in PRIMITIVES.items() if p.derivative and n not in SYMBOL)]
"""The operations of a program: first those with two arguments, then those with one."""
SLOPES = [name for name, primitive in PRIMITIVES.items() if primitive.derivative is None]


def header() -> str:
    """cells/generated/primitives.h: limits, the list, and the formulas of `Defined`."""
    names = ", ".join(OPERATIONS)
    quoted = ", ".join(f'"{name}"' for name in OPERATIONS)
    lines = [
        "// Generated from plugin/cells/tape by `make cells`. Do not edit.",
        "// clang-format off",
        "#pragma once",
        "#include <cstdint>",
        "",
        '#include "cells/math.h"',
        "",
        "namespace tsm {",
        "",
        f"constexpr int kMostNames = {MOST_NAMES};    // gates, states, vectors or constants of a cell",
        f"constexpr int kMostValues = {MOST_VALUES};  // inputs, literals and nodes of a program",
        "",
        "// What a program may consist of: operators of two numbers, functions of one.",
        f"enum class Operation : int32_t {{ {names} }};",
        f"constexpr int kOperations = {len(OPERATIONS)};",
        f"constexpr const char* kOperationNames[kOperations] = {{{quoted}}};",
        f"constexpr bool takes_two(Operation op) {{ return int(op) < {len(SYMBOL)}; }}",
        _for_each("OPERATOR", (f"{name}, {sign}" for name, sign in SYMBOL.items())),
        _for_each("FUNCTION", OPERATIONS[len(SYMBOL) :]),
        _for_each("SLOPE", SLOPES) + "  // only derivatives call them",
        "",
        "// A math policy, with the primitives that are formulas over its functions.",
        "template <class M>",
        "struct Defined : M {",
        "  using V = typename M::V;",
        "  TSM_CELL static V neg(V x) { return -x; }",
        *(line for name, formula in DEFINED.items() for line in _function(name, formula)),
        "};",
        "",
        "}  // namespace tsm",
        "",
    ]
    return "\n".join(lines)


def table() -> str:
    """A Markdown table of the operations."""
    rows = [
        f"| `{name}` | {2 if name in SYMBOL else 1} | {PRIMITIVES[name].value.replace('|', chr(92) + '|')} |"
        for name in OPERATIONS
    ]
    return "\n".join(["| operation | arguments | value |", "|---|---|---|", *rows])


def _for_each(sort: str, entries: Iterable[str]) -> str:
    return f"#define TSM_FOR_EACH_{sort}(X) " + " ".join(f"X({entry})" for entry in entries)


def _function(name: str, formula: Callable[..., Array]) -> list[str]:
    ops = SimpleRecorder()
    y, names = called(formula, ops, ops.symbol("x"))
    tape = ops.tape({"y": y}, names)
    printer = Printer(tape, {"x": "x"})
    body = [*printer.temporaries(), f"return {printer.written(tape.outputs['y'])};"]
    return [f"  TSM_CELL static V {name}(V x) {{", *(f"    {line}" for line in body), "  }"]
