"""Every route under /v0: topics, records, routers, queues and watches, health and metrics.

To add a route, add an entry and write its handler; `routes.py` says how handlers are named.
"""

from __future__ import annotations

from typing import Final

from eventd.api.framework.route import BodyLimits, Route
from eventd.api.keys.scopes import Scope

_BODY: Final = BodyLimits(256 << 10)
_WAITING: Final = BodyLimits(64 << 10)
"""The body limit of requests that may wait: so small that the body does not count towards the memory for all
bodies."""
_RECORDS: Final = BodyLimits(64 << 20)

_TOPIC = "/v0/topics/{topic}"
_ROUTER = "/v0/routers/{router}"
_SSE = "text/event-stream"
_LOOK: Final[tuple[Scope, ...]] = ("look",)
_READ: Final[tuple[Scope, ...]] = ("read",)
_WRITE: Final[tuple[Scope, ...]] = ("write",)
_DELETE: Final[tuple[Scope, ...]] = ("delete",)
_ADMIN: Final[tuple[Scope, ...]] = ("admin",)
_WORK: Final[tuple[Scope, ...]] = ("read", "write")


def _settle(verb: str, summary: str) -> Route:
    handler = f"topics.queues:{verb}"
    return Route("POST", f"{_TOPIC}/{verb}", _WRITE, summary, handler, _BODY, refusals=(404, 409), keyed=True)


TOPIC_ROUTES: Final = (
    Route(
        "POST",
        _TOPIC,
        _WRITE,
        "Write a batch of records; a missing topic is created.",
        "topics.records:write",
        _RECORDS,
        creates=True,
        refusals=(409, 422),
    ),
    # It reads a page and compares nothing: /v0 fixes the name.
    Route(
        "POST",
        f"{_TOPIC}/diff",
        _READ,
        "Read the next page of a topic, or wait for one.",
        "topics.records:diff",
        _WAITING,
        may_be_empty=True,
    ),
    Route(
        "POST",
        f"{_TOPIC}/delete",
        _DELETE,
        "Delete records by seq, tag, or both.",
        "topics.records:delete",
        _BODY,
        refusals=(409,),
        frequent=True,
    ),
    Route(
        "POST",
        f"{_TOPIC}/claim",
        _WORK,
        "Claim jobs of a queue.",
        "topics.queues:claim",
        _WAITING,
        may_be_empty=True,
        refusals=(404, 409),
    ),
    _settle("ack", "Acknowledge jobs: their records are deleted."),
    _settle("nack", "Return jobs to their queue."),
    _settle("extend", "Extend the leases of jobs."),
    Route(
        "GET",
        f"{_TOPIC}/work",
        _WORK,
        "Receive jobs of a queue as server-sent events: `job`, `error`.",
        "topics.queues:work",
        media=_SSE,
        stream=True,
        refusals=(404, 406, 409, 429),
    ),
    Route("GET", "/v0/topics", _LOOK, "List topics.", "topics.topics:list_topics"),
    Route(
        "PUT",
        _TOPIC,
        _ADMIN,
        "Create a topic, or replace its configuration.",
        "topics.topics:put",
        _BODY,
        may_be_empty=True,
        creates=True,
        refusals=(409,),
    ),
    Route(
        "PATCH",
        _TOPIC,
        _ADMIN,
        "Change parts of a topic's configuration.",
        "topics.topics:patch",
        _BODY,
        refusals=(409,),
    ),
    Route("GET", _TOPIC, _LOOK, "Show the state of a topic.", "topics.topics:show"),
    Route(
        "DELETE",
        _TOPIC,
        _DELETE,
        "Delete a topic, its records, and routers that read or write it.",
        "topics.topics:delete",
        refusals=(409,),
    ),
    Route("GET", "/v0/routers", _READ, "List routers.", "topics.routers:list_routers"),
    Route(
        "PUT",
        _ROUTER,
        _ADMIN,
        "Create a router, or replace its configuration.",
        "topics.routers:put",
        _BODY,
        creates=True,
        refusals=(404, 409),
    ),
    Route("GET", _ROUTER, _READ, "Show the state of a router.", "topics.routers:show"),
    Route("DELETE", _ROUTER, _DELETE, "Delete a router.", "topics.routers:delete"),
    Route(
        "POST",
        "/v0/watch",
        _READ,
        "Begin a session that watches topics.",
        "topics.watch:begin_session",
        _BODY,
        refusals=(404, 429),
    ),
    Route(
        "GET",
        "/v0/watch/{wid}",
        _READ,
        "Follow a session as server-sent events: `record`, `tombstone`, `caught-up`, `topic-deleted`, `error`.",
        "topics.watch:stream",
        media=_SSE,
        stream=True,
        refusals=(404, 406, 429),
    ),
    Route(
        "GET",
        "/v0/ws",
        (),
        "Follow topics and publish to them over a WebSocket; needs a key where the node has keys.",
        "topics.websocket:serve",
        stream=True,
        upgrade=True,
        refusals=(400, 401, 403, 429),
    ),
    Route("GET", "/v0/health", (), "Show whether the process answers.", "system:show_v0_health", probe=True),
    Route("GET", "/v0/ready", (), "Show whether the node is ready.", "system:show_v0_ready", probe=True, unready=True),
    Route("GET", "/v0/metrics", _LOOK, "Metrics of topics.", "topics.metrics:show_metrics", media="text/plain"),
    Route("GET", "/v0/openapi.json", (), "Describe /v0 as OpenAPI 3.1.", "system:describe_topics"),
)
"""The routes that are called most often come first: a path is looked up in this order."""
