"""labels.txt: the names of a model's outputs, one per line, starting at output 0, escaped as in dict.txt.

A data folder stores them in meta.json, a checkpoint contains this file, and a .tsm file has the tensor
text.labels. If the outputs are numbers instead of classes, their names are in targets.txt and text.targets,
which say so to whoever reads the model: without them, outputs are logits.
columns.txt and text.columns name the values of a step, if the data was a table.
"""

from __future__ import annotations

from collections.abc import Sequence

from .vocab import escape, unescape

LABELS = "labels.txt"
TARGETS = "targets.txt"  # names of the outputs if they are numbers
COLUMNS = "columns.txt"  # names of the inputs
MAX_LABELS = 1 << 16


def dump_labels(names: Sequence[str]) -> bytes:
    """The bytes of labels.txt."""
    return "".join(f"{escape(name)}\n" for name in names).encode()


def load_labels(data: bytes, where: str, count: int) -> list[str]:
    """The names in labels.txt; there must be `count` different ones."""
    try:
        *lines, rest = data.decode().split("\n")
        names = [unescape(line) for line in lines]
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
    if rest:
        raise ValueError(f"{where}: cut short (the last line has no newline)")
    check_labels(names, count, where)
    return names


def numbered(count: int) -> list[str]:
    """What outputs without names are called: y0, y1, ..."""
    return [f"y{i}" for i in range(count)]


def other_targets(names: Sequence[str] | None, others: Sequence[str] | None) -> bool:
    """Whether a model's targets are others, or in another order, than those of a folder. y0, y1, ... may stand
    for no names, so they fit as many others, unless one is in both."""
    if not names or not others or [*names] == [*others]:
        return False
    unnamed = numbered(len(names)) in ([*names], [*others])
    return not unnamed or len(names) != len(others) or bool({*names} & {*others})


def places(wanted: Sequence[str], there: Sequence[str], lacks: str) -> list[int]:
    """The index of each wanted name among those that are there. lacks: the beginning of the error."""
    index = {name: i for i, name in enumerate(there)}
    missing = [name for name in wanted if name not in index]
    if missing:
        listed = [", ".join(names[:10]) + ", ..." * (len(names) > 10) for names in (missing, there)]
        raise ValueError(f"{lacks}: {listed[0]}; there are {listed[1]}")
    return [index[name] for name in wanted]


def check_labels(names: object, count: int | None, where: str) -> None:
    """Raises ValueError unless `names` is a list of `count` different names."""
    fits = isinstance(names, list) and all(isinstance(n, str) and n for n in names)
    if not fits or len(set(names)) != len(names) or len(names) != count:  # type: ignore[call-overload, arg-type]
        shown = repr(names)
        raise ValueError(
            f"{where}: labels are {shown[:80]}{'...' * (len(shown) > 80)}; accepted: {count} "
            "different names"
        )
