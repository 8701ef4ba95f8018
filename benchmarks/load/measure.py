"""One turn: a load on one server, with the resources that the server and the generator use."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from . import usage
from .histogram import Histogram
from .plan import Load
from .servers import Running

Check = Callable[[str, Sequence[float]], None]  # (protocol, first answer's numbers)


@dataclass
class Measured:
    """The measurements of one turn. CPU seconds and memory are those of the server and its children."""

    load: Load
    messages: int
    tokens: int
    in_all: int
    abandoned: int
    errors: dict[str, int]
    latency: Histogram
    slow: Histogram
    late: Histogram  # how late the generator sent its messages
    server_cpu: float
    client_cpu: float
    wall: float
    samples: list[tuple[float, int, float]] = field(default_factory=list)  # seconds, bytes, CPU
    footprint: dict[str, float | None] = field(default_factory=dict)  # bytes

    @property
    def per_second(self) -> float:
        return self.messages / self.load.seconds

    def microseconds(self, cpu: float) -> float:
        """CPU time of one message."""
        return cpu / max(1, self.in_all) * 1e6

    @property
    def growth(self) -> float | None:
        return usage.growth([(at, size) for at, size, _ in self.samples])

    def plain(self, short: bool = False) -> dict[str, Any]:
        """A dict for JSON; `short` leaves out the parts that grow with time."""
        found = {
            "load": self.load.plain(),
            "messages": self.messages,
            "messages per second": self.per_second,
            "tokens": self.tokens,
            "abandoned": self.abandoned,
            "errors": self.errors,
            "latency ms": self.latency.percentiles(),
            "slow readers, latency ms": self.slow.percentiles() if self.slow.total else None,
            "sent late ms": self.late.percentiles() if self.late.total else None,
            "server CPU us per message": self.microseconds(self.server_cpu),
            "client CPU us per message": self.microseconds(self.client_cpu),
            "server CPU share": self.server_cpu / self.wall,
            "client CPU share": self.client_cpu / self.wall,
            "memory growth after minute 2": self.growth,
            "footprint": self.footprint,
        }
        if not short:
            found["samples"] = self.samples
        return found


def measure(
    server: Running,
    load: Load,
    prefix: str,
    check: Sequence[int],
    compare: Check,
    progress: Callable[[float], None],
) -> Measured:
    """Run the generator against the server. `check`: the tokens of a first message whose answer is checked;
    empty: none is sent."""
    pid, begin = server.pid, 0.0
    sizes: dict[str, float] = {"checked": usage.memory(pid)}  # phase -> bytes
    stored: int | None = None
    samples: list[tuple[float, int, float]] = []
    asked = {
        "target": vars(server.target),
        "load": load.plain(),
        "prefix": prefix,
        "check": [*check],
    }
    command = [sys.executable, "-m", "tsm.benchmarks.load.generator"]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as process:
        assert process.stdin is not None and process.stdout is not None
        _say(process.stdin, json.dumps(asked))
        for line in process.stdout:
            said = json.loads(line)
            if "result" in said:
                used = usage.cpu_seconds(pid) - begin
                footprint = _footprint(load, sizes, stored)
                return _measured(load, said["result"], used, samples, footprint)
            if "at" in said:
                samples.append((said["at"], usage.memory(pid), usage.cpu_seconds(pid) - begin))
                progress(said["at"])
                continue
            if said["phase"] == "checked":
                compare(server.target.talk, said["numbers"])
            sizes[said["phase"]] = usage.memory(pid)
            stored = server.stored_bytes()
            begin = usage.cpu_seconds(pid)
            _say(process.stdin, "")
    raise RuntimeError("the load generator has failed; its output is above")


def _footprint(load: Load, sizes: dict[str, float], stored: int | None) -> dict[str, float | None]:
    """Bytes of memory per connection and per session, and bytes of a session in the database."""
    if not load.idle:
        return {}
    return {
        "per connection": (sizes["connected"] - sizes["checked"]) / (load.idle + load.active),
        "per session": (sizes["stored"] - sizes["connected"]) / load.idle,
        "per session, stored": stored and stored / load.idle,
    }


def _say(stdin: Any, line: str) -> None:
    stdin.write(line + "\n")
    stdin.flush()


def _measured(
    load: Load,
    result: dict[str, Any],
    used: float,
    samples: list[tuple[float, int, float]],
    footprint: dict[str, float | None],
) -> Measured:
    return Measured(
        load=load,
        messages=result["messages"],
        tokens=result["tokens"],
        in_all=result["in all"],
        abandoned=result["abandoned"],
        errors=result["errors"],
        latency=Histogram(**result["latency"]),
        slow=Histogram(**result["slow"]),
        late=Histogram(**result["late"]),
        server_cpu=used,
        client_cpu=result["cpu"],
        wall=samples[-1][0],
        samples=samples,
        footprint=footprint,
    )
