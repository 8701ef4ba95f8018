"""States in Redis 7, for several machines. Each operation is one Lua script, a batch is one pipeline.

An operation is atomic, a batch is not: if Redis fails in the middle, an unconfirmed operation may or may not
have been done, as with any lost answer. What a crash of Redis itself may lose depends on its settings: with
`appendonly yes` and `appendfsync always`, nothing that was answered; with `appendfsync everysec`, up to a
second.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from .base import (
    Claim,
    Conflict,
    Crowded,
    Operation,
    Past,
    Remove,
    Result,
    Row,
    StoreError,
    StoreFull,
    StoreOfOther,
    without_bytes,
)

NUMBERS = ("position", "version", "epoch")
TEXTS = ("model", "fingerprint", "level", "request_id")
BYTES = ("blob", "answer", "tail")
FIELDS = (*NUMBERS, *TEXTS, *BYTES)
SWEPT = 1000  # rows that one script removes
WAIT = 10.0  # seconds to wait for an answer from Redis
DONE, CROWDED = 1, 2  # what a script answers first; 0: a conflict
FORMAT = b"1"  # of the keys; PUT writes it with the first row

# KEYS: row, history, counter, the set of all rows by the time at which they expire, in milliseconds, the set of
# the user's rows that have a model, sorted by key, the set of rows without one by the time at which they
# expire, those of the user, and the format.
# ARGV: the version and epoch that the writer saw. They are compared as text, since Lua's numbers are doubles.
SEEN = """
local seen = redis.call('HMGET', KEYS[1], 'version', 'epoch', 'position')
local version, epoch = seen[1] or '0', seen[2] or '0'
if {}(ARGV[1] ~= version or ARGV[2] ~= epoch) then return {{0, version, epoch, seen[3] or '0'}} end
"""
PUT = (
    SEEN.format("")
    + """
local now = redis.call('TIME')
now = now[1] * 1000 + math.floor(now[2] / 1000)
local kind = ARGV[6] == '' and KEYS[7] or KEYS[5]
if ARGV[7] ~= '0' and not redis.call('ZSCORE', kind, KEYS[1]) then
    local rows = ARGV[6] == '' and redis.call('ZCOUNT', kind, now, '+inf') or redis.call('ZCARD', kind)
    if rows >= tonumber(ARGV[7]) then return {2, rows} end
end
version = redis.call('INCR', KEYS[3])
if version == 1 then redis.call('SET', KEYS[8], '1') end
redis.call('HSET', KEYS[1], 'version', version, 'epoch', epoch, unpack(ARGV, 8))
if ARGV[4] == '0' and ARGV[6] == '' then redis.call('DEL', KEYS[2]) end
if ARGV[4] ~= '0' then
    redis.call('RPUSH', KEYS[2], version .. '\\n' .. ARGV[5])
    redis.call('LTRIM', KEYS[2], -tonumber(ARGV[4]), -1)
end
local expires = '+inf'
if ARGV[3] == '0' then
    for i = 1, 2 do redis.call('PERSIST', KEYS[i]) end
else
    expires = string.format('%.0f', now + ARGV[3])
    for i = 1, 2 do redis.call('PEXPIREAT', KEYS[i], expires) end
end
redis.call('ZADD', KEYS[4], expires, KEYS[1])
if ARGV[6] == '' then
    redis.call('ZREM', KEYS[5], KEYS[1])
    for i = 6, 7 do redis.call('ZADD', KEYS[i], expires, KEYS[1]) end
else
    redis.call('ZADD', KEYS[5], 0, KEYS[1])
    for i = 6, 7 do redis.call('ZREM', KEYS[i], KEYS[1]) end
end
return {1, version}
"""
)
REMOVE = (
    SEEN.format("ARGV[1] ~= '0' and ")
    + """
for i = 4, 7 do redis.call('ZREM', KEYS[i], KEYS[1]) end
return {1, redis.call('DEL', KEYS[1], KEYS[2])}
"""
)
SWEEP = """
local now = redis.call('TIME')
now = string.format('%.0f', now[1] * 1000 + math.floor(now[2] / 1000))
local gone = redis.call('ZRANGE', KEYS[1], '-inf', now, 'BYSCORE', 'LIMIT', 0, ARGV[2])
for _, row in ipairs(gone) do
    redis.call('ZREM', KEYS[1], row)
    local user = string.match(string.sub(row, #ARGV[1] + 3), '^(.*)/') or ''
    for _, set in ipairs({'i:' .. user, 'ending', 'e:' .. user}) do
        redis.call('ZREM', ARGV[1] .. set, row)
    end
end
return #gone
"""
CLAIM = """
if redis.call('EXISTS', KEYS[1]) == 0 then return false end
redis.call('HSET', KEYS[1], 'epoch', redis.call('INCR', KEYS[3]))
return redis.call('HMGET', KEYS[1], unpack(ARGV))
"""


def package() -> Any:
    """The module redis."""
    try:
        import redis
    except ImportError as error:
        raise ModuleNotFoundError(
            "redis is not installed; run: pip install redis", name="redis"
        ) from error
    return redis


class RedisStore:
    durable = True
    warning = ""

    def __init__(self, url: str, prefix: str = "tsm:") -> None:
        self.redis, self.prefix = package(), prefix
        self.url = url.rpartition("@")[2]  # shown in error messages
        # No retries: if the answer to a write is lost, a retry would conflict with the write itself.
        never = self.redis.retry.Retry(self.redis.backoff.NoBackoff(), 0)
        self.client = self.redis.Redis.from_url(
            url, socket_timeout=WAIT, socket_connect_timeout=WAIT, retry=never
        )
        self.put, self.claim, self.remove, self.swept = map(
            self.client.register_script, (PUT, CLAIM, REMOVE, SWEEP)
        )
        with self._errors():
            counter, form = self.client.mget(self._names("counter", "format"))
        if counter is not None and form != FORMAT:
            raise StoreOfOther(
                f"{self.url}: the keys {prefix}* have another format than {FORMAT.decode()};"
                " accepted: a database without them; --store names another"
            )

    def _names(self, *names: str) -> list[str]:
        return [self.prefix + name for name in names]

    def _keys(self, key: str) -> list[str]:
        user = key.rpartition("/")[0]
        sets = ("all", f"i:{user}", "ending", f"e:{user}")
        return self._names(f"s:{key}", f"h:{key}", "counter", *sets, "format")

    def apply(self, operations: Sequence[Operation]) -> list[Result]:
        with self._errors(), self.client.pipeline(transaction=False) as pipe:
            for operation in operations:
                self._send(operation, pipe)
            answers = pipe.execute()
        return [_result(o, a) for o, a in zip(operations, answers, strict=True)]

    def _send(self, operation: Operation, pipe: Any) -> None:
        keys = self._keys(operation.key)
        if isinstance(operation, Remove):
            self.remove(keys, [operation.version, operation.epoch], pipe)
        elif isinstance(operation, Claim):
            self.claim(keys, FIELDS, pipe)
        else:
            row = operation.row
            names = [name for name in FIELDS if name not in ("version", "epoch")]
            fields = [x for name in names for x in (name, getattr(row, name))]
            past = json.dumps([row.position, row.model, row.fingerprint, row.level]).encode()
            past = past + b"\n" + row.blob if operation.history else b""
            milliseconds = max(1, round(operation.seconds * 1000)) if operation.seconds else 0
            first = [row.version, row.epoch, milliseconds, operation.history, past, row.model]
            self.put(keys, [*first, operation.most, *fields], pipe)

    def read(self, key: str) -> Row | None:
        with self._errors():
            return _row(self.client.hmget(self._keys(key)[0], FIELDS))

    def history(self, key: str) -> list[Past]:
        return [Past(row.version, row.position) for row in self._pasts(key)]

    def past(self, key: str, version: int) -> Row | None:
        return next((row for row in self._pasts(key) if row.version == version), None)

    def _pasts(self, key: str) -> Iterator[Row]:
        with self._errors():
            entries = self.client.lrange(self._keys(key)[1], 0, -1)
        for entry in entries:
            version, facts, blob = entry.split(b"\n", 2)
            position, model, fingerprint, level = json.loads(facts)
            yield Row(position, blob, model, fingerprint, level, version=int(version))

    def page(self, prefix: str, after: str, most: int) -> list[tuple[str, Row]]:
        """The prefix is a user and a slash."""
        start, _, _, _, index, *_ = self._keys(prefix)
        rows: list[tuple[str, Row]] = []
        last, keys = start + after, [""] * most
        with self._errors():
            while len(keys) == most and len(rows) < most:
                keys = [
                    key.decode() for key in self.client.zrangebylex(index, f"({last}", "+", 0, most)
                ]
                rows += self._rows(keys)  # some may have expired
                last = keys[-1] if keys else last
        rows = [(key.removeprefix(f"{self.prefix}s:"), without_bytes(row)) for key, row in rows]
        return rows[:most]

    def _rows(self, keys: Sequence[str]) -> list[tuple[str, Row]]:
        """The rows that exist and have a model, without their bytes."""
        with self.client.pipeline(transaction=False) as pipe:
            for key in keys:
                pipe.hmget(key, (*NUMBERS, *TEXTS))
            bare = [[*values, *(b"" for _ in BYTES)] for values in pipe.execute()]
            rows = [(key, _row(values)) for key, values in zip(keys, bare, strict=True)]
        return [(key, row) for key, row in rows if row and row.model]

    def count(self) -> int:
        with self._errors():
            return int(self.client.zcard(self.prefix + "all"))

    def ended(self) -> int:
        with self._errors():
            return int(self.client.zcard(self.prefix + "ending"))

    def rows_of(self, user: str) -> tuple[int, int]:
        live, ended = self._names(f"i:{user}", f"e:{user}")
        with self._errors():
            seconds, microseconds = self.client.time()
            now = seconds * 1000 + microseconds // 1000
            return int(self.client.zcard(live)), int(self.client.zcount(ended, now, "+inf"))

    def weights(self, after: str) -> tuple[set[tuple[str, str]], str]:
        with self._errors(), self.client.pipeline(transaction=False) as pipe:
            at, rows = self.client.zscan(self.prefix + "all", int(after or 0), count=SWEPT)
            for row, _ in rows:
                pipe.hmget(row, ("model", "fingerprint"))
            pairs = [tuple(map(bytes.decode, pair)) for pair in pipe.execute() if None not in pair]
            return {(model, fingerprint) for model, fingerprint in pairs}, str(at or "")

    def sweep(self) -> bool:
        """Redis expires the rows itself; this removes them from the sets."""
        with self._errors():
            return int(self.swept(self._names("all"), [self.prefix, SWEPT])) == SWEPT

    def close(self) -> None:
        self.client.close()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except self.redis.RedisError as error:
            kind = StoreFull if "OOM" in str(error) or "MISCONF" in str(error) else StoreError
            raise kind(f"{self.url}: {error}") from error


def _result(operation: Operation, answer: Any) -> Result:
    if isinstance(operation, Claim):
        return _row(answer)
    outcome, *numbers = map(int, answer)
    if outcome != DONE:
        return Crowded(*numbers) if outcome == CROWDED else Conflict(*numbers)
    return numbers[0] > 0 if isinstance(operation, Remove) else numbers[0]


def _row(values: Sequence[bytes | None] | None) -> Row | None:
    if not values or values[0] is None:
        return None
    fields: dict[str, Any] = dict(zip(FIELDS, values, strict=True))
    fields |= {name: int(fields[name]) for name in NUMBERS}
    fields |= {name: fields[name].decode() for name in TEXTS}
    return Row(**fields)
