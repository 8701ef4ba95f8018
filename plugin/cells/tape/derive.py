"""Programs derived from programs: the derivative of a tape, its time-invariant part, its gates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .ops import PRIMITIVES
from .record import Recorder, Symbol
from .tape import Literal, Ref, Tape


class _Reduced(Recorder):
    """Simplifies the results of the differentiation rules while recording them.

    -(-x) becomes x. x + -y becomes x - y, for which there are fused instructions. y / (a / b) / b, which comes
    from the logarithm of a quotient, becomes y / a.
    """

    def emit(self, op: str, *args: Any) -> Symbol:
        if op == "neg" and (negated := self._args_of(args[0], "neg")):
            return Symbol(self, *negated)
        if op == "add":
            for x, y in (args, args[::-1]):
                negated = self._args_of(y, "neg")
                if negated and self.symbol(x).ref != Literal(0.0):
                    return super().emit("sub", x, Symbol(self, *negated))
        if op == "div" and (outer := self._args_of(args[0], "div")):
            y, quotient = (Symbol(self, ref) for ref in outer)
            inner = self._args_of(quotient, "div")
            if inner and inner[1] == self.symbol(args[1]).ref:
                return super().emit("div", y, Symbol(self, inner[0]))
        return super().emit(op, *args)

    def _args_of(self, value: Any, op: str) -> tuple[Ref, ...] | None:
        """The arguments of the operation that produced the value if that operation is `op`, else None."""
        ref = self.symbol(value).ref
        if isinstance(ref, int) and self.nodes[ref].op == op:
            return self.nodes[ref].args
        return None


def differentiate(tape: Tape, wrt: Iterable[str]) -> Tape:
    """Reverse mode: reads the tape's inputs and `d.<output>`, computes `d.<input>` for each input in `wrt`.

    It recomputes the forward values it needs, so that only inputs have to be stored.
    """
    wrt = list(wrt)
    wanted: set[Ref] = {*wrt, *tape.dependents(wrt)}
    recorder = _Reduced()
    values: dict[Ref, Symbol] = {}
    adjoints: dict[Ref, Symbol] = {}

    def collect(ref: Ref, gradient: Symbol) -> None:
        if ref in wanted:
            adjoints[ref] = adjoints[ref] + gradient if ref in adjoints else gradient

    for number, node in enumerate(tape.nodes):
        values[number] = recorder.emit(node.op, *(_value(recorder, values, a) for a in node.args))
    for name, ref in tape.outputs.items():
        collect(ref, recorder.symbol(f"d.{name}"))
    for number in range(len(tape.nodes) - 1, -1, -1):
        if number not in adjoints:
            continue
        node = tape.nodes[number]
        rule = PRIMITIVES[node.op].derivative
        if rule is None:
            raise ValueError(f"{node.op} has no derivative: second derivatives are not available")
        arguments = tuple(_value(recorder, values, a) for a in node.args)
        gradients = rule(recorder, arguments, values[number], adjoints[number])
        for ref, gradient in zip(node.args, gradients, strict=True):
            collect(ref, gradient)
    names = {label: values[number] for number, label in tape.names.items()}
    return recorder.tape({f"d.{name}": adjoints.get(name, 0.0) for name in wrt}, names)


def hoist(tape: Tape) -> tuple[Tape, Tape]:
    """Splits a tape into (prepare, step). `prepare` runs once per chunk: it depends only on vectors and
    constants.

    `step` reads output `p` of `prepare` as its input `q.p`.
    """
    inputs = tape.inputs()
    vectors = sorted(i for i in inputs if i.startswith("v."))
    varying = tape.dependents(i for i in inputs if not i.startswith(("v.", "k.")))
    with_vector = tape.dependents(vectors)
    fixed = with_vector - varying
    read = {a for n in varying for a in tape.nodes[n].args} | set(tape.outputs.values())
    crossing: list[Ref] = [r for r in [*vectors, *sorted(fixed)] if r in read]
    label = {ref: _label(tape, ref) for ref in crossing}

    before, after = Recorder(), Recorder()
    made: dict[Ref, Symbol] = {}
    moved: dict[Ref, Symbol] = {ref: after.symbol(f"q.{label[ref]}") for ref in crossing}
    for number, node in enumerate(tape.nodes):
        # Values computed from constants alone are recorded in both programs; each then drops those it does not
        # need.
        sides = [(before, made)] if number not in varying else []
        sides += [(after, moved)] if number not in fixed else []
        for target, known in sides:
            known[number] = target.emit(node.op, *(_value(target, known, a) for a in node.args))
    prepare = before.tape({label[ref]: _value(before, made, ref) for ref in crossing})
    names = {name: moved[n] for n, name in tape.names.items() if n in moved}
    step = after.tape({s: _value(after, moved, ref) for s, ref in tape.outputs.items()}, names)
    return prepare, step


def activate(tape: Tape, backward: Tape, gates: Iterable[str]) -> tuple[Tape, Tape, Tape]:
    """Returns (activate, tape, backward). From each gate's input, `activate` computes the one value that the
    other two programs read.

    For example sigmoid(z_f): its slope is a function of its value, so backward can use the saved value. The
    other two read its output `f` as their input `a.f`. If they read several functions of z_f, the value is z_f
    itself.
    """
    outputs: dict[str, Ref] = {}
    moved: dict[Ref, str] = {}
    moved_back: dict[Ref, str] = {}
    for gate in gates:
        there: Ref = f"z.{gate}"
        back: Ref = there
        while True:
            read, again = _only_reader(tape, there), _only_reader(backward, back)
            if read is None or again is None or tape.nodes[read].op != backward.nodes[again].op:
                break
            there, back = read, again
        outputs[gate], moved[there], moved_back[back] = there, f"a.{gate}", f"a.{gate}"
    return (
        Tape(tape.nodes, outputs, tape.names).pruned(),
        tape.reading(moved),
        backward.reading(moved_back),
    )


def _only_reader(tape: Tape, ref: Ref) -> int | None:
    """The node that reads `ref`, if it is the only one and `ref` is its only argument."""
    readers = [n for n, node in enumerate(tape.nodes) if ref in node.args]
    if len(readers) != 1 or ref in tape.outputs.values() or tape.nodes[readers[0]].args != (ref,):
        return None
    return readers[0]


def _label(tape: Tape, ref: Ref) -> str:
    """The name of a value outside the loop: that of the vector or, for a computed value, the one used in the
    cell's source."""
    if isinstance(ref, int):
        return tape.names.get(ref, f"q{ref}")
    return str(ref).removeprefix("v.")


def _value(recorder: Recorder, known: Mapping[Ref, Symbol], ref: Ref) -> Symbol:
    if isinstance(ref, Literal):
        return recorder.symbol(ref.value)
    return recorder.symbol(ref) if isinstance(ref, str) and ref not in known else known[ref]
