"""Initialisers: where the gates start. They work with every cell that has the gates they set.

An initialiser gives the starting *value* v of a gate as its logit log(v / (1 - v)). The inverse of the
activation turns it into a bias, so a fast gate and a sigmoid gate start at the same value.

    name             gates       logit of the starting value
    default          -           none: biases stay U(-1/sqrt n, 1/sqrt n), n = H (nru: n = inputs of the map)
    forget_one       f (r)       1 (Gers et al. 2000); a refine gate starts at logit 0
    chrono           f (i)       log u, u ~ U(1, t_max - 1); i at -log u (Tallec & Ollivier 2018)
    uniform_gate     f (r)       logit(u), u ~ U(1/H, 1 - 1/H); r at the negated logit (Gu et al. 2020)
    multi_timescale  f (i)       -log(expm1(1/T)) for the unit's timescale T; i at the negated logit; frozen
                                 (Mahto et al. 2021), or with freeze_all the whole bias, as their code does

Gates in parentheses are set if the cell has them with values between 0 and 1 (the input gate of slstm is
exponential, and its normaliser already gives inputs the weight 1 - f). It is an error if the cell lacks a gate
that is not in parentheses. A power-law cell has no forget gate and forgets as its reset gate r opens. There 1 -
r, the share of the age that survives, starts where f would. In a GRU the update gate u takes the role of f.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .cells import Cell
from .registry import Registry

GateStart = dict[str, Tensor]

LOG_RANGE = 700.0  # exp(LOG_RANGE) still fits into a float64
HALVINGS = 64  # bisection steps, enough for the last bit


@dataclass(frozen=True)
class Start:
    """Logits [H] per gate in float64, for gates that a cell must have and for optional ones.

    frozen: the biases of these gates are not trained. freeze_all: the biases of all gates are not trained.
    """

    needed: GateStart = field(default_factory=dict)
    optional: GateStart = field(default_factory=dict)
    frozen: bool = False
    freeze_all: bool = False


INITIALISERS: Registry[Callable[..., Start]] = Registry("initialiser")


def list_initialisers() -> list[str]:
    return INITIALISERS.names()


def gate_biases(
    cell: type[Cell], hidden_size: int, name: str, options: Mapping[str, Any]
) -> tuple[GateStart, tuple[str, ...]]:
    """Returns the biases [H] of the gates that the initialiser sets, and the names of gates with frozen
    biases."""
    initialiser = INITIALISERS.get(name)
    try:
        start = initialiser(hidden_size, **options)
    except TypeError as error:
        takes = ", ".join(list(inspect.signature(initialiser).parameters)[1:]) or "none"
        raise ValueError(
            f"init_options = {dict(options)} of initialiser {name!r}; accepted: {takes}"
        ) from error
    start = _without_forget_gate(cell, start)
    missing = [g for g in start.needed if g not in cell.gates]
    if missing:
        raise ValueError(
            f"initialiser {name!r} sets gate {missing[0]!r}, which cell {cell.name!r} lacks "
            f"(it has {', '.join(cell.gates)})"
        )
    free = {g: x for g, x in start.optional.items() if g in cell.gates and cell.gate_bias(g)}
    wanted = {**start.needed, **free}
    biases = {gate: _biases(cell, gate, logits, name) for gate, logits in wanted.items()}
    if start.freeze_all:
        return biases, tuple(cell.gates)
    return biases, tuple(biases) if start.frozen else ()


def _without_forget_gate(cell: type[Cell], start: Start) -> Start:
    """Replaces f with u in a GRU, and with r at the negated logit in a power-law cell, so that 1 - r starts
    where f would."""
    if "f" not in start.needed or "f" in cell.gates:
        return start
    needed = {gate: logits for gate, logits in start.needed.items() if gate != "f"}
    if "age" in cell.states:
        needed["r"] = -start.needed["f"]
    elif "u" in cell.gates:
        needed["u"] = start.needed["f"]
    else:
        return start
    return replace(
        start, needed=needed, optional={g: x for g, x in start.optional.items() if g != "r"}
    )


def _biases(cell: type[Cell], gate: str, logits: Tensor, name: str) -> Tensor:
    inverse = cell.gate_bias(gate) if cell.elementwise else None
    if inverse is None:
        raise ValueError(
            f"initialiser {name!r} sets gate {gate!r}, whose activation in cell {cell.name!r} has no inverse"
        )
    try:
        biases = torch.tensor([inverse(x) for x in logits.tolist()], dtype=torch.float64)
    except OverflowError:
        biases = torch.full_like(logits, torch.inf)
    if not bool(torch.isfinite(biases.float()).all()):
        raise ValueError(
            f"initialiser {name!r}: gate {gate!r} of cell {cell.name!r} cannot start so close to 0 or 1"
        )
    return biases


@INITIALISERS.register("default")
def default(hidden_size: int) -> Start:
    return Start()


@INITIALISERS.register("forget_one")
def forget_one(hidden_size: int) -> Start:
    one = torch.ones(hidden_size, dtype=torch.float64)
    return Start({"f": one}, {"r": 0 * one})


@INITIALISERS.register("chrono")
def chrono(hidden_size: int, t_max: float) -> Start:
    if not 2 < t_max < float("inf"):
        raise ValueError(
            f"t_max = {t_max!r}; accepted: a finite number above 2 (the longest dependency, in steps)"
        )
    logits = torch.empty(hidden_size, dtype=torch.float64).uniform_(1, t_max - 1).log()
    return Start({"f": logits}, {"i": -logits})


@INITIALISERS.register("uniform_gate")
def uniform_gate(hidden_size: int) -> Start:
    edge = 1 / max(hidden_size, 3)
    logits = torch.empty(hidden_size, dtype=torch.float64).uniform_(edge, 1 - edge).logit()
    return Start({"f": logits}, {"r": -logits})


@INITIALISERS.register("multi_timescale")
def multi_timescale(
    hidden_size: int,
    alpha: float | None = None,
    timescales: Sequence[float] | None = None,
    freeze_all: bool = False,
) -> Start:
    """Takes either `alpha` (timescales from an inverse gamma distribution) or `timescales`."""
    if (alpha is None) == (timescales is None):
        raise ValueError(
            f"alpha = {alpha!r}, timescales = {timescales!r}; accepted: one of the two"
        )
    values = (
        inverse_gamma(hidden_size, alpha) if alpha is not None else np.asarray(timescales, float)
    )
    if values.shape != (hidden_size,) or not (np.isfinite(values) & (values > 0)).all():
        raise ValueError(f"timescales: accepted: {hidden_size} finite numbers above 0")
    # log(expm1(x)) = x + log(1 - e^-x), which does not overflow for a short timescale
    rate = 1 / values
    logits = torch.from_numpy(-(rate + np.log(-np.expm1(-rate))))
    return Start({"f": logits}, {"i": -logits}, frozen=True, freeze_all=freeze_all)


def inverse_gamma(count: int, alpha: float) -> np.ndarray:
    """`count` timescales at even quantiles of an inverse gamma distribution, longest first.

    P(T > t) = P(alpha, 1/t), the regularised incomplete gamma function, is inverted by bisection.
    """
    if not alpha > 0:
        raise ValueError(f"alpha = {alpha!r}; accepted: above 0")
    shares = torch.arange(1, count + 1, dtype=torch.float64) / (count + 1)
    shape = torch.full_like(shares, alpha)
    low, high = torch.full_like(shares, -LOG_RANGE), torch.full_like(shares, LOG_RANGE)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        below = torch.special.gammainc(shape, middle.exp()) < shares
        low, high = torch.where(below, middle, low), torch.where(below, high, middle)
    return np.exp(-((low + high) / 2).numpy())
