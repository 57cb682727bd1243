"""Exports spans with OpenTelemetry, over OTLP and HTTP. Only `start_tracing` imports this module."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import requests
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import Sampler
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)
from opentelemetry.trace import Span as RecordedSpan

from eventd.tracing.contexts import TraceContext
from eventd.tracing.losses import SpanLosses
from eventd.tracing.spans import Attributes, Kind, TracedWork, Value

QUEUE: Final = 2048
"""Maximum number of spans that wait for the collector; beyond it the oldest are dropped."""
_KINDS: Final = {"server": SpanKind.SERVER, "client": SpanKind.CLIENT, "internal": SpanKind.INTERNAL}


class _BoundedSession(requests.Session):
    """Reads only the head of an answer, so that a collector whose answer never ends costs no memory.

    `problem` is the status of the last answer, or the class of the last error.
    """

    problem = ""

    def send(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:
        """Send a request.

        Raises `requests.RequestException`, also for a redirect, because it means that the spans were not accepted.
        """
        try:
            response = super().send(request, **{**options, "stream": True, "allow_redirects": False})
        except requests.RequestException as error:
            self.problem = type(error).__name__  # its text holds the URL
            raise
        response.close()
        self.problem = f"it answers with HTTP status {response.status_code}"
        if 300 <= response.status_code < 400:
            raise requests.HTTPError(f"the collector answered {response.status_code}")
        response._content = b""
        return response


class _CountingExporter(SpanExporter):
    """Counts the spans that the collector accepts and those that it does not."""

    def __init__(self, exporter: SpanExporter, session: _BoundedSession, losses: SpanLosses) -> None:
        self._exporter = exporter
        self._session = session
        self._losses = losses
        self.exported = 0
        self.failed = 0
        self.taken = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.taken += len(spans)
        result = self._exporter.export(spans)
        if result is SpanExportResult.SUCCESS:
            self.exported += len(spans)
            self._losses.succeeded()
        else:
            self.failed += len(spans)
            self._losses.failed(self._session.problem or "it was not reached")
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()


class _CountingProcessor(BatchSpanProcessor):
    """Counts the spans that are dropped because too many wait."""

    def __init__(self, exporter: _CountingExporter) -> None:
        super().__init__(exporter, max_queue_size=QUEUE)
        self._counting = exporter
        self._queued = 0
        self.dropped = 0

    def on_end(self, span: ReadableSpan) -> None:
        if span.context is not None and span.context.trace_flags.sampled:
            if self._queued - self._counting.taken - self.dropped >= QUEUE:
                self.dropped += 1  # this one displaces the oldest
            self._queued += 1
        super().on_end(span)


class _OtlpSpan:
    """A span of OpenTelemetry."""

    __slots__ = ("_discarded", "_span", "context")

    def __init__(self, span: RecordedSpan) -> None:
        known = span.get_span_context()
        self._span = span
        self._discarded = False
        self.context = TraceContext(f"{known.trace_id:032x}", f"{known.span_id:016x}", known.trace_flags.sampled)

    def set(self, name: str, value: Value) -> None:
        self._span.set_attribute(name, value)

    def fail(self, reason: str) -> None:
        self._span.set_status(Status(StatusCode.ERROR))
        self._span.set_attribute("error.type", reason)

    def discard(self) -> None:
        self._discarded = True

    def end(self) -> None:
        if not self._discarded:
            self._span.end()


class OtlpExporter:
    """Exports spans over OTLP. The variables `OTEL_…` give the address, the headers and the sampling."""

    def __init__(
        self, attributes: Attributes, version: str, sampler: Sampler | None, monotonic: Callable[[], float]
    ) -> None:
        """Raises what the SDK raises for a variable that it refuses.

        `sampler`: None for the sampler that the environment names.
        """
        # What the exporter logs about a collector that is down names its URL, and repeats itself: `losses` logs it.
        for name in ("opentelemetry", "urllib3"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        self._losses, session = SpanLosses(monotonic), _BoundedSession()
        self._exporter = _CountingExporter(OTLPSpanExporter(session=session), session, self._losses)
        self._processor = _CountingProcessor(self._exporter)
        self._provider = TracerProvider(sampler=sampler, resource=Resource.create(attributes), shutdown_on_exit=False)
        self._provider.add_span_processor(self._processor)
        self._tracer = self._provider.get_tracer("eventd", version)

    def begin(
        self,
        name: str,
        kind: Kind,
        parent: TraceContext | None,
        links: Iterable[TraceContext],
        attributes: Attributes,
        began: int | None,
    ) -> TracedWork:
        """Return a span that has begun, at `began` (nanoseconds since 1970) or now."""
        span = self._tracer.start_span(
            name,
            context=_as_parent(parent),
            kind=_KINDS[kind],
            attributes=attributes,
            links=[Link(_as_remote(link)) for link in links],
            start_time=began,
        )
        return _OtlpSpan(span)

    def report(self, kind: str, message: str, frames: str, about: Attributes, parent: TraceContext | None) -> None:
        """Export an error as a span of its own with one event `exception`, which backends show as an error."""
        span = self._tracer.start_span("error", context=_as_parent(parent), attributes=about)
        told = {"exception.type": kind, "exception.message": message, "exception.stacktrace": frames}
        span.add_event("exception", told)
        span.set_status(Status(StatusCode.ERROR))
        span.end()

    def counts(self) -> Mapping[str, int]:
        """Return the number of spans that were exported, that a collector has not taken, and that were dropped."""
        exporter = self._exporter
        return {"exported": exporter.exported, "failed": exporter.failed, "dropped": self._processor.dropped}

    def loss(self) -> str:
        """Return why the last spans were not exported; empty if they were."""
        return self._losses.reason

    def close(self, seconds: float) -> None:
        """Export the waiting spans, for at most this number of seconds: the SDK itself would wait for a collector that
        is down."""
        closing = threading.Thread(target=self._provider.shutdown, name="trace-flush", daemon=True)
        closing.start()
        closing.join(seconds)


def _as_parent(parent: TraceContext | None) -> Context:
    return Context() if parent is None else set_span_in_context(NonRecordingSpan(_as_remote(parent)), Context())


def _as_remote(context: TraceContext) -> SpanContext:
    flags = TraceFlags(TraceFlags.SAMPLED if context.sampled else TraceFlags.DEFAULT)
    return SpanContext(int(context.trace_id, 16), int(context.span_id, 16), is_remote=True, trace_flags=flags)
