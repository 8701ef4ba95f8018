"""Recording: call `cell.step` with symbols instead of numbers and store its operations as a `Tape`."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Mapping
from types import FrameType, SimpleNamespace
from typing import Any, ClassVar

from .ops import ARITHMETIC, PRIMITIVES, Array
from .tape import Literal, Node, Ref, Tape


class Formula:
    """The part of a cell that a tape records: `step`, and the names of what it reads and returns."""

    name: ClassVar[str] = ""
    gates: ClassVar[tuple[str, ...]] = ()  # blocks of z = W x + U h' + b, in storage order
    states: ClassVar[tuple[str, ...]] = ()  # "h" first: the output, which U feeds back
    vectors: ClassVar[Mapping[str, Any]] = {}  # one number per unit
    constants: ClassVar[Mapping[str, float]] = {}  # one number per layer, with its default
    takes_dt: ClassVar[bool] = False
    elementwise: ClassVar[bool] = True

    @staticmethod
    def step(ops: Any, z: Any, s: Any, v: Any, const: Any, dt: Array) -> dict[str, Array]:
        raise NotImplementedError

    @classmethod
    @functools.cache
    def tape(cls) -> Tape:
        """The recorded program. It is recorded only once."""
        return record(cls)


class Symbol:
    """A symbolic value; arithmetic on it is recorded."""

    __slots__ = ("recorder", "ref")

    def __init__(self, recorder: Recorder, ref: Ref) -> None:
        self.recorder = recorder
        self.ref = ref

    def __add__(self, other: Any) -> Symbol:
        return self.recorder.emit("add", self, other)

    def __radd__(self, other: Any) -> Symbol:
        return self.recorder.emit("add", other, self)

    def __sub__(self, other: Any) -> Symbol:
        return self.recorder.emit("sub", self, other)

    def __rsub__(self, other: Any) -> Symbol:
        return self.recorder.emit("sub", other, self)

    def __mul__(self, other: Any) -> Symbol:
        return self.recorder.emit("mul", self, other)

    def __rmul__(self, other: Any) -> Symbol:
        return self.recorder.emit("mul", other, self)

    def __truediv__(self, other: Any) -> Symbol:
        return self.recorder.emit("div", self, other)

    def __rtruediv__(self, other: Any) -> Symbol:
        return self.recorder.emit("div", other, self)

    def __neg__(self) -> Symbol:
        return self.recorder.emit("neg", self)

    def __pow__(self, power: Any) -> Symbol:
        if not isinstance(power, int) or not 1 <= power <= 16:
            raise ValueError(f"power {power!r} in a cell's program; accepted: integers 1 to 16")
        result = self
        for _ in range(power - 1):
            result = result * self
        return result

    def __bool__(self) -> bool:
        raise TypeError("a cell's program cannot branch on a value: it is recorded once")

    def __lt__(self, other: Any) -> bool:
        return bool(self)

    __le__ = __gt__ = __ge__ = __lt__


class Recorder:
    """An `ops` that writes a tape. Repeated operations are recorded once; x+0 and x*1 are simplified to x."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self._known: dict[Node, int] = {}

    def symbol(self, value: Any) -> Symbol:
        """Converts an input's name or a number to a symbol; a symbol is returned unchanged."""
        if isinstance(value, Symbol):
            return value
        return Symbol(self, value if isinstance(value, str) else Literal(float(value)))

    def emit(self, op: str, *args: Any) -> Symbol:
        symbols = [self.symbol(a) for a in args]
        refs = tuple(s.ref for s in symbols)
        if op in ("add", "mul"):
            neutral = Literal(0.0 if op == "add" else 1.0)
            if neutral in refs:
                return symbols[1 - refs.index(neutral)]
        node = Node(op, refs)
        if node not in self._known:
            self._known[node] = len(self.nodes)
            self.nodes.append(node)
        return Symbol(self, self._known[node])

    def __getattr__(self, op: str) -> Callable[..., Symbol]:
        if op not in PRIMITIVES or op in ARITHMETIC:
            known = [p for p, rule in PRIMITIVES.items() if rule.derivative and p not in ARITHMETIC]
            raise AttributeError(
                f"ops has no primitive {op!r}; a program may use {', '.join(known)}"
            )
        return lambda *args: self.emit(op, *args)

    def tape(self, outputs: Mapping[str, Any], names: Mapping[str, Symbol] | None = None) -> Tape:
        """Ends the recording: keeps the nodes that the outputs need and attaches the author's names."""
        refs = {name: self.symbol(value).ref for name, value in outputs.items()}
        labels = {v.ref: name for name, v in (names or {}).items() if isinstance(v.ref, int)}
        return Tape(tuple(self.nodes), refs, labels).pruned()


def record(cell: type[Formula]) -> Tape:
    """The tape of `cell.step`; its outputs are the cell's states, in order."""
    recorder = Recorder()

    def space(prefix: str, names: Iterable[str]) -> SimpleNamespace:
        return SimpleNamespace(**{n: recorder.symbol(f"{prefix}.{n}") for n in names})

    result, names = called(
        cell.step,
        recorder,
        space("z", cell.gates),
        space("s", cell.states),
        space("v", cell.vectors),
        space("k", cell.constants),
        recorder.symbol("dt" if cell.takes_dt else 1.0),
    )
    if set(result) != set(cell.states):
        got, declared = sorted(result), sorted(cell.states)
        raise ValueError(
            f"cell {cell.__name__}: step returns {got}, the declared states are {declared}"
        )
    return recorder.tape({s: result[s] for s in cell.states}, names)


def called(step: Callable[..., Any], *args: Any) -> tuple[Any, dict[str, Symbol]]:
    """step(*args), and its local variables on return, whose names become those of the tape's nodes."""
    names: dict[str, Symbol] = {}

    def watch(frame: FrameType, event: str, _: Any) -> None:
        if event == "return" and frame.f_globals is not globals():  # skip our own operators
            names.update({n: v for n, v in frame.f_locals.items() if isinstance(v, Symbol)})

    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        return step(*args), names
    finally:
        sys.setprofile(before)
