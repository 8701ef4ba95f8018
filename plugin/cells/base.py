"""A cell is a few declarations and one program. Every backend is derived from them.

Letters used throughout: B batch, T time, I input width, H hidden width, G gates, S states.

    @register_cell("leaky")
    class Leaky(Cell):
        gates = ("f", "g")
        states = ("h",)

        @staticmethod
        def step(ops, z, s, v, const, dt):
            f = ops.sigmoid(z.f)
            return dict(h=f * s.h + (1 - f) * ops.tanh(z.g))

`z.<gate>` are the pre-activations W x + U h' + b, `s.<state>` the previous states, `v.<vector>` per-unit
values, `const.<name>` run-time numbers, `dt` the time since the previous step. All are arrays of the same
shape.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from ..registry import Registry, unknown
from .tape.inverse import gate_bias
from .tape.ops import Array
from .tape.print_cpp import CPP_KEYWORDS
from .tape.program import MOST_NAMES
from .tape.record import Formula

CELLS: Registry[type[Cell]] = Registry("cell")


@dataclass(frozen=True)
class Vector:
    """A per-unit value v: either learned as the parameter `<name>_raw` with v = link(raw), or fixed by the
    user.

    A learned value is drawn uniformly from the range `start` (with `spread="log"` its logarithm is uniform). A
    fixed value must exceed `above`.
    """

    link: str = "sigmoid"  # or "exp", "identity"
    start: tuple[float, float] = (0.0, 1.0)
    above: float = 0.0
    spread: str = "even"  # or "log"

    def __post_init__(self) -> None:
        if self.link not in ("sigmoid", "exp", "identity"):
            raise ValueError(f"link = {self.link!r}; accepted: sigmoid, exp, identity")
        if self.spread not in ("even", "log"):
            raise ValueError(f"spread = {self.spread!r}; accepted: even, log")
        if self.spread == "log" and not self.start[0] > 0:
            raise ValueError(f"start = {self.start!r} with spread = 'log'; accepted: from above 0")

    def at(self, share: Array) -> Array:
        """The value at a fraction (0 to 1) of the range."""
        low, high = self.start
        return low * (high / low) ** share if self.spread == "log" else low + (high - low) * share


class Space:
    """Like SimpleNamespace, which torch.compile cannot trace."""

    def __init__(self, **values: Any) -> None:
        for name, value in values.items():
            setattr(self, name, value)


class Cell(Formula):
    """An element-wise cell: a formula, and what a layer has to know about it. Registered with
    `register_cell`."""

    reads: ClassVar[Mapping[str, str]] = {}  # gate -> "x" or "h" if z is only W x + b or U h' + b
    vectors: ClassVar[Mapping[str, Vector]] = {}
    bounded: ClassVar[bool] = (
        True  # for any finite z, h is bounded and no state grows faster than linearly
    )
    starts: ClassVar[Mapping[str, float]] = {}  # parameters with a fixed initial value

    @classmethod
    def options(cls) -> dict[str, Any]:
        """The options of a layer besides sizes: constants with their defaults, and vectors (None: learned)."""
        return {**cls.constants, **dict.fromkeys(cls.vectors)}

    @classmethod
    def check(cls, hidden_size: int, options: Mapping[str, Any]) -> dict[str, Any]:
        """`options` completed with the defaults; ValueError for an unknown option."""
        known = cls.options()
        for key in options:
            if key not in known:
                raise unknown(f"option of cell {cls.name!r}", key, list(known) or ["(none)"])
        full = {**known, **options}
        for name in cls.constants:
            number = isinstance(full[name], (int, float)) and not isinstance(full[name], bool)
            if not number or not math.isfinite(full[name]):
                raise ValueError(f"{name} = {full[name]!r}; accepted: a finite number")
        return full

    @classmethod
    def shortest_dt(cls, options: Mapping[str, Any]) -> float:
        """The shortest time step for which the program is meaningful."""
        return 0.0

    @classmethod
    def widths(cls, hidden_size: int, options: Mapping[str, Any]) -> dict[str, int]:
        """Width of each state."""
        return dict.fromkeys(cls.states, hidden_size)

    @classmethod
    def weights(cls, hidden_size: int, options: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
        """Shapes of the parameters that act on the states (weight_x and bias belong to the layer)."""
        rows = len(cls.gates_of("h")) * hidden_size
        return {"weight_h": (rows, hidden_size)} if rows else {}

    @classmethod
    def fan_in(
        cls, name: str, input_size: int, hidden_size: int, options: Mapping[str, Any]
    ) -> int:
        """n of U(-1/sqrt n, 1/sqrt n), from which a parameter is drawn; H as in torch's recurrent layers."""
        return hidden_size

    @classmethod
    def gates_of(cls, source: str) -> tuple[str, ...]:
        """The gates that read `source`, "x" or "h": those with rows in weight_x or weight_h."""
        return tuple(gate for gate in cls.gates if cls.reads.get(gate, source) == source)

    @classmethod
    def advance(
        cls,
        ops: Any,
        zx: Array,
        fed: Array,
        w: Mapping[str, Array],
        s: Mapping[str, Array],
        v: Mapping[str, Array],
        const: Mapping[str, Any],
        dt: Array,
    ) -> dict[str, Array]:
        """One step from zx = W x + b [B, G*H]. `fed` is s["h"] as U sees it (rounded to the weights' type).

        Here W and U have rows for every gate; if a gate does not read x (or h), its rows in W (or U) are zero.
        If no gate reads h, there is no U.
        """
        z = zx + ops.matmul(fed, ops.transpose(w["weight_h"])) if cls.gates_of("h") else zx
        width = z.shape[-1] // len(cls.gates)
        blocks = {g: z[..., i * width : (i + 1) * width] for i, g in enumerate(cls.gates)}
        numbers = {name: const[name] for name in cls.constants}
        space = Space
        return cls.step(ops, space(**blocks), space(**s), space(**v), space(**numbers), dt)

    @classmethod
    def gate_bias(cls, gate: str) -> Callable[[float], float] | None:
        """The map from the desired logit of a gate to its bias, or None if the gate has no inverse."""
        return gate_bias(cls.tape(), f"z.{gate}")


class CompositeCell(Cell):
    """A cell with more than element-wise arithmetic. It overrides widths, weights and advance."""

    elementwise = False

    @classmethod
    def combined(cls, ops: Any, w: Mapping[str, Array]) -> Mapping[str, Array]:
        """The weights, and what `advance` derives from them alone: computed once for many steps."""
        return w


C = TypeVar("C", bound=type[Cell])


def register_cell(name: str) -> Callable[[C], C]:
    """Class decorator: registers a cell as `name` after checking its declarations against its program."""

    def enter(cls: C) -> C:
        if not name.isidentifier() or not name.isascii() or name in CPP_KEYWORDS:
            raise ValueError(
                f"cell name {name!r}; accepted: an identifier that is not a C++ keyword"
            )
        if not cls.gates or not cls.states or cls.states[0] != "h":
            raise ValueError(
                f"cell {name!r}: gates and states must be declared, with states[0] = 'h'"
            )
        for sort in ("gates", "states", "vectors", "constants"):
            count = len(getattr(cls, sort))
            if count > MOST_NAMES:
                raise ValueError(f"cell {name!r}: {count} {sort}; accepted: at most {MOST_NAMES}")
        for gate, source in cls.reads.items():
            if gate not in cls.gates or source not in ("x", "h"):
                raise ValueError(
                    f"cell {name!r}: reads has {gate!r}: {source!r}; accepted: gates, each with 'x' or 'h'"
                )
        if not cls.gates_of("x"):
            raise ValueError(
                f"cell {name!r}: reads = {dict(cls.reads)}; accepted: some gate reads x"
            )
        shared = set(cls.constants) & set(cls.vectors)
        if shared:
            raise ValueError(f"cell {name!r}: {sorted(shared)} are both constants and vectors")
        cls.name = name
        if cls.elementwise:
            cls.tape()
        CELLS.register(name)(cls)
        return cls

    return enter


def get_cell(name: str) -> type[Cell]:
    """The cell that is registered as `name`."""
    return CELLS.get(name)


def list_cells() -> list[str]:
    """The names of all registered cells."""
    return CELLS.names()
