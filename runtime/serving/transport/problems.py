"""Errors as problem+json (RFC 9457): a status, one sentence, and what a client needs to continue."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Any

from ... import TsmError

# kind of a TsmError -> HTTP status
KINDS = {
    "invalid argument": 400,
    "bad state": 409,
    "busy": 409,
    "full": 429,
    "closed": 503,
    "cancelled": 503,
    "deadline": 504,
    "out of memory": 507,
}


class Problem(Exception):
    """Raised to answer a request with this status; `more` holds further members of the JSON object."""

    def __init__(
        self,
        status: int,
        detail: str,
        retry_after: int | None = None,
        closes: bool = False,  # close the connection
        **more: Any,
    ) -> None:
        super().__init__(detail)
        self.status, self.detail, self.retry_after, self.more = status, detail, retry_after, more
        self.closes = closes

    @property
    def members(self) -> dict[str, Any]:
        title = HTTPStatus(self.status).phrase
        return {"title": title, "status": self.status, "detail": self.detail, **self.more}

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        if self.retry_after is None:
            return []
        return [(b"retry-after", str(self.retry_after).encode())]

    def body(self) -> bytes:
        return json.dumps(self.members).encode()


def of_core(error: TsmError) -> Problem:
    """What the compiled core refused."""
    status = KINDS.get(error.kind, 500)
    return Problem(status, str(error), retry_after=1 if status in (429, 503) else None)
