"""Access: bearer tokens, the Host and Origin of a request, and the rate of requests.

A token file has a line `NAME SHA256` per token; tokens themselves are not stored. Sessions belong to
NAME. Host and Origin are also checked on loopback: a web page must not reach a local server under a host name
chosen by the page's author (DNS rebinding).
"""

from __future__ import annotations

import hashlib
import ipaddress
import re
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from .limits import Limits
from .problems import Problem

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
LOCAL_USER = "local"  # the user name of everybody if there are no tokens
NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
LINE = re.compile(rf"({NAME.pattern})\s+([0-9a-f]{{64}})")
MOST_BUCKETS = 100_000
ORIGIN = re.compile(r"(https?)://([a-z0-9.-]+|\[[0-9a-f:.]+\])(?::([0-9]{1,5}))?/?")


def is_loopback(host: str) -> bool:
    return host in (*LOOPBACK, "::1") or host.startswith("127.")


def origin_of(url: str) -> str:
    """The address of a server as browsers write it in Origin: in lower case, without the default port."""
    match = ORIGIN.fullmatch(url.lower())
    try:
        if match is None:
            raise ValueError
        scheme, host, port = match.groups()
        if host.startswith("["):
            host = f"[{_shortest(ipaddress.IPv6Address(host[1:-1]))}]"
    except ValueError:
        raise ValueError(
            f"peer {url!r:.200}; accepted: http://HOST:PORT or https://HOST:PORT,"
            " with a name, an IPv4 address or an IPv6 address in []"
        ) from None
    usual = {"http": "80", "https": "443"}[scheme]
    return f"{scheme}://{host}" + (f":{port}" if port and port != usual else "")


def _shortest(address: ipaddress.IPv6Address) -> str:
    """As browsers write it; Python from 3.13 on writes the end of an IPv4-mapped address with dots."""
    mapped = address.ipv4_mapped
    return f"::ffff:{int(mapped) >> 16:x}:{int(mapped) & 0xFFFF:x}" if mapped else str(address)


def new_token(name: str) -> tuple[str, str]:
    """A new token, and its line in the token file."""
    if not NAME.fullmatch(name):
        raise ValueError(f"name {name!r}; accepted: 1 to 64 of A-Z a-z 0-9 - _ .")
    token = "tsm-" + secrets.token_urlsafe(32)
    return token, f"{name} {digest(token)}"


def digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def read_tokens(path: Path) -> dict[str, str]:
    """digest -> name"""
    found = {}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        line = line.partition("#")[0].strip()
        if not line:
            continue
        match = LINE.fullmatch(line)
        if match is None:
            raise ValueError(
                f"{path}:{number}: accepted: NAME SHA256, as `tsm-serve --new-token NAME` prints it"
            )
        found[match[2]] = match[1]
    if not found:
        raise ValueError(f"{path}: no token in it; `tsm-serve --new-token NAME` makes one")
    return found


@dataclass
class Access:
    tokens: dict[str, str]  # empty: everyone who can reach the server has access
    hosts: Sequence[str]  # accepted names in Host; empty: any, because tokens protect the server
    origins: Sequence[str]  # other origins whose pages may send requests
    limits: Limits
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self.buckets: dict[str, tuple[float, float]] = {}

    def users(self) -> int:
        return len({*self.tokens.values()}) or 1

    def user(self, authorization: str) -> str:
        """The name behind a token."""
        if not self.tokens:
            return LOCAL_USER
        scheme, _, token = authorization.partition(" ")
        name = self.tokens.get(digest(token.strip())) if scheme.lower() == "bearer" else None
        if name is None:
            raise Problem(401, "no valid token; accepted: Authorization: Bearer TOKEN")
        return name

    def check_host(self, host: str) -> None:
        name = re.sub(r":\d{1,5}$", "", host).lower()
        if self.hosts and name not in self.hosts:
            raise Problem(
                421, f"Host {host!r:.80}; accepted: {', '.join(self.hosts)} (--allow-host)"
            )

    def check_origin(self, origin: str, host: str) -> bool:
        """Whether the request comes from a page of another server; raises a Problem if that is not allowed."""
        if not origin or origin in (f"http://{host}", f"https://{host}"):
            return False
        if origin not in self.origins:
            raise Problem(403, f"Origin {origin!r:.80}; accepted: this server (--allow-origin)")
        return True

    def count(self, user: str) -> None:
        """Count a request of a user against --max-rate, with a token bucket of one second."""
        rate = self.limits.rate
        if not rate:
            return
        now = self.clock()
        left, at = self.buckets.pop(user, (max(rate, 1.0), now))
        left = min(max(rate, 1.0), left + (now - at) * rate)
        if len(self.buckets) >= MOST_BUCKETS:
            self.buckets.clear()
        if left < 1.0:
            self.buckets[user] = (left, now)
            wait = max(1, round((1.0 - left) / rate + 0.5))
            flag = self.limits.flag("rate")
            raise Problem(429, f"over {rate:g} requests per second ({flag})", retry_after=wait)
        self.buckets[user] = (left - 1.0, now)
