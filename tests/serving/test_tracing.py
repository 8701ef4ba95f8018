"""Spans of requests and steps, as OpenTelemetry's SDK collects them."""

from __future__ import annotations

import asyncio
import json

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tsm.runtime.serving.server import Options, Replica
from tsm.runtime.serving.streams.models import Source
from tsm.runtime.serving.tracing import Tracing

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.fixture
def collected():
    """A provider, and the spans that it was given."""
    provider, spans = TracerProvider(), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    return provider, spans


async def post(replica, path, body):
    """Sends a request with a `traceparent`; returns its status."""
    sent = []
    headers = [(b"host", b"localhost"), (b"traceparent", f"00-{TRACE}-{PARENT}-01".encode())]
    scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "query_string": b"",
        "headers": headers,
    }

    async def receive():
        return {"type": "http.request", "body": json.dumps(body).encode()}

    async def send(message):
        sent.append(message)

    await replica.app(scope, receive, send)
    return sent[0]["status"]


async def talk(replica, path, *messages):
    """Sends messages over a WebSocket that was opened with a `traceparent`; returns the answers."""
    sent = []
    headers = [(b"host", b"localhost"), (b"traceparent", f"00-{TRACE}-{PARENT}-01".encode())]
    texts = [{"type": "websocket.receive", "text": json.dumps(one)} for one in messages]
    arriving = iter([{"type": "websocket.connect"}, *texts, {"type": "websocket.disconnect"}])

    async def receive():
        return next(arriving)

    async def send(message):
        sent.append(message)

    await replica.app({"type": "websocket", "path": path, "headers": headers}, receive, send)
    return [json.loads(one["text"]) for one in sent if one["type"] == "websocket.send"]


def traced(files, provider, *requests, send=post):
    """Sends requests to a replica with this provider; returns their statuses."""

    async def run():
        replica = Replica(Options([Source("lm", str(files["lm"]))], log="off"))
        replica.app.service = await replica.start()
        replica.service.tracing = Tracing(provider)
        found = [await send(replica, *request) for request in requests]
        await replica.end(replica.service)
        return found

    return asyncio.run(run())


def test_a_step_is_a_child_of_its_request(files, collected):
    provider, spans = collected
    assert traced(files, provider, ("/v1/sessions/a/feed", {"tokens": [1, 2]})) == [200]
    step, request = spans.get_finished_spans()
    assert (step.name, step.parent.span_id) == ("step feed", request.context.span_id)
    assert (
        f"{request.context.trace_id:032x}" == TRACE and f"{request.parent.span_id:016x}" == PARENT
    )
    assert request.attributes["url.path"] == "/v1/sessions/a/feed"


def test_a_refused_request_has_its_status(files, collected):
    provider, spans = collected
    assert traced(files, provider, ("/v1/sessions/a/feed", {"tokens": []})) == [400]
    assert all(
        span.attributes["http.response.status_code"] == 400 and span.status.is_unset
        for span in spans.get_finished_spans()
    )
    assert len(spans.get_finished_spans()) == 2


def test_a_bug_is_an_error(files, collected, monkeypatch):
    async def broken(*_):
        raise ValueError("a bug")

    provider, spans = collected
    monkeypatch.setattr("tsm.runtime.serving.session.sessions.Sessions.step", broken)
    assert traced(files, provider, ("/v1/sessions/a/feed", {"tokens": [1]})) == [500]
    step, request = spans.get_finished_spans()
    assert not step.status.is_ok and not step.status.is_unset
    assert not request.status.is_unset and request.events[0].name == "exception"


def test_a_step_over_a_websocket_has_a_trace_of_its_own(files, collected):
    provider, spans = collected
    messages = ({"op": "score", "tokens": [1, 2]}, {"tokens": [99]}, {"op": "generate", "n": 2})
    ((scored, refused, *drawn),) = traced(
        files, provider, ("/v1/sessions/a/stream", *messages), send=talk
    )
    assert (scored["position"], refused["error"]["status"], drawn[-1]["position"]) == (2, 400, 4)
    found = spans.get_finished_spans()
    assert [span.name for span in found] == ["step score", "step feed", "step generate"]
    assert all(span.parent is None for span in found)
    assert len({span.context.trace_id for span in found} | {int(TRACE, 16)}) == 4
    statuses = [span.attributes.get("http.response.status_code") for span in found]
    assert statuses == [None, 400, None] and all(span.status.is_unset for span in found)


def test_no_spans_without_a_provider(files, collected, monkeypatch):
    assert Tracing.of_process().tracer is None
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: collected[0])
    assert Tracing.of_process().tracer is not None
    assert traced(files, None, ("/v1/sessions/a/feed", {"tokens": [1]})) == [200]
    assert not collected[1].get_finished_spans()
