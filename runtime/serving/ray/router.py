"""Which replica gets a request: the one that a consistent hash of the session's id names.

It has the session's stream in memory already. Any other replica would be right, too, through the store; so a
replica that joins or leaves moves its share of the sessions, and nothing else happens.
"""

from __future__ import annotations

import re
from typing import Any

SESSION = re.compile(rb"/v1/sessions/([A-Za-z0-9_.~-]{1,64})")


def session_of(request: object) -> str | None:
    """The session in the path of a request, HTTP or WebSocket, that Ray's proxy has packed.

    The bytes are searched and not unpickled: they may come from elsewhere. The path is before the headers.
    """
    found = SESSION.search(request) if isinstance(request, bytes) else None
    return found[1].decode() if found else None


def __getattr__(name: str) -> Any:
    """`SessionRouter`, made when Ray asks for it: without Ray this file can be imported all the same."""
    if name != "SessionRouter":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ray.serve.experimental.consistent_hash_router import ConsistentHashRouter

    class SessionRouter(ConsistentHashRouter):  # type: ignore[misc]
        """Ray's router, whose key is a header that browsers cannot set, with the session as the key."""

        def _routing_key(self, pending_request: Any) -> Any:
            arguments = pending_request.args if pending_request is not None else ()
            session = session_of(arguments[0]) if arguments else None
            return session or super()._routing_key(pending_request)

    globals()[name] = SessionRouter
    return SessionRouter
