"""A collector of traces, for tests: takes OTLP over HTTP on loopback and keeps the spans."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)


class CollectedSpan:
    """A span as it arrived: ids as hex, attributes as values, links as span ids."""

    def __init__(self, span: Any, resource: dict[str, Any]) -> None:
        self.name: str = span.name
        self.trace_id: str = span.trace_id.hex()
        self.id: str = span.span_id.hex()
        self.parent: str = span.parent_span_id.hex()
        self.links: list[str] = [link.span_id.hex() for link in span.links]
        self.attributes = _values(span.attributes)
        self.events = [(event.name, _values(event.attributes)) for event in span.events]
        self.failed: bool = span.status.code == span.status.STATUS_CODE_ERROR
        self.seconds = (span.end_time_unix_nano - span.start_time_unix_nano) / 1e9
        self.resource = resource

    def __repr__(self) -> str:
        return f"{self.name}({self.attributes}, links={self.links}, parent={self.parent})"


def _values(attributes: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in attributes}


class Collector:
    """The collector. `status` of its answers; while `held` is not set, they wait. `is_endless`: they have no end."""

    def __init__(self) -> None:
        self.spans: list[CollectedSpan] = []
        self.requests = 0
        self.status = 200
        self.is_endless = False
        self.held = threading.Event()
        self.held.set()
        self.url = ""

    def take(self, body: bytes) -> None:
        """Keep the spans of a request."""
        request = ExportTraceServiceRequest.FromString(body)
        for group in request.resource_spans:
            resource = _values(group.resource.attributes)
            self.spans += [CollectedSpan(span, resource) for scope in group.scope_spans for span in scope.spans]

    def named(self, name: str, **attributes: Any) -> list[CollectedSpan]:
        """Return the spans of this name whose attributes `eventd.…` have these values."""
        wanted = {f"eventd.{key}": value for key, value in attributes.items()}.items()
        return [span for span in [*self.spans] if span.name == name and wanted <= span.attributes.items()]


@contextmanager
def collecting() -> Iterator[Collector]:
    """Run a collector on a free port."""
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            collector.requests += 1
            collector.held.wait(60)
            if self.path == "/v1/traces" and collector.status == 200:
                collector.take(body)
            self.send_response(collector.status)
            self.send_header("Content-Type", "application/x-protobuf")
            if 300 <= collector.status < 400:
                self.send_header("Location", f"{collector.url}/elsewhere")
            self.end_headers()
            self.wfile.write(ExportTraceServiceResponse().SerializeToString())
            with suppress(OSError):
                while collector.is_endless:
                    self.wfile.write(b"x" * 65536)

        def log_message(self, *_arguments: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        collector.url = f"http://127.0.0.1:{server.server_address[1]}"
        threading.Thread(target=server.serve_forever, name="collector", daemon=True).start()
        try:
            yield collector
        finally:
            collector.held.set()
            server.shutdown()
