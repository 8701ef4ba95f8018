"""Print an element-wise cell as a C++ header.

A header holds one struct, named after the cell, whose functions are templates over a math policy M:
`prepare` and `prepare_backward` (once per chunk), `activate`, `forward` and `backward` (each step).
The code is meant to be read: it uses the author's names, M::fma for multiply-adds, and no temporary that is
used only once.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Iterable, Mapping

from .derive import activate, differentiate, hoist
from .ops import DEFINED
from .program import program_hash
from .record import Formula
from .tape import Literal, Ref, Tape

# fmt: off
CPP_KEYWORDS = {
    "alignas", "alignof", "and", "and_eq", "asm", "auto", "bitand", "bitor", "bool", "break",
    "case", "catch", "char", "class", "co_await", "co_return", "co_yield", "compl", "concept",
    "const", "const_cast", "consteval", "constexpr", "constinit", "continue", "decltype",
    "default", "delete", "do", "double", "dynamic_cast", "else", "enum", "explicit", "export",
    "extern", "false", "final", "float", "for", "friend", "goto", "if", "inline", "int", "long",
    "mutable", "namespace", "new", "noexcept", "not", "not_eq", "nullptr", "operator", "or",
    "or_eq", "override", "private", "protected", "public", "register", "reinterpret_cast",
    "requires", "return", "short", "signed", "sizeof", "static", "static_assert", "static_cast",
    "struct", "switch", "template", "this", "thread_local", "throw", "true", "try", "typedef",
    "typeid", "typename", "union", "unsigned", "using", "virtual", "void", "volatile", "wchar_t",
    "while", "xor", "xor_eq",
}
# fmt: on
"""A cell's name becomes the name of a C++ struct."""
SYMBOL = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
"""The operations of two arguments."""
# Parameters of the printed functions, and the keywords of C++.
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


class Printer:
    """Prints one tape as the lines of one function body."""

    def __init__(self, tape: Tape, inputs: Mapping[str, str]) -> None:
        self.tape = tape
        self.inputs = inputs
        self.variables = self._variables()
        self.uses: Counter[Ref] = Counter(tape.outputs.values())
        for node in tape.nodes:
            self.uses.update(node.args)
        self.names = self._temporary_names()

    def _variables(self) -> dict[str, str]:
        """The C++ name of each input. A constant `a` must not clash with the parameter a."""
        names: dict[str, str] = {"dt": "dt"}
        for name in self.inputs:
            wish = variable(name)
            while name != "dt" and (wish in RESERVED or wish in names.values()):
                wish += "_in"
            names[name] = wish
        return names

    def _temporary_names(self) -> dict[int, str]:
        taken = {*self.variables.values(), *RESERVED}
        names: dict[int, str] = {}
        for number in range(len(self.tape.nodes)):
            if self.uses[number] > 1:
                wish = self.tape.names.get(number, f"t{len(names)}")
                names[number] = wish if wish not in taken else f"{wish}_new"
                taken.add(names[number])
        return names

    def lines(self, targets: Mapping[str, str]) -> list[str]:
        """Unpacks the inputs that are read, computes, and stores each output in its target."""
        read = self.tape.inputs()
        text = [
            f"const V {self.variables[n]} = {where};"
            for n, where in self.inputs.items()
            if n in read and n != "dt"
        ]
        text += self.temporaries()
        for output, target in targets.items():
            text.append(f"{target} = {self.written(self.tape.outputs[output])};")
        return text

    def temporaries(self) -> list[str]:
        """The values that become temporaries: those that are used more than once."""
        return [
            f"const V {name} = {self._expression(number)[0]};"
            for number, name in self.names.items()
        ]

    def written(self, ref: Ref, binding: int = _SUM) -> str:
        if isinstance(ref, Literal):
            return f"V({ref.value:.17g})"
        if isinstance(ref, str):
            return self.variables[ref]
        if ref in self.names:
            return self.names[ref]
        text, strength = self._expression(ref)
        return text if strength >= binding else f"({text})"

    def _product(self, ref: Ref) -> tuple[Ref, Ref] | None:
        """The factors of `ref` if it is a product that nothing else uses, so it can become part of an fma."""
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
                        f"M::fma({self.written(pair[0])}, {self.written(pair[1])}, {self.written(a[rest])})",
                        _ATOM,
                    )
        if node.op == "sub":
            if pair := self._product(a[1]):
                return (
                    f"M::fma(-{self.written(pair[0], _ATOM)}, {self.written(pair[1])}, {self.written(a[0])})",
                    _ATOM,
                )
            if pair := self._product(a[0]):
                return (
                    f"M::fma({self.written(pair[0])}, {self.written(pair[1])}, -{self.written(a[1], _ATOM)})",
                    _ATOM,
                )
        if node.op == "neg":
            return f"-{self.written(a[0], _ATOM)}", _PRODUCT
        if node.op in SYMBOL:
            strength = _SUM if node.op in ("add", "sub") else _PRODUCT
            # order kept
            left, right = self.written(a[0], strength), self.written(a[1], strength + 1)
            return f"{left} {SYMBOL[node.op]} {right}", strength
        policy = "Defined<M>" if node.op in DEFINED else "M"
        return f"{policy}::{node.op}({', '.join(self.written(x) for x in a)})", _ATOM


def variable(name: str) -> str:
    """ "z.f" -> z_f, "k.eps" -> eps, "dt" -> dt."""
    return name.removeprefix("k.").removeprefix("q.").replace(".", "_")


def _slots(prefix: str, array: str, names: Iterable[str]) -> dict[str, str]:
    return {f"{prefix}.{name}": f"{array}[{i}]" for i, name in enumerate(names)}


def _function(name: str, arguments: str, body: list[str]) -> list[str]:
    """A member function; unused arguments are left unnamed."""
    words = set("".join(c if c.isalnum() or c == "_" else " " for c in " ".join(body)).split())
    shown = []
    for argument in arguments.split(", "):
        kind, _, label = argument.rpartition(" ")
        shown.append(argument if label in words else f"{kind} /*{label}*/")
    start = f"  TSM_CELL static void {name}({', '.join(shown)}) {{"
    lines = [start, *(f"    {line}" for line in body), "  }"] if body else [start + "}"]
    return ["  template <class M, class V = typename M::V>", *lines]


def header(cell: type[Formula]) -> str:
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
        '#include "cells/generated/primitives.h"',
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
            Printer(prepare, {**vectors, **constants}).lines(
                {p: f"q[{i}]" for i, p in enumerate(prepared)}
            ),
        ),
        *_function(
            "activate",
            "const V* z, V* a",
            Printer(activation, gates).lines({g: f"a[{i}]" for i, g in enumerate(cell.gates)}),
        ),
        *_function(
            "forward",
            "const V* a, const V* s, const V* q, const V* k, V dt, V* out",
            Printer(step, inputs).lines({s: f"out[{i}]" for i, s in enumerate(cell.states)}),
        ),
        *_function(
            "backward",
            "const V* a, const V* s, const V* q, const V* k, V dt, const V* d, V* dz, V* ds, V* dq",
            Printer(backward, {**inputs, **incoming}).lines(gradients),
        ),
        *_function(
            "prepare_backward",
            "const V* v, const V* k, const V* dq, V* dv",
            Printer(
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
