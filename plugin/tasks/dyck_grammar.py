"""Sequences of the Dyck-2 grammar (Suzgun et al. 2019; MTS 3.1.2, A.10), by leftmost expansion.

    S -> ( S )  1/4     S -> [ S ]  1/4     S -> S S  1/4     S -> nothing  1/4

Symbols: 0 (, 1 ), 2 [, 3 ]. Only sequences of 2 to `longest` symbols count, each once. On average an S is
replaced by one S, so very long derivations are common. A derivation is dropped when it grows too long.

All derivations of a round run in parallel, each with its own stack of pending items: an S, or a closing bracket
of an earlier rule.
"""

from __future__ import annotations

from ..common.lazy import np
from ..common.rng import words

S = 4  # the nonterminal, besides the symbols 0..3
ROUND = 4096  # derivations per round


def unique_sequences(count: int, longest: int, seed: int) -> list[np.ndarray]:
    """The first `count` different sequences of the grammar, uint8, in order of appearance."""
    found: dict[bytes, None] = {}
    index = 0
    while len(found) < count:
        symbols, lengths = derive(draw_rules(longest, seed, index), longest)
        for row, length in zip(symbols[lengths > 0], lengths[lengths > 0].tolist(), strict=True):
            found.setdefault(row[:length].tobytes())
        index += 1
    return [np.frombuffer(text, dtype=np.uint8) for text in list(found)[:count]]


def draw_rules(longest: int, seed: int, index: int) -> np.ndarray:
    """uint8 [ROUND, R]: rules 0 (S), 1 [S], 2 SS, 3 nothing, for the S of each derivation in order.

    R = 2 longest + 112 is enough: half of the rules add two symbols, so a derivation that is still open after R
    rules is too long (for longest = 200 the probability of an error is below 1e-40).
    """
    rules = -(-(2 * longest + 112) // 32) * 32
    packed = words(ROUND * rules // 32, seed, "dyck2", index=index).reshape(ROUND, -1, 1)
    bits = packed >> np.arange(0, 64, 2, dtype=np.uint64)
    return (bits & np.uint64(3)).astype(np.uint8).reshape(ROUND, rules)


def derive(rules: np.ndarray, longest: int) -> tuple[np.ndarray, np.ndarray]:
    """Symbols uint8 [N, longest] and lengths [N]. A length of 0 means empty, too long or unfinished."""
    n, most = rules.shape
    symbols = np.zeros((n, longest), dtype=np.uint8)
    lengths = np.zeros(n, dtype=np.int64)
    stack = np.full((n, most + 2), S, dtype=np.uint8)
    height = np.ones(n, dtype=np.int64)  # height of the stack
    size = np.zeros(n, dtype=np.int64)  # symbols written, plus pending closing brackets
    written = np.zeros(n, dtype=np.int64)
    used = np.zeros(n, dtype=np.int64)  # rules used
    live = np.arange(n)
    while len(live):
        top = stack[live, height[live] - 1]
        height[live] -= 1
        nonterminal = top == S
        closing = live[~nonterminal]
        symbols[closing, written[closing]] = top[~nonterminal]
        written[closing] += 1

        expanding = live[nonterminal]
        rule = rules[expanding, used[expanding]]
        used[expanding] += 1
        opening, kind = expanding[rule < 2], rule[rule < 2]
        size[opening] += 2
        fits = size[opening] <= longest
        opening, kind = opening[fits], kind[fits]
        symbols[opening, written[opening]] = 2 * kind
        written[opening] += 1
        for item in (2 * kind + 1, S):  # the closing bracket is pushed below the inner S
            stack[opening, height[opening]] = item
            height[opening] += 1
        twice = expanding[rule == 2]
        for _ in range(2):
            stack[twice, height[twice]] = S
            height[twice] += 1

        done = height[live] == 0
        lengths[live[done]] = written[live[done]]
        live = live[~done & (size[live] <= longest) & (used[live] < most)]
    return symbols, lengths


def closing_types(sequence: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The right answer after each symbol, and the distance from each closing symbol to its opening one.

    int8 [T]: the bracket that may close next, 0 round, 1 square, -1 none.
    int32 [T]: at a closing symbol the distance to its opening one, else 0.
    """
    answer = np.full(len(sequence), -1, dtype=np.int8)
    distance = np.zeros(len(sequence), dtype=np.int32)
    open_at: list[int] = []
    kinds = (sequence // 2).tolist()
    for t, symbol in enumerate(sequence.tolist()):
        if symbol % 2 == 0:
            open_at.append(t)
        else:
            distance[t] = t - open_at.pop()
        if open_at:
            answer[t] = kinds[open_at[-1]]
    return answer, distance
