"""A cell's program as data: an ordered list of operations, each with its arguments.

The C++ and ONNX printers read it, a model file contains it, and `run` executes it over any `ops`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .ops import ARITHMETIC, Array


@dataclass(frozen=True)
class Literal:
    """A number written in the program."""

    value: float


Ref = int | str | Literal
"""An argument: the number of an earlier node, an input ("z.f", "s.c", "v.p", "k.eps", "dt") or a literal."""


@dataclass(frozen=True)
class Node:
    op: str
    args: tuple[Ref, ...]


@dataclass(frozen=True)
class Tape:
    """A straight-line program. `outputs` maps names to references; `names` are the author's names of values."""

    nodes: tuple[Node, ...]
    outputs: dict[str, Ref]
    names: dict[int, str] = field(default_factory=dict)

    def inputs(self) -> set[str]:
        """The inputs that the program actually reads."""
        refs = [a for node in self.nodes for a in node.args] + list(self.outputs.values())
        return {a for a in refs if isinstance(a, str)}

    def run(self, ops: Any, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Executes the program with any `ops`."""
        values: list[Array] = []

        def value(ref: Ref) -> Array:
            if isinstance(ref, Literal):
                return ref.value
            return values[ref] if isinstance(ref, int) else inputs[ref]

        for node in self.nodes:
            function: Callable[..., Array] = ARITHMETIC.get(node.op) or getattr(ops, node.op)
            values.append(function(*map(value, node.args)))
        return {name: value(ref) for name, ref in self.outputs.items()}

    def dependents(self, inputs: Iterable[str]) -> set[int]:
        """The nodes that depend on one of `inputs`, directly or indirectly."""
        reached: set[Ref] = set(inputs)
        numbers: set[int] = set()
        for number, node in enumerate(self.nodes):
            if reached.intersection(node.args):
                reached.add(number)
                numbers.add(number)
        return numbers

    def reading(self, inputs: Mapping[Ref, str]) -> Tape:
        """The same program with some values replaced by inputs: ref -> name of the input."""

        def moved(ref: Ref) -> Ref:
            return inputs.get(ref, ref)

        return Tape(
            tuple(Node(node.op, tuple(map(moved, node.args))) for node in self.nodes),
            {name: moved(ref) for name, ref in self.outputs.items()},
            self.names,
        ).pruned()

    def pruned(self) -> Tape:
        """The same program without the nodes that no output needs."""
        live = {ref for ref in self.outputs.values() if isinstance(ref, int)}
        for number in range(len(self.nodes) - 1, -1, -1):
            if number in live:
                live.update(a for a in self.nodes[number].args if isinstance(a, int))
        new = {old: i for i, old in enumerate(sorted(live))}

        def moved(ref: Ref) -> Ref:
            return new[ref] if isinstance(ref, int) else ref

        nodes = (self.nodes[n] for n in sorted(live))
        return Tape(
            tuple(Node(node.op, tuple(map(moved, node.args))) for node in nodes),
            {name: moved(ref) for name, ref in self.outputs.items()},
            {new[n]: name for n, name in self.names.items() if n in live},
        )
