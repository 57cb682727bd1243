"""The span of a request."""

from __future__ import annotations

from aiohttp import web

from eventd.api.errors.faults import Handler
from eventd.api.framework.route import Route
from eventd.errors import EventdError, Unauthorized
from eventd.tracing import tracing
from eventd.tracing.contexts import TRACEPARENT, read_context


def traced(route: Route, handler: Handler) -> Handler:
    """Return the handler, in a span of its own while tracing is on.

    Probes and streams have no span, nor do requests without a valid key, so that strangers cannot fill the collector.
    Only a fault of the node fails the span (OpenTelemetry's conventions for HTTP); other errors are its `error.type`.
    """
    if route.stream or not route.scopes or not tracing.on:
        return handler
    name, about = f"{route.method} {route.path}", {"http.request.method": route.method, "http.route": route.path}

    async def serve(request: web.Request) -> web.StreamResponse:
        parent = read_context(request.headers.get(TRACEPARENT))
        with tracing.span(name, "server", parent=parent, attributes=about) as span:
            try:
                response = await handler(request)
            except Unauthorized as error:
                span.discard()
                refused: EventdError = error
            except EventdError as error:
                status = route.surface.form.status(error)
                span.set("http.response.status_code", status)
                span.set("error.type", error.code)
                if status >= 500:
                    span.fail(error.code)
                refused = error
            else:
                span.set("http.response.status_code", response.status)
                return response
        raise refused

    return serve
