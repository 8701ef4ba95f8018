"""The sessions of a server, in this process."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tsm.runtime.serving.session.sessions import Sessions
from tsm.runtime.serving.store.base import StateStore
from tsm.runtime.serving.store.commits import Commits
from tsm.runtime.serving.streams.models import Models, Source
from tsm.runtime.serving.streams.steps import parse
from tsm.runtime.serving.transport.limits import Keeping, Limits


@asynccontextmanager
async def sessions_of(
    path: object, store: StateStore, limits: Limits | None = None, users: int = 1, **keeping: Any
) -> AsyncIterator[Sessions]:
    """Those of a server with the model `m`, or with a dict of models. A store in memory outlives it, as files
    do."""
    if not store.durable:
        store.close = lambda: None
    limits = limits or Limits()
    paths = path if isinstance(path, dict) else {"m": path}
    models = Models([Source(name, str(path)) for name, path in paths.items()], limits, "float32", 1)
    sessions = Sessions(models, Commits(store), limits, Keeping(**keeping), lambda: users)
    await sessions.room.sweep()
    yield sessions
    await sessions.writes.settle_all()
    await models.close()
    await sessions.commits.close()


async def ask(sessions: Sessions, user: str, name: str, action: str = "feed", **values: Any) -> Any:
    """The answer to a step."""
    more = {key: values.pop(key) for key in ("start", "end") if key in values}
    step = parse(action, values or {"tokens": [1]}, sessions.limits)._replace(**more)
    return json.loads(await sessions.step(user, name, step))
