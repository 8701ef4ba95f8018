"""States in one SQLite file: WAL, synchronous FULL, a batch of operations as one transaction.

Several processes on one machine may use the file at once. When `apply` returns, its changes have been synced to
the disk.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from os import PathLike
from typing import Any

from .base import (
    Claim,
    Conflict,
    Operation,
    Past,
    Put,
    Remove,
    Result,
    Row,
    StoreError,
    StoreFull,
    StoreOfOther,
)

APPLICATION, SCHEMA = 0x74736D73, 1  # "tsms"; PRAGMA application_id and user_version
WAIT = 10.0  # seconds to wait for another process's transaction
FIELDS = "position, blob, model, fingerprint, level, request_id, answer, tail, version, epoch"
MARKS = ", ".join("?" * 11)  # for expires and FIELDS
PAST = "position, blob, model, fingerprint, level"
TABLES = f"""
PRAGMA application_id = {APPLICATION};
PRAGMA user_version = {SCHEMA};
CREATE TABLE counter (last INTEGER NOT NULL);
INSERT INTO counter VALUES (0);
CREATE TABLE stream (
    key TEXT PRIMARY KEY, expires REAL, version INTEGER NOT NULL, epoch INTEGER NOT NULL,
    position INTEGER NOT NULL, model TEXT NOT NULL, fingerprint TEXT NOT NULL, level TEXT NOT NULL,
    request_id TEXT NOT NULL, answer BLOB NOT NULL, tail BLOB NOT NULL, blob BLOB NOT NULL);
CREATE INDEX stream_expires ON stream (expires) WHERE expires IS NOT NULL;
CREATE TABLE history (
    key TEXT NOT NULL, version INTEGER NOT NULL, position INTEGER NOT NULL, model TEXT NOT NULL,
    fingerprint TEXT NOT NULL, level TEXT NOT NULL, blob BLOB NOT NULL, PRIMARY KEY (key, version));
"""


class SqliteStore:
    durable = True
    warning = ""

    def __init__(self, path: str | PathLike[str], clock: Callable[[], float] = time.time) -> None:
        self.path, self.clock = str(path), clock
        self._make()
        with self._errors():
            self.db = sqlite3.connect(
                self.path, timeout=WAIT, isolation_level=None, check_same_thread=False
            )
            try:
                self._open()
            except BaseException:
                self.db.close()
                raise

    def _make(self) -> None:
        """Only the owner may read the file, and therefore SQLite's files beside it: states are confidential."""
        try:
            file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
            mode = stat.S_IMODE(os.fstat(file).st_mode)
            os.close(file)
        except OSError as error:
            raise StoreError(f"{self.path}: {error.strerror}") from error
        if mode & 0o077:  # this may be intended
            self.warning = f"{self.path} has mode {mode:o}: others may read states; chmod 600 it"

    def _open(self) -> None:
        with self._transaction():
            (application,) = self._get("PRAGMA application_id")
            (schema,) = self._get("PRAGMA user_version")
            (tables,) = self._get("SELECT count(*) FROM sqlite_master")
            if (application, schema, tables) == (0, 0, 0):
                for statement in TABLES.split(";"):
                    self.db.execute(statement)
            elif (application, schema) != (APPLICATION, SCHEMA):
                raise StoreOfOther(
                    f"{self.path}: application {application}, schema {schema};"
                    f" accepted: a store of tsm-serve ({APPLICATION}, {SCHEMA})"
                )
        self.db.execute("PRAGMA journal_mode = WAL")
        self.db.execute("PRAGMA synchronous = FULL")

    def apply(self, operations: Sequence[Operation]) -> list[Result]:
        with self._errors(), self._transaction():
            (self.counter,) = self._get("SELECT last FROM counter")
            results = [self._one(operation) for operation in operations]
            self.db.execute("UPDATE counter SET last = ?", (self.counter,))
        return results

    def _one(self, operation: Operation) -> Result:
        key, now = operation.key, self.clock()
        if isinstance(operation, Put) and self._again(operation, now):
            return int(self.counter)
        self._drop("key = ? AND expires <= ?", key, now)
        if isinstance(operation, Remove):
            return self._drop("key = ?", key) > 0
        if isinstance(operation, Claim):
            epoch = self.counter + 1
            claimed = self.db.execute("UPDATE stream SET epoch = ? WHERE key = ?", (epoch, key))
            self.counter += claimed.rowcount
            return self._row(key)
        found = self._get("SELECT version, epoch, position FROM stream WHERE key = ?", key)
        if found or operation.row.version or operation.row.epoch:
            return Conflict(*(found or (0, 0, 0)))
        self.counter += 1
        self.db.execute(
            f"INSERT INTO stream (expires, {FIELDS}, key) VALUES ({MARKS}, ?)",
            (*self._values(operation, now), key),
        )
        self._keep(operation)
        return int(self.counter)

    def _again(self, put: Put, now: float) -> bool:
        """Update the row in place, in one statement, if it is as its writer saw it; returns whether it was.

        Each statement releases the GIL and waits to get it back, so fewer statements are faster.
        """
        version, epoch = put.row.version, put.row.epoch
        if not version:
            return False
        self.counter += 1
        done = self.db.execute(
            f"UPDATE stream SET (expires, {FIELDS}) = ({MARKS})"
            " WHERE key = ? AND version = ? AND epoch = ? AND (expires IS NULL OR expires > ?)",
            (*self._values(put, now), put.key, version, epoch, now),
        )
        if not done.rowcount:
            self.counter -= 1
            return False
        self._keep(put)
        return True

    def _values(self, put: Put, now: float) -> tuple[Any, ...]:
        """The values for MARKS: the expiry time, and FIELDS with the next version."""
        row = put.row
        return (
            now + put.seconds if put.seconds else None,
            row.position, row.blob, row.model, row.fingerprint, row.level, row.request_id,
            row.answer, row.tail, self.counter, row.epoch,
        )  # fmt: skip

    def _keep(self, put: Put) -> None:
        """Add the state that was just put to the history, and drop the oldest ones."""
        if not put.history:
            return
        key = put.key
        self.db.execute(
            f"INSERT INTO history (key, version, {PAST})"
            f" SELECT key, version, {PAST} FROM stream WHERE key = ?",
            (key,),
        )
        self.db.execute(
            "DELETE FROM history WHERE key = ? AND version <="
            " (SELECT version FROM history WHERE key = ? ORDER BY version DESC LIMIT 1 OFFSET ?)",
            (key, key, put.history),
        )

    def _drop(self, condition: str, *values: object) -> int:
        keys = self.db.execute(f"SELECT key FROM stream WHERE {condition}", values).fetchall()
        for table in ("stream", "history") if keys else ():
            self.db.executemany(f"DELETE FROM {table} WHERE key = ?", keys)
        return len(keys)

    def read(self, key: str) -> Row | None:
        with self._errors():
            return self._row(key)

    def _row(self, key: str) -> Row | None:
        found = self._get(
            f"SELECT {FIELDS} FROM stream WHERE key = ? AND (expires IS NULL OR expires > ?)",
            key,
            self.clock(),
        )
        return Row(*found) if found else None

    def history(self, key: str) -> list[Past]:
        with self._errors():
            if self._row(key) is None:
                return []
            rows = self.db.execute(
                "SELECT version, position FROM history WHERE key = ? ORDER BY version", (key,)
            )
            return [Past(*row) for row in rows]

    def past(self, key: str, version: int) -> Row | None:
        with self._errors():
            found = self._row(key) and self._get(
                f"SELECT {PAST} FROM history WHERE key = ? AND version = ?", key, version
            )
            return Row(*found)._replace(version=version) if found else None

    def page(self, prefix: str, after: str, most: int) -> list[tuple[str, Row]]:
        end = prefix[:-1] + chr(ord(prefix[-1]) + 1)  # excludes rows of later users
        with self._errors():
            rows = self.db.execute(
                "SELECT key, position, model, fingerprint, level, version, epoch FROM stream"
                " WHERE key > ? AND key < ? AND model != ''"
                " AND (expires IS NULL OR expires > ?) ORDER BY key LIMIT ?",
                (prefix + after, end, self.clock(), most),
            ).fetchall()
        return [
            (key, Row(position, b"", model, fingerprint, level, version=version, epoch=epoch))
            for key, position, model, fingerprint, level, version, epoch in rows
        ]

    def count(self) -> int:
        with self._errors():
            (rows,) = self._get("SELECT count(*) FROM stream")
            return int(rows)

    def sweep(self) -> int:
        with self._errors(), self._transaction():
            return self._drop("expires <= ?", self.clock())

    def close(self) -> None:
        self.db.close()

    def _get(self, sql: str, *values: object) -> tuple[Any, ...]:
        """The only row, or () if there is none."""
        return self.db.execute(sql, values).fetchone() or ()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self.db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self.db.execute("COMMIT")
        except BaseException:
            if self.db.in_transaction:  # after some failures SQLite has already rolled back
                self.db.execute("ROLLBACK")
            raise

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            text = f"{self.path}: {error}"  # Python 3.10 does not expose SQLite's error codes
            if "not a database" in text:
                raise StoreOfOther(f"{text}; accepted: a store of tsm-serve") from error
            raise (StoreFull if "disk is full" in text else StoreError)(text) from error
