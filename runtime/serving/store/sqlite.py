"""States in one SQLite file: WAL, synchronous FULL, a batch of operations as one transaction.

Several processes on one machine may use the file at once. When `apply` returns, its changes have been synced to
the disk. If the file, its log or its index is deleted or replaced meanwhile, nothing more is read or written:
SQLite would go on with the old one, which is lost when it is closed.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import groupby
from os import PathLike
from typing import Any, TypeVar

from . import sqlite_statements as statements
from .base import (
    Claim,
    Conflict,
    Crowded,
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
from .sqlite_statements import APPLICATION, FIELDS, MARKS, PAST, SCHEMA, TABLES

T = TypeVar("T")
Many = Callable[[Sequence[Any]], list[Result]]
WAIT = 10.0  # seconds to wait for another process's transaction
# The largest number of rows in one UPDATE; SQLite before 3.33 has no UPDATE FROM.
MOST_ROWS = 64 if sqlite3.sqlite_version_info >= (3, 33) else 1
SWEPT = 1000  # rows that one transaction removes


class _Refused(Exception):
    """A statement for many rows found some that are not as their writers saw them."""


class SqliteStore:
    durable = True
    warning = ""

    def __init__(self, path: str | PathLike[str], clock: Callable[[], float] = time.time) -> None:
        self.path, self.clock = str(path), clock
        self.opened: dict[str, tuple[int, int]] = {}  # the files of the database, and their inodes
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
        """Only the owner may read the file (and so the files that SQLite puts beside it), since states are
        confidential. A file that exists is not opened: closing it would release the locks of this process's
        other connections to it, and another process would then delete their log."""
        try:
            with suppress(FileExistsError):
                place = os.path.realpath(self.path)  # also where a link points that has no file yet
                os.close(os.open(place, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
            mode = stat.S_IMODE(os.stat(self.path).st_mode)
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
                for statement in TABLES:
                    self.db.execute(statement)
            elif (application, schema) != (APPLICATION, SCHEMA):
                raise StoreOfOther(
                    f"{self.path}: application {application}, schema {schema};"
                    f" accepted: a store of tsm-serve ({APPLICATION}, {SCHEMA}); --store names another"
                )
        self.db.execute("PRAGMA journal_mode = WAL")
        self.db.execute("PRAGMA synchronous = FULL")
        self.db.execute("PRAGMA temp_store = MEMORY")  # for the rows of an UPDATE
        self._get("SELECT last FROM counter")  # opens the log and its index
        place = os.path.realpath(self.path)
        self.opened = {file: _inode(file) for file in (self.path, f"{place}-wal", f"{place}-shm")}

    def _check_files(self) -> None:
        for file, inode in self.opened.items():
            if _inode(file) != inode:
                raise StoreError(
                    f"{file} was deleted or replaced while it was open; restart the server"
                )

    def apply(self, operations: Sequence[Operation]) -> list[Result]:
        with self._errors():
            try:
                return self._apply(operations, self._many)
            except _Refused:  # by one statement for many rows
                return self._apply(operations, self._some)

    def _apply(self, operations: Sequence[Operation], many: Many) -> list[Result]:
        results: list[Result] = []
        with self._transaction():
            self.now = self.clock()
            (self.counter,) = self._get("SELECT last FROM counter")
            for part in _parts(operations):
                results += many(part) if len(part) > 1 else [self._one(one) for one in part]
            self.db.execute("UPDATE counter SET last = ?", (self.counter,))
        return results

    def _many(self, puts: Sequence[Any]) -> list[Result]:
        """Puts of different rows, none of which is refused."""
        first = self.counter + 1
        for rows in _powers([*puts], MOST_ROWS):
            if not self._again(rows):
                raise _Refused
        return [*range(first, self.counter + 1)]

    def _some(self, puts: Sequence[Any]) -> list[Result]:
        """The same, some of which may be refused."""
        seen: dict[str, tuple[int, int]] = {}
        for rows in _powers([*puts], MOST_ROWS):
            stored = self.db.execute(
                statements.versions(len(rows)), (*(put.key for put in rows), self.now)
            )
            seen |= {key: (version, epoch) for key, version, epoch in stored}

        def is_fresh(put: Put) -> bool:
            return seen.get(put.key) == (put.row.version, put.row.epoch)

        results: list[Result] = []
        for fresh, run in groupby(puts, is_fresh):
            part = [*run]
            results += self._many(part) if fresh else [self._one(put) for put in part]
        return results

    def _one(self, operation: Operation) -> Result:
        key, now = operation.key, self.now
        if isinstance(operation, Put) and _may_update(operation) and self._again([operation]):
            return int(self.counter)
        self._drop("key = ? AND expires <= ?", key, now)
        row = self._get("SELECT version, epoch, position FROM stream WHERE key = ?", key)
        if isinstance(operation, Remove):
            if operation.version and row[:2] != (operation.version, operation.epoch):
                return Conflict(*(row or (0, 0, 0)))
            return self._drop("key = ?", key) > 0
        if isinstance(operation, Claim):
            epoch = self.counter + 1
            claimed = self.db.execute("UPDATE stream SET epoch = ? WHERE key = ?", (epoch, key))
            self.counter += claimed.rowcount
            return self._row(key)
        if (row or (0, 0))[:2] != (operation.row.version, operation.row.epoch):
            return Conflict(*(row or (0, 0, 0)))
        if operation.most and (crowded := self._crowded(operation)):
            return crowded
        if row:
            self._again([operation])
            return int(self.counter)
        self.counter += 1
        self.db.execute(
            f"INSERT INTO stream (expires, {FIELDS}, key) VALUES ({MARKS}, ?)",
            (*self._values(operation, self.counter, now), key),
        )
        self._keep([operation])
        return int(self.counter)

    def _crowded(self, put: Put) -> Crowded | None:
        rows = self._rows_of(put.key.rpartition("/")[0])[not put.row.model]
        before = self._get("SELECT model != '' FROM stream WHERE key = ?", put.key)
        return Crowded(rows) if rows >= put.most and before != (bool(put.row.model),) else None

    def _again(self, puts: list[Put]) -> bool:
        """Update rows in one statement if they are as their writers saw them; returns whether all were.

        Each statement releases the GIL and waits to get it back, so fewer statements are faster.
        """
        values: list[Any] = []
        now = self.now
        for version, put in enumerate(puts, self.counter + 1):
            values += self._values(put, version, now)
            values += (put.key, put.row.version)
        updated = self.db.execute(statements.update(len(puts)), (*values, now))
        if updated.rowcount < len(puts):
            return False
        self.counter += len(puts)
        self._keep(puts)
        return True

    def _values(self, put: Put, version: int, now: float) -> tuple[Any, ...]:
        """The values for MARKS: the expiry time, and FIELDS with the next version."""
        row = put.row
        return (
            now + put.seconds if put.seconds else None,
            row.position, row.blob, row.model, row.fingerprint, row.level, row.request_id,
            row.answer, row.tail, version, row.epoch,
        )  # fmt: skip

    def _keep(self, puts: list[Put]) -> None:
        """Add the states that were just put to the history; drop the oldest, or those of an ended session."""
        ended = [put.key for put in puts if not put.row.model and not put.history]
        for keys in _powers(ended, MOST_ROWS):
            marks = ", ".join("?" * len(keys))
            self.db.execute(f"DELETE FROM history WHERE key IN ({marks})", keys)
        for most in {put.history for put in puts if put.history}:
            for keys in _powers([put.key for put in puts if put.history == most], MOST_ROWS):
                self.db.execute(statements.remember(len(keys)), keys)
                self.db.execute(statements.forget(len(keys)), (*keys, most))

    def _drop(self, condition: str, *values: object) -> int:
        keys = self.db.execute(f"SELECT key FROM stream WHERE {condition}", values).fetchall()
        for table in ("stream", "history") if keys else ():
            self.db.executemany(f"DELETE FROM {table} WHERE key = ?", keys)
        return len(keys)

    def read(self, key: str) -> Row | None:
        with self._errors():
            return self._row(key)

    def _row(self, key: str) -> Row | None:
        fields = self._get(
            f"SELECT {FIELDS} FROM stream WHERE key = ? AND (expires IS NULL OR expires > ?)",
            key,
            self.clock(),
        )
        return Row(*fields) if fields else None

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
            fields = self._row(key) and self._get(
                f"SELECT {PAST} FROM history WHERE key = ? AND version = ?", key, version
            )
            return Row(*fields)._replace(version=version) if fields else None

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

    def ended(self) -> int:
        with self._errors():
            (rows,) = self._get("SELECT count(*) FROM stream WHERE model = ''")
            return int(rows)

    def rows_of(self, user: str) -> tuple[int, int]:
        with self._errors():
            return self._rows_of(user)

    def _rows_of(self, user: str) -> tuple[int, int]:
        live, ended = self._get("SELECT live, ended FROM share WHERE user = ?", user) or (0, 0)
        return live, ended

    def weights(self, after: str) -> tuple[set[tuple[str, str]], str]:
        with self._errors():
            rows = self.db.execute(
                "SELECT key, model, fingerprint FROM stream WHERE key > ? ORDER BY key LIMIT ?",
                (after, SWEPT),
            ).fetchall()
        end = rows[-1][0] if len(rows) == SWEPT else ""
        return {(model, fingerprint) for _, model, fingerprint in rows}, end

    def sweep(self) -> bool:
        with self._errors(), self._transaction():
            return self._drop("expires <= ? LIMIT ?", self.clock(), SWEPT) == SWEPT

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
            self._check_files()  # again: nothing may be answered that would be lost
            self.db.execute("COMMIT")
        except BaseException:
            if self.db.in_transaction:  # after some failures SQLite has already rolled back
                self.db.execute("ROLLBACK")
            raise

    @contextmanager
    def _errors(self) -> Iterator[None]:
        self._check_files()
        try:
            yield
        except sqlite3.Error as error:
            text = f"{self.path}: {error}"  # Python 3.10 does not expose SQLite's error codes
            if "not a database" in text:
                raise StoreOfOther(f"{text}; accepted: a store of tsm-serve") from error
            raise (StoreFull if "disk is full" in text else StoreError)(text) from error


def _inode(file: str) -> tuple[int, int]:
    """The device and the inode of a file; (0, 0) if there is none."""
    try:
        entry = os.stat(file)
    except OSError:
        return 0, 0
    return entry.st_dev, entry.st_ino


def _may_update(put: Put) -> bool:
    """Whether a row may be updated without a look at it."""
    return bool(put.row.version) and not put.most


def _parts(operations: Sequence[Operation]) -> Iterator[list[Operation]]:
    """Updates of different rows together, all other operations alone; in their order."""
    run: dict[str, Operation] = {}
    for one in operations:
        if isinstance(one, Put) and _may_update(one) and one.key not in run:
            run[one.key] = one
            continue
        if run:
            yield [*run.values()]
        run = {}
        yield [one]
    if run:
        yield [*run.values()]


def _powers(rows: list[T], most: int) -> Iterator[list[T]]:
    """Splits rows into parts whose sizes are powers of two, so that there are few different statements."""
    while rows:
        while most > len(rows):
            most //= 2
        yield rows[:most]
        rows = rows[most:]
