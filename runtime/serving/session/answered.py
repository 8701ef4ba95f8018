"""The requests that a session has completed: the ids of the last few, and the answer to the last one.

Each id is stored with a digest of its request; one per line, the newest first.
"""

from __future__ import annotations

from typing import Any

from ..store.base import Row
from ..transport.problems import Problem

KEPT = 16


def answered(row: Row, request_id: str) -> bytes | None:
    """The answer given the first time; None if the session does not know the request."""
    if not request_id or not row.request_id:
        return None
    done = row.request_id.split("\n")
    if request_id == done[0]:
        return row.answer
    name = _name(request_id)
    if name not in map(_name, done):
        return None
    what = "done, and its answer is not kept" if request_id in done else "the id of another request"
    raise Problem(409, f'request_id "{name}" was {what}', position=row.position)


def remembered(row: Row, request_id: str, answer: bytes) -> dict[str, Any]:
    """The fields of a row after a request."""
    if not request_id:
        return {}
    before = row.request_id.split("\n") if row.request_id else []
    return {"request_id": "\n".join([request_id, *before[: KEPT - 1]]), "answer": answer}


def _name(request_id: str) -> str:
    return request_id.rpartition(" ")[0]
