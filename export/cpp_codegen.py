"""Print every element-wise cell as a C++ header: `make cells` writes them to `cpp/src/cells`.

A header holds one struct, named like the cell, whose functions are templates over a math policy M:
`prepare` (once a chunk), `activate`, `forward` and `backward` (each step), `prepare_backward` (once a chunk).
The text is made to be read: the author's names, no temporary that is used once, multiply-adds as M::fma.
"""

from __future__ import annotations

import argparse
import inspect
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from ..plugin.cells import CELLS, Cell
from ..plugin.cells.base import CPP_KEYWORDS
from ..plugin.cells.derive import activate, differentiate, hoist
from ..plugin.cells.program import program_hash
from ..plugin.cells.tape import Literal, Ref, Tape

Headers = dict[str, str]
_SYMBOL = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
# Parameters of the printed functions, besides the words of the language.
RESERVED = CPP_KEYWORDS | {
    "M",
    "V",
    "a",
    "z",
    "s",
    "q",
    "k",
    "v",
    "d",
    "dt",
    "dz",
    "ds",
    "dq",
    "dv",
    "out",
}
_SUM, _PRODUCT, _ATOM = 0, 1, 2  # how tightly a printed expression binds


class _Printer:
    """Prints one tape as the lines of one function body."""

    def __init__(self, tape: Tape, inputs: Mapping[str, str]) -> None:
        self.tape = tape
        self.inputs = inputs
        self.variables = self._variables()
        self.uses: Counter[Ref] = Counter(tape.outputs.values())
        for node in tape.nodes:
            self.uses.update(node.args)
        self.names = self._temporaries()

    def _variables(self) -> dict[str, str]:
        """What each input is called; a constant `a` is not the parameter a."""
        names: dict[str, str] = {"dt": "dt"}
        for name in self.inputs:
            wish = variable(name)
            while name != "dt" and (wish in RESERVED or wish in names.values()):
                wish += "_in"
            names[name] = wish
        return names

    def _temporaries(self) -> dict[int, str]:
        taken = {*self.variables.values(), *RESERVED}
        names: dict[int, str] = {}
        for number in range(len(self.tape.nodes)):
            if self.uses[number] > 1:
                wish = self.tape.names.get(number, f"t{len(names)}")
                names[number] = wish if wish not in taken else f"{wish}_new"
                taken.add(names[number])
        return names

    def lines(self, targets: Mapping[str, str]) -> list[str]:
        """Unpack the inputs that are read, compute, and store each output in its target."""
        read = self.tape.inputs()
        text = [
            f"const V {self.variables[n]} = {where};"
            for n, where in self.inputs.items()
            if n in read and n != "dt"
        ]
        for number, name in self.names.items():
            text.append(f"const V {name} = {self._expression(number)[0]};")
        for output, target in targets.items():
            text.append(f"{target} = {self._ref(self.tape.outputs[output])};")
        return text

    def _ref(self, ref: Ref, binding: int = _SUM) -> str:
        if isinstance(ref, Literal):
            return f"V({ref.value:.17g})"
        if isinstance(ref, str):
            return self.variables[ref]
        if ref in self.names:
            return self.names[ref]
        text, strength = self._expression(ref)
        return text if strength >= binding else f"({text})"

    def _product(self, ref: Ref) -> tuple[Ref, Ref] | None:
        """The factors, where `ref` is a product that nothing else uses: it can become part of an fma."""
        if isinstance(ref, int) and ref not in self.names and self.tape.nodes[ref].op == "mul":
            return self.tape.nodes[ref].args  # type: ignore[return-value]
        return None

    def _expression(self, number: int) -> tuple[str, int]:
        node = self.tape.nodes[number]
        a = node.args
        if node.op == "add":
            for factor, rest in ((0, 1), (1, 0)):
                if pair := self._product(a[factor]):
                    return (
                        f"M::fma({self._ref(pair[0])}, {self._ref(pair[1])}, {self._ref(a[rest])})",
                        _ATOM,
                    )
        if node.op == "sub":
            if pair := self._product(a[1]):
                return (
                    f"M::fma(-{self._ref(pair[0], _ATOM)}, {self._ref(pair[1])}, {self._ref(a[0])})",
                    _ATOM,
                )
            if pair := self._product(a[0]):
                return (
                    f"M::fma({self._ref(pair[0])}, {self._ref(pair[1])}, -{self._ref(a[1], _ATOM)})",
                    _ATOM,
                )
        if node.op == "neg":
            return f"-{self._ref(a[0], _ATOM)}", _PRODUCT
        if node.op in _SYMBOL:
            strength = _SUM if node.op in ("add", "sub") else _PRODUCT
            left, right = self._ref(a[0], strength), self._ref(a[1], strength + 1)  # order kept
            return f"{left} {_SYMBOL[node.op]} {right}", strength
        return f"M::{node.op}({', '.join(self._ref(x) for x in a)})", _ATOM


def variable(name: str) -> str:
    """ "z.f" -> z_f, "k.eps" -> eps, "dt" -> dt."""
    return name.removeprefix("k.").removeprefix("q.").replace(".", "_")


def _slots(prefix: str, array: str, names: Iterable[str]) -> dict[str, str]:
    return {f"{prefix}.{name}": f"{array}[{i}]" for i, name in enumerate(names)}


def _function(name: str, arguments: str, body: list[str]) -> list[str]:
    """A member function; an argument that its body does not mention loses its name."""
    words = set("".join(c if c.isalnum() or c == "_" else " " for c in " ".join(body)).split())
    shown = []
    for argument in arguments.split(", "):
        kind, _, label = argument.rpartition(" ")
        shown.append(argument if label in words else f"{kind} /*{label}*/")
    start = f"  TSM_CELL static void {name}({', '.join(shown)}) {{"
    lines = [start, *(f"    {line}" for line in body), "  }"] if body else [start + "}"]
    return ["  template <class M, class V = typename M::V>", *lines]


def header(cell: type[Cell]) -> str:
    """The C++ header of one cell."""
    prepare, step = hoist(cell.tape())
    prepared = list(prepare.outputs)
    vectors = _slots("v", "v", cell.vectors)
    constants = _slots("k", "k", cell.constants)
    gates, states = _slots("z", "z", cell.gates), _slots("s", "s", cell.states)
    reads = sum(1 << i for i, s in enumerate(states) if s in step.inputs())
    backward = differentiate(step, [*gates, *states, *(f"q.{p}" for p in prepared)])
    activation, step, backward = activate(step, backward, cell.gates)
    active = _slots("a", "a", cell.gates)
    inputs = {**active, **states, **_slots("q", "q", prepared), **constants, "dt": "dt"}
    gradients = {
        **{f"d.{n}": f"d{where}" for n, where in gates.items()},
        **{f"d.{n}": f"d{where}" for n, where in states.items()},
        **{f"d.q.{p}": f"dq[{i}]" for i, p in enumerate(prepared)},
    }
    incoming = _slots("d", "d", cell.states)
    summary = inspect.cleandoc(cell.__doc__ or cell.name).splitlines()
    source = cell.__module__.rpartition(".")[2]
    lines = [
        f"// Generated from plugin/cells/{source}.py by `make cells`. Do not edit.",
        "// clang-format off",
        "//",
        *(f"// {line}".rstrip() for line in summary),
        "#pragma once",
        '#include "cells/math.h"',
        "",
        "namespace tsm::cells {",
        "",
        f"struct {cell.name} {{",
        f'  static constexpr const char* kName = "{cell.name}";',
        f"  static constexpr int kGates = {len(gates)};      // {' '.join(cell.gates)}",
        f"  static constexpr int kStates = {len(states)};     // {' '.join(cell.states)}",
        f"  static constexpr int kVectors = {len(vectors)};    // {' '.join(cell.vectors) or '-'}",
        f"  static constexpr int kPrepared = {len(prepared)};   // {' '.join(prepared) or '-'}",
        f"  static constexpr int kConstants = {len(constants)};  // {' '.join(cell.constants) or '-'}",
        f"  static constexpr bool kTakesDt = {str(cell.takes_dt).lower()};",
        f"  static constexpr unsigned long long kProgramHash = {program_hash(cell):#018x};",
        f"  static constexpr unsigned kReads = {reads:#x};  // bit i: the step reads the previous state i",
        "",
        *_function(
            "prepare",
            "const V* v, const V* k, V* q",
            _Printer(prepare, {**vectors, **constants}).lines(
                {p: f"q[{i}]" for i, p in enumerate(prepared)}
            ),
        ),
        *_function(
            "activate",
            "const V* z, V* a",
            _Printer(activation, gates).lines({g: f"a[{i}]" for i, g in enumerate(cell.gates)}),
        ),
        *_function(
            "forward",
            "const V* a, const V* s, const V* q, const V* k, V dt, V* out",
            _Printer(step, inputs).lines({s: f"out[{i}]" for i, s in enumerate(cell.states)}),
        ),
        *_function(
            "backward",
            "const V* a, const V* s, const V* q, const V* k, V dt, const V* d, V* dz, V* ds, V* dq",
            _Printer(backward, {**inputs, **incoming}).lines(gradients),
        ),
        *_function(
            "prepare_backward",
            "const V* v, const V* k, const V* dq, V* dv",
            _Printer(
                differentiate(prepare, vectors),
                {**vectors, **constants, **_slots("d", "dq", prepared)},
            ).lines({f"d.{n}": f"d{where}" for n, where in vectors.items()}),
        ),
        "};",
        "",
        "}  // namespace tsm::cells",
        "",
    ]
    return "\n".join(lines)


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
        *(f'#include "cells/{c.name}.h"' for c in ours),
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
        "--output", type=Path, default=Path("cpp/src/cells"), help="folder of the headers"
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
