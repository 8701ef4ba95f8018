"""A process that tests kill: it writes states one after the other and reports when each is stored."""

from __future__ import annotations

import os
import signal
import sys

from tsm.runtime.serving.store.base import Put, Row
from tsm.runtime.serving.store.registry import open_store
from tsm.runtime.serving.store.sqlite import SqliteStore


def state(position: int) -> bytes:
    return position.to_bytes(8, "little") * 200


def main(address: str, last: int) -> None:
    """If the store has a separate commit, dies in write `last`, after its statements and before their
    commit."""
    store, version = open_store(address), 0
    for position in range(1, 1 << 30):
        if position == last and isinstance(store, SqliteStore):
            store.db.set_trace_callback(
                lambda sql: os.kill(os.getpid(), signal.SIGKILL) if sql == "COMMIT" else None
            )
        row = Row(position, state(position), version=version)
        (version,) = store.apply([Put("a", row, history=4)])
        print(position, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
