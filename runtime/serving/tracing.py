"""OpenTelemetry spans: one per HTTP request, and one per step of a stream, over HTTP, WebSocket or gRPC.

The server creates spans if the process has a tracer provider. It does not export them itself: with
`opentelemetry-instrument tsm-serve MODEL`, the OTEL_* variables say where they go.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from .streams.steps import Step
from .transport.http import Gone, Request
from .transport.problems import Problem

NOTHING: AbstractContextManager[Any] = nullcontext()


class Tracing:
    """provider: a tracer provider of OpenTelemetry's SDK; None: no spans are made."""

    def __init__(self, provider: Any = None) -> None:
        self.tracer: Any = None if provider is None else provider.get_tracer("tsm.serving")

    @classmethod
    def of_process(cls) -> Tracing:
        """Uses the tracer provider that the process was started with, if any."""
        try:
            from opentelemetry import trace
        except ImportError:
            return cls()
        provider = trace.get_tracer_provider()
        return cls(None if isinstance(provider, trace.ProxyTracerProvider) else provider)

    def request(self, request: Request, route: str) -> AbstractContextManager[Any]:
        """Opens a span for an HTTP request, in the trace that its headers name."""
        if self.tracer is None:
            return NOTHING
        from opentelemetry.propagate import extract
        from opentelemetry.trace import SpanKind

        headers = request.scope["headers"]
        context = extract({name.decode("latin-1"): v.decode("latin-1") for name, v in headers})
        facts = {"http.request.method": request.method, "url.path": request.path[:200]}
        name = f"{request.method} {route}"
        return self._span(name, facts, context=context, kind=SpanKind.SERVER)

    def step(self, step: Step) -> AbstractContextManager[Any]:
        if self.tracer is None:
            return NOTHING
        return self._span(f"step {step.action}", {"tsm.model": step.model or ""})

    @contextmanager
    def _span(self, name: str, facts: dict[str, Any], **more: Any) -> Iterator[None]:
        """A refusal (4xx) is not marked as an error; a server failure (5xx) or a bug is."""
        from opentelemetry.trace import StatusCode

        options = {"record_exception": False, "set_status_on_exception": False, **more}
        with self.tracer.start_as_current_span(name, attributes=facts, **options) as span:
            try:
                yield
            except Problem as problem:
                span.set_attribute("http.response.status_code", problem.status)
                if problem.status >= 500:
                    span.set_status(StatusCode.ERROR, problem.detail)
                raise
            except Gone:
                raise
            except Exception as bug:
                span.record_exception(bug)
                span.set_status(StatusCode.ERROR, type(bug).__name__)
                raise
