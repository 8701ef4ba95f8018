"""Counters and times for Prometheus: `GET /metrics`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from .session.sessions import Sessions

if TYPE_CHECKING:
    from prometheus_client import Counter

BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)


class Metrics:
    """Requests by route and status with their times, and the counters of sessions, pools and store."""

    def __init__(self, sessions: Sessions) -> None:
        from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

        self.sessions = sessions
        self.registry = CollectorRegistry()
        labels = ["route", "status"]
        common: dict[str, Any] = {"registry": self.registry}
        self.requests = Counter("tsm_requests", "Requests answered.", labels, **common)
        self.seconds = Histogram(
            "tsm_request_seconds", "Time to answer.", ["route"], buckets=BUCKETS, **common
        )
        self.sockets = Gauge("tsm_websockets", "Open WebSockets.", **common)
        self.reloads = Counter("tsm_model_reloads", "Model files loaded again.", **common)
        self.registry.register(self)
        self.message_seconds = self.seconds.labels("websocket")
        self.messages: dict[int, Counter] = {}  # by status

    def message(self, status: int, seconds: float) -> None:
        """Counts an answered WebSocket message. Label lookups are cached: `labels` costs more than the rest."""
        if status not in self.messages:
            self.messages[status] = self.requests.labels("websocket", str(status))
        self.messages[status].inc()
        self.message_seconds.observe(seconds)

    def collect(self) -> Iterable[Any]:
        """The counters of sessions, store and pools, read whenever Prometheus scrapes them."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        sessions = self.sessions
        yield GaugeMetricFamily(
            "tsm_sessions_stored", "Sessions in the store.", value=sessions.stored
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

    def page(self) -> bytes:
        from prometheus_client import generate_latest

        return generate_latest(self.registry)
