"""The tables of a SqliteStore, and its statements for many rows."""

from __future__ import annotations

from functools import cache

APPLICATION, SCHEMA = 0x74736D73, 2  # "tsms"; PRAGMA application_id and user_version
FIELDS = "position, blob, model, fingerprint, level, request_id, answer, tail, version, epoch"
MARKS = ", ".join("?" * 11)  # for expires and FIELDS
LIVING = "(stream.expires IS NULL OR stream.expires > ?)"
PAST = "position, blob, model, fingerprint, level"
USER = "substr({0}.key, 1, instr({0}.key, '/') - 1)"
RESHARE = (
    "UPDATE share SET live = live + {0} * ({1}.model != ''), ended = ended + {0} * ({1}.model = '')"
    f" WHERE user = {USER.format('{1}')};"
)
TABLES = (
    f"PRAGMA application_id = {APPLICATION}",
    f"PRAGMA user_version = {SCHEMA}",
    "CREATE TABLE counter (last INTEGER NOT NULL)",
    "INSERT INTO counter VALUES (0)",
    "CREATE TABLE stream (key TEXT PRIMARY KEY, expires REAL, version INTEGER NOT NULL,"
    " epoch INTEGER NOT NULL, position INTEGER NOT NULL, model TEXT NOT NULL, fingerprint TEXT NOT NULL,"
    " level TEXT NOT NULL, request_id TEXT NOT NULL, answer BLOB NOT NULL, tail BLOB NOT NULL,"
    " blob BLOB NOT NULL)",
    "CREATE INDEX stream_expires ON stream (expires) WHERE expires IS NOT NULL",
    "CREATE INDEX stream_ended ON stream (key) WHERE model = ''",
    "CREATE TABLE history (key TEXT NOT NULL, version INTEGER NOT NULL, position INTEGER NOT NULL,"
    " model TEXT NOT NULL, fingerprint TEXT NOT NULL, level TEXT NOT NULL, blob BLOB NOT NULL,"
    " PRIMARY KEY (key, version))",
    # How many rows of each user have a model, and how many have none.
    "CREATE TABLE share (user TEXT PRIMARY KEY, live INTEGER NOT NULL, ended INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TRIGGER share_new AFTER INSERT ON stream BEGIN"
    f" INSERT OR IGNORE INTO share VALUES ({USER.format('new')}, 0, 0);"
    f" {RESHARE.format(1, 'new')} END",
    f"CREATE TRIGGER share_old AFTER DELETE ON stream BEGIN {RESHARE.format(-1, 'old')} END",
    "CREATE TRIGGER share_other AFTER UPDATE OF model ON stream WHEN (old.model = '') != (new.model = '')"
    f" BEGIN {RESHARE.format(-1, 'old')} {RESHARE.format(1, 'new')} END",
)


@cache
def update(rows: int) -> str:
    """Its parameters: for each row, the values for MARKS, the key, and the version that its writer saw; then
    the current time."""
    names = f"expires, {FIELDS}"
    if rows == 1:
        same = "key = ?12 AND version = ?13 AND epoch = ?11"
        return f"UPDATE stream SET ({names}) = ({MARKS}) WHERE {same} AND {LIVING}"
    sets = [f"{name} = new.column{i}" for i, name in enumerate(names.split(", "), 1)]
    values = ", ".join([f"({MARKS}, ?, ?)"] * rows)
    return (
        f"UPDATE stream SET {', '.join(sets)} FROM (VALUES {values}) AS new"
        " WHERE stream.key = new.column12 AND stream.version = new.column13"
        f" AND stream.epoch = new.column11 AND {LIVING}"
    )


@cache
def versions(keys: int) -> str:
    """Its parameters: the keys, then the time."""
    marks = ", ".join("?" * keys)
    return f"SELECT key, version, epoch FROM stream WHERE key IN ({marks}) AND {LIVING}"


@cache
def remember(keys: int) -> str:
    marks = ", ".join("?" * keys)
    return (
        f"INSERT INTO history (key, version, {PAST})"
        f" SELECT key, version, {PAST} FROM stream WHERE key IN ({marks})"
    )


@cache
def forget(keys: int) -> str:
    """Its last parameter: how many states to keep per key."""
    values = ", ".join(["(?)"] * keys)
    last = "SELECT version FROM history WHERE key = column1 ORDER BY version DESC LIMIT 1 OFFSET ?"
    return (
        "DELETE FROM history WHERE rowid IN (SELECT history.rowid"
        f" FROM (VALUES {values}) JOIN history ON key = column1 AND version <= ({last}))"
    )
