"""Chooses the replica for a request by a consistent hash of the session's id.

So requests reach the replica that already has the session's stream in memory. Any other replica could answer
too, by reading the store. When a replica joins or leaves, only its share of the sessions moves.
"""

from __future__ import annotations

import re
from typing import Any

SESSION = re.compile(rb"/v1/sessions/([A-Za-z0-9_.~-]{1,64})")


def session_of(request: object) -> str | None:
    """The session in the path of an HTTP or WebSocket request that Ray's proxy has pickled.

    The bytes are searched, not unpickled, because they may be hostile. The first match is in the path, which
    comes before the headers.
    """
    found = SESSION.search(request) if isinstance(request, bytes) else None
    return found[1].decode() if found else None


def __getattr__(name: str) -> Any:
    """Defines `SessionRouter` when Ray asks for it, so that this file can be imported without Ray."""
    if name != "SessionRouter":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ray.serve.experimental.consistent_hash_router import ConsistentHashRouter

    class SessionRouter(ConsistentHashRouter):  # type: ignore[misc]
        """Ray's router with the session as its key; its usual key is a header that browsers cannot set."""

        def _routing_key(self, pending_request: Any) -> Any:
            arguments = pending_request.args if pending_request is not None else ()
            session = session_of(arguments[0]) if arguments else None
            return session or super()._routing_key(pending_request)

    globals()[name] = SessionRouter
    return SessionRouter
