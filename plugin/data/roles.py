"""roles.txt: which columns of the training data named the sequence and held dt or the time, one per line.

    sequence NAME | dt NAME | time NAME          NAME is escaped as in dict.txt

A data folder stores them in meta.json, a checkpoint contains this file, and a .tsm file has the tensor
text.roles. tsm-predict reads a table's columns of these names in the same way. The array dt of a .npz file
counts as a column.
"""

from __future__ import annotations

from collections.abc import Mapping

from .vocab import escape, unescape

ROLES = "roles.txt"
ROLE_NAMES = ("sequence", "dt", "time")
TIMES = {"dt", "time"}  # of which a table has one


class NoTimeSteps(UserWarning):
    """Warning that a model which was trained with time steps is given none."""


def no_time_steps(what: str, model: object, roles: Mapping[str, str]) -> str:
    """The text of the warning; "" if the model was trained without time steps. what: what has none."""
    times = [name for role, name in roles.items() if role in TIMES]
    if not times:
        return ""
    return f"{what}, so every step lasts 1; {model} was trained with times in {times[0]!r}"


def dump_roles(roles: Mapping[str, str]) -> bytes:
    """The bytes of roles.txt. roles: role -> column."""
    lines = [f"{role} {escape(roles[role])}\n" for role in ROLE_NAMES if role in roles]
    return "".join(lines).encode()


def load_roles(data: bytes, where: str) -> dict[str, str]:
    """Parses the bytes of roles.txt; only what `dump_roles` writes is accepted."""
    try:
        *lines, rest = data.decode().split("\n", len(ROLE_NAMES))
        roles = {role: unescape(name) for role, name in (line.split(" ") for line in lines)}
    except ValueError:
        raise _refused(data, where) from None
    check_roles(roles, where)
    if rest or dump_roles(roles) != data:
        raise _refused(data, where)
    return roles


def check_roles(roles: object, where: str) -> None:
    """Checks the entry of a meta.json."""
    if not isinstance(roles, dict) or not {*roles} <= {*ROLE_NAMES} or {*roles} >= TIMES:
        raise _refused(roles, where)
    if not all(type(name) is str and name for name in roles.values()):
        raise _refused(roles, where)


def _refused(value: object, where: str) -> ValueError:
    return ValueError(
        f"{where} is {repr(value)[:80]}; accepted: a column for sequence, and one for dt or time"
    )
