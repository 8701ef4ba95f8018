"""The requests that a session has completed: the ids of the last few, and the answer to the last one.

Each id is stored with a digest of its request; one per line, the newest first. In the place of an answer that
is longer than a state, the state before its request is kept, from which the request computes the answer again.
So a session holds at most two states, however long its answers are. An empty line before the ids says so.
"""

from __future__ import annotations

from typing import Any

from ..store.base import Row
from ..transport.problems import Problem

KEPT = 16


class Before(bytes):
    """The state before a request, from which its answer can be computed again."""


def answered(row: Row, request_id: str) -> bytes | None:
    """The answer given the first time, or the state Before; None if the session does not know the request."""
    if not request_id or not row.request_id:
        return None
    done = row.request_id.split("\n")
    if request_id == done[0]:
        return row.answer
    if done[0] == "" and request_id == done[1]:
        return Before(row.answer)
    name = _name(request_id)
    if name not in map(_name, done):
        return None
    what = "done, and its answer is not kept" if request_id in done else "the id of another request"
    raise Problem(409, f'request_id "{name}" was {what}', position=row.position)


def remembered(row: Row, request_id: str, answer: bytes, before: bytes) -> dict[str, Any]:
    """The fields of a row after a request; `before` is the state before it."""
    if not request_id:
        return {}
    done = [line for line in row.request_id.split("\n") if line]
    is_long = len(answer) > len(before)
    lines = [*[""] * is_long, request_id, *done[: KEPT - 1]]
    return {"request_id": "\n".join(lines), "answer": before if is_long else answer}


def _name(request_id: str) -> str:
    return request_id.rpartition(" ")[0]
