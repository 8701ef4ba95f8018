"""Tapes as Python source that torch.jit.script and torch.export can read."""

import functools
import linecache
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import torch  # noqa: F401  read by the sources
from torch import Tensor  # noqa: F401

from ...plugin.cells.tape.tape import Ref, Tape

OPERATORS: dict[str, str] = {
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "div": "{0} / {1}",
    "neg": "-{0}",
    "exp": "torch.exp({0})",
    "log": "torch.log({0})",
    "sigmoid": "torch.sigmoid({0})",
    "tanh": "torch.tanh({0})",
}
"""Each primitive in torch."""
SIMPLE: dict[str, str] = {
    "abs": "torch.abs({0})",
    "clip": "torch.clamp({0}, {1}, {2})",
    "sinh": "torch.sinh({0})",
    "cosh": "torch.cosh({0})",
    "power": "torch.pow({0}, {1})",
    "at_least": "torch.clamp({0}, min={1})",
    "maximum": "torch.maximum({0}, {1})",
    "is_at_most": "({0} <= {1}).to({0}.dtype)",
    "row_max": "torch.amax({0}, -1, keepdim=True)",
    "row_sum": "torch.sum({0}, -1, keepdim=True)",
}
"""Each simple operation of plugin/cells/tape/rows.py."""


def node_lines(program: Tape, written: Callable[[Ref], str], whose: str) -> Iterator[str]:
    """One line of source per node. written: returns the source text of a reference."""
    known = OPERATORS | SIMPLE
    for number, node in enumerate(program.nodes):
        if node.op not in known:
            raise ValueError(
                f"{whose}: primitive {node.op!r} has no torch form; accepted: {', '.join(known)}"
            )
        # A negative number as an argument keeps its parentheses.
        arguments = [w if not w.startswith("-") else f"({w})" for w in map(written, node.args)]
        yield f"{written(number)} = {known[node.op].format(*arguments)}"


@functools.cache
def compiled(title: str, source: str) -> dict[str, Any]:
    """The names that a source defines; cached, so that torch.jit compiles each class only once.

    torch.jit reads a function's source from linecache, as tracebacks do.
    """
    file = f"<{title}: {zlib.crc32(source.encode()):08x}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    made: dict[str, Any] = {}
    exec(compile(source, file, "exec"), globals(), made)  # it uses torch and Tensor of this module
    return made
