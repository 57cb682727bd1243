"""All routes of /v0, from every surface."""

from __future__ import annotations

from eventd.api.topics import health, queues, records, routers, topics, watch, websocket
from eventd.api.topics.openapi import describing
from eventd.api.topics.routes import Route

_SERVED: tuple[Route, ...] = (
    *records.ROUTES,  # a path is looked for in this order: those that are asked for most come first
    *queues.ROUTES,
    *topics.ROUTES,
    *routers.ROUTES,
    *watch.ROUTES,
    *websocket.ROUTES,
    *health.ROUTES,
)

ROUTES: tuple[Route, ...] = (*_SERVED, describing(_SERVED))
