"""Counters and times for Prometheus: `GET /metrics`."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter as Counted
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from .session.sessions import Sessions

BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)

BOUNDS = [*map(str, map(float, BUCKETS)), "+Inf"]


@dataclass
class Times:
    """Durations of requests: how many fall into each bucket, and their sum in seconds."""

    counts: list[int] = field(default_factory=lambda: [0] * len(BOUNDS))
    total: float = 0.0


class Metrics:
    """Counts requests by route and status, with their durations; also reports the counters of sessions, pools
    and store."""

    def __init__(self, sessions: Sessions) -> None:
        from prometheus_client import CollectorRegistry, Counter, Gauge

        self.sessions = sessions
        self.registry = CollectorRegistry()
        self.requests: Counted[tuple[str, int]] = Counted()  # by route and status
        self.times: dict[str, Times] = {}  # by route
        common: dict[str, Any] = {"registry": self.registry}
        self.sockets = Gauge("tsm_websockets", "Open WebSockets.", **common)
        self.reloads = Counter("tsm_model_reloads", "Model files loaded again.", **common)
        self.registry.register(self)

    def answered(self, route: str, status: int, seconds: float) -> None:
        """Counts an answered request or message. prometheus_client's own counters take five times as long."""
        self.requests[route, status] += 1
        if (times := self.times.get(route)) is None:
            times = self.times[route] = Times()
        times.counts[bisect_left(BUCKETS, seconds)] += 1
        times.total += seconds

    def collect(self) -> Iterable[Any]:
        """All counters, read when Prometheus asks."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        yield from self._of_requests()
        sessions = self.sessions
        yield GaugeMetricFamily(
            "tsm_sessions_stored", "Sessions in the store.", value=sessions.room.stored
        )
        yield GaugeMetricFamily("tsm_sessions_hot", "Sessions in memory.", value=len(sessions.hot))
        unwritten = len(sessions.writes.unsettled)
        yield GaugeMetricFamily(
            "tsm_sessions_unwritten", "Sessions with steps not stored yet.", value=unwritten
        )
        yield CounterMetricFamily(
            "tsm_store_batches", "Transactions of the store.", value=sessions.commits.batches
        )
        yield CounterMetricFamily(
            "tsm_store_operations", "Operations in transactions.", value=sessions.commits.operations
        )
        labels = ["model", "version", "name"]
        pool = GaugeMetricFamily("tsm_pool", "Counters of the stream pools.", labels=labels)
        for engine in sessions.models.all():
            for name, value in engine.streams.stats().items():
                if isinstance(value, int | float):
                    pool.add_metric([engine.name, engine.model.checksum, name], value)
        yield pool

    def _of_requests(self) -> Iterable[Any]:
        from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily

        labels = ["route", "status"]
        requests = CounterMetricFamily("tsm_requests", "Requests answered.", labels=labels)
        for (route, status), count in self.requests.items():
            requests.add_metric([route, str(status)], count)
        yield requests
        seconds = HistogramMetricFamily("tsm_request_seconds", "Time to answer.", labels=["route"])
        for route, times in self.times.items():
            buckets = [*zip(BOUNDS, accumulate(times.counts), strict=True)]
            seconds.add_metric([route], buckets, times.total)
        yield seconds

    def page(self) -> bytes:
        from prometheus_client import generate_latest

        return generate_latest(self.registry)
