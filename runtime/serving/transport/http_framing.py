"""Where the parts of an HTTP request end, and what is refused before uvicorn reads it.

The head and the framing of the body are checked strictly, so that no proxy in front can read them differently.
"""

from __future__ import annotations

import re
import string
from collections import defaultdict
from collections.abc import Callable

from .limits import Limits
from .problems import Problem

LONGEST_LINE = 1024  # bytes of the line before a chunk
END = b"\r\n"
FIELDS = rb"(?:[!#$%&'*+\-.^_`|~0-9A-Za-z]+:[\t\x20-\x7e\x80-\xff]*\r\n)*\r\n"
HEAD = re.compile(rb"(?!CONNECT )([A-Z]+) ([!-~]+) HTTP/1\.[01]\r\n" + FIELDS)
TRAILER = re.compile(END + FIELDS)
UPGRADE = re.compile(rb"\nupgrade:[^\r]*\r(?=\n)", re.IGNORECASE)
FRAMING = re.compile(rb"\n(host|content-length|transfer-encoding|upgrade):([^\r]*)", re.IGNORECASE)
ABSOLUTE = re.compile(rb"https?://([^/?#]*)", re.IGNORECASE)
BARE = re.compile(rb"(?<!\r)\n")
LENGTH = re.compile(rb"[0-9]{1,18}")
CHUNK = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\r\n]*)?")
METHOD = string.ascii_uppercase.encode()


class Requests:
    """`next` finds the parts of one request after another: its head, then pieces of its body."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.complete = True  # all of the newest request has arrived
        self.part: Callable[[Requests, bytes, int], tuple[bytes, int]] = Requests._head
        self.left = 0  # bytes of the body, or of the chunk, that have not arrived
        self.before_chunk: bytes | None = None  # what comes before the next chunk; None: no chunks

    def begin(self) -> None:
        self.complete, self.part, self.before_chunk = False, Requests._head, None

    def next(self, data: bytes, at: int) -> tuple[bytes, int]:
        """The next part, and where it ends; it is empty and ends at `at` if more bytes must arrive."""
        return self.part(self, data, at)

    def _head(self, data: bytes, at: int) -> tuple[bytes, int]:
        if data[at : at + 1] not in METHOD:
            raise Problem(400, "the request does not begin with a method")
        end = self._end_of_fields(data, at, "the head")
        if end is None:
            if BARE.search(data, at):
                raise Problem(400, "a line of the head does not end with CR LF")
            return b"", at
        return self._checked(data[at:end]), end

    def _checked(self, head: bytes) -> bytes:
        """The head, without an upgrade to another protocol than WebSockets: such a field is ignored, and a
        parser that saw it would not read the body."""
        match = HEAD.fullmatch(head)
        if match is None:
            raise Problem(400, "this is not the head of an HTTP request")
        method, target = match.groups()
        fields: dict[bytes, list[bytes]] = defaultdict(list)
        for name, value in FRAMING.findall(head):
            fields[name.lower()].append(value.strip(b" \t").lower())
        hosts, lengths = fields[b"host"], fields[b"content-length"]
        codings = fields[b"transfer-encoding"]
        if len(hosts) > 1:
            raise Problem(400, f"{len(hosts)} Host fields; accepted: one")
        if target[:1] != b"/" and target != b"*":
            absolute = ABSOLUTE.match(target)
            if absolute is None or [absolute[1].lower()] != hosts:
                raise Problem(400, f"target {_shown(target)}; accepted: a path, or a URL at Host")
        if len(lengths) + len(codings) > 1:
            raise Problem(400, "two fields give the body's length; accepted: one")
        if codings and codings != [b"chunked"]:
            raise Problem(400, f"Transfer-Encoding {_shown(codings[0])}; accepted: chunked")
        if lengths and not LENGTH.fullmatch(lengths[0]):
            raise Problem(400, f"Content-Length {_shown(lengths[0])}; accepted: 1 to 18 digits")
        self.left = int(lengths[0]) if lengths else 0
        has_body = bool(self.left or codings)
        upgrade = b",".join(fields[b"upgrade"])
        if upgrade == b"websocket" and (method != b"GET" or has_body):
            raise Problem(400, "a WebSocket begins with a GET without a body")
        self.complete, self.part = not has_body, Requests._body
        if codings:
            self.part, self.before_chunk = Requests._chunk, b""
        return head if upgrade == b"websocket" else UPGRADE.sub(b"", head)

    def _body(self, data: bytes, at: int) -> tuple[bytes, int]:
        """A piece of the body, or of one of its chunks."""
        end = min(len(data), at + self.left)
        self.left -= end - at
        if not self.left:
            self.complete = self.before_chunk is None
            self.part, self.before_chunk = Requests._chunk, END
        return data[at:end], end

    def _chunk(self, data: bytes, at: int) -> tuple[bytes, int]:
        """The line before a chunk."""
        assert self.before_chunk is not None
        begin = at + len(self.before_chunk)
        end = data.find(END, begin, begin + LONGEST_LINE)
        if end < 0 and len(data) < begin + LONGEST_LINE:
            return b"", at
        match = CHUNK.fullmatch(data, begin, max(begin, end))
        if match is None or data[at:begin] != self.before_chunk:
            raise Problem(400, "a chunk of the body does not begin with its size")
        self.left = int(match[1], 16)
        if self.left == 0:
            self.part = Requests._trailer
            return data[at:end], end
        self.part = Requests._body
        return data[at : end + len(END)], end + len(END)

    def _trailer(self, data: bytes, at: int) -> tuple[bytes, int]:
        """What follows the last chunk: fields, which nobody reads, and an empty line."""
        end = self._end_of_fields(data, at, "what follows the body")
        if end is None:
            return b"", at
        if not TRAILER.fullmatch(data, at, end):
            raise Problem(400, "what follows the body is not a list of fields")
        self.complete = True
        return END + END, end

    def _end_of_fields(self, data: bytes, at: int, what: str) -> int | None:
        """Where the empty line after them ends; None if it has not arrived."""
        line = data.find(END + END, at)
        end = None if line < 0 else line + 2 * len(END)
        if (len(data) if end is None else end) - at > self.limits.header:
            flag = self.limits.flag("header")
            raise Problem(431, f"{what} is over {self.limits.header} bytes ({flag})")
        return end


def _shown(value: bytes) -> str:
    return repr(value[:80].decode("latin-1"))
