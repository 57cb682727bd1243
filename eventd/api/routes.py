"""Every route of a node's API, in tables.

To add a route, add an entry to one of them and write its handler:

 - `OPERATIONS`: what an operator does, under /api/v1; `routerctl` can run these without HTTP, too;
 - `HISTORY_OPERATIONS` and `LOG_FILES` of `history_routes.py`: those of the verifiable history;
 - `TOPIC_ROUTES` of `topic_routes.py`: everything under /v0: topics, routers, queues and watches, health and metrics;
 - `_ALSO_HEAD`: all others, for GET and HEAD; only `EXCHANGE` is a POST, and `PUBLISH` a WebSocket.

Handlers are named by their place below `eventd.api` and loaded when they are first needed, so that a command can look
up the address of an operation, or run one, without loading all others.
"""

from __future__ import annotations

from typing import Final

from eventd.api.framework.route import BodyLimits, Route
from eventd.api.history_routes import HISTORY_OPERATIONS, LOG_FILES
from eventd.api.keys.scopes import Scope
from eventd.api.topic_routes import TOPIC_ROUTES

_PARAMS: Final = BodyLimits(1 << 20, values=20_000)
RESOURCES: Final = BodyLimits(16 << 20, values=10_000)
"""The limits of bodies that contain resource files: few values, because the text of each file is a single value."""
EVENTS: Final = BodyLimits(64 << 20, values=500_000)
PROOFS: Final = BodyLimits(8 << 20, values=1_000)
"""The limits of bodies that contain a proof file, whose event may be escaped."""

_GROUP = "/groups/{group}"
_RESOURCE = "/resources/{kind}/{name}"
_PEER = f"{_GROUP}/peers/{{peer}}"
_LETTERS = f"{_GROUP}/dead-letters"
_SUBSCRIPTION = "/subscriptions/{subscription}"
_CALLBACK = "/callbacks/{callback}"
_SSE = "text/event-stream"


def _get(path: str, handler: str, summary: str, scope: Scope = "read") -> Route:
    return Route("GET", f"/api/v1{path}", (scope,), summary, handler)


def _look(path: str, handler: str, summary: str, *withheld: str) -> Route:
    """Return a route that shows states, counts and names; the members `withheld` only to keys with `read`."""
    return Route("GET", f"/api/v1{path}", ("look",), summary, handler, withheld=withheld)


def _post(path: str, handler: str, scope: Scope, summary: str, body: BodyLimits = _PARAMS) -> Route:
    return Route("POST", f"/api/v1{path}", (scope,), summary, handler, body)


def _act(path: str, handler: str, summary: str) -> Route:
    """Return the route of an operation that needs the scope of the action that it is about."""
    return Route("POST", f"/api/v1{path}", ("admin", "delete"), summary, handler, _PARAMS, any_scope=True)


def _delete(path: str, handler: str, summary: str) -> Route:
    return Route("DELETE", f"/api/v1{path}", ("admin",), summary, handler, _PARAMS)


OPERATIONS: Final[dict[str, Route]] = {
    "groups.status": _look(
        "/status",
        "admin.resources.groups:show_status",
        "Show the size of each group, and the states of its links",
        "listen",
    ),
    "map.show": _look(
        "/map", "admin.deliveries.map:show_map", "Show the nodes and links of a group that this node knows of"
    ),
    "rates.show": _look("/rates", "admin.deliveries.rates:show_rates", "Show the rates of the last 15 minutes"),
    "resources.apply": _post(
        "/resources/apply", "admin.resources.resources:apply", "admin", "Apply resources, atomically", RESOURCES
    ),
    "resources.diff": _post(
        "/resources/diff",
        "admin.resources.resources:diff",
        "read",
        "Show what applying resources would change",
        RESOURCES,
    ),
    "resources.list": _get("/resources", "admin.resources.resources:list_resources", "List applied resources"),
    "resources.get": _get(_RESOURCE, "admin.resources.resources:get", "Show an applied resource"),
    "resources.describe": _get(
        f"{_RESOURCE}/describe", "admin.resources.resources:describe", "Show a resource with its defaults and its state"
    ),
    "resources.wait": _get(
        "/wait", "admin.conditions:wait", "Wait until a resource, an event, a queue or the node meets a condition"
    )._replace(holds=True),
    "names.list": _get(
        "/names", "admin.resources.names:list_names", "List names that begin with a prefix, for completion"
    ),
    "resources.delete": _delete(_RESOURCE, "admin.resources.resources:delete", "Delete a resource"),
    "resources.delete_sources": _post(
        "/resources/delete",
        "admin.resources.resources:delete_sources",
        "admin",
        "Delete the resources that files name",
        RESOURCES,
    ),
    "events.emit": _post(f"{_GROUP}/events", "admin.events.events:emit", "write", "Emit events", EVENTS),
    "events.list": _get(f"{_GROUP}/events", "admin.events.events:list_events", "List events"),
    "events.search": _get(
        f"{_GROUP}/search", "admin.events.event_search:search", "Search the events of a group, the newest first"
    ),
    "events.find": _get("/events/{id}", "admin.events.event_search:find", "Find an event by its id in all groups"),
    "events.describe": _get(
        f"{_GROUP}/events/{{id}}",
        "admin.events.event_description:describe",
        "Show an event with its deliveries, runs, parts and dead letters",
    ),
    "events.payload": _get(
        f"{_GROUP}/events/{{id}}/payload",
        "admin.events.event_description:download_payload",
        "Download the payload of an event as the bytes that are stored",
    )._replace(media="application/octet-stream"),
    "events.prune": _post(
        f"{_GROUP}/prune", "admin.events.events:prune", "delete", "Apply the retention of the group now"
    )._replace(outside=True),
    "events.release": _post(
        f"{_GROUP}/events/{{id}}/release",
        "admin.history.id_release:release",
        "admin",
        "Free the id of an event that an event of another source has taken",
        PROOFS,
    ),
    "deliveries.list": _get(
        f"{_GROUP}/deliveries",
        "admin.deliveries.deliveries:list_deliveries",
        "List the state of each event at each peer",
    ),
    "deliveries.summary": _look(
        f"{_GROUP}/deliveries/summary",
        "admin.deliveries.deliveries:summarise",
        "Count the deliveries to each peer by state",
    ),
    "deliveries.redeliver": _post(
        f"{_PEER}/redeliver", "admin.deliveries.redelivery:redeliver", "admin", "Send events to a peer again"
    ),
    "links.status": _look(
        f"{_GROUP}/links",
        "admin.deliveries.links:show_links",
        "Show the links in both directions, with the lag of those to peers",
        "endpoint",
        "lastError",
    ),
    "links.gaps": _look(
        f"{_GROUP}/gaps", "admin.deliveries.links:list_gaps", "List the ranges that senders lost or took back"
    ),
    "links.pause": _post(f"{_PEER}/pause", "admin.deliveries.links:pause", "admin", "Pause the link to a peer"),
    "links.resume": _post(
        f"{_PEER}/resume", "admin.deliveries.links:resume", "admin", "Resume the link to a peer, at once"
    ),
    "links.verify": _post(
        f"{_PEER}/verify", "verify.operations:verify", "read", "Compare what a peer holds with the delivery ledger"
    ),
    "links.pull": _post(
        f"{_PEER}/pull", "verify.pulling:pull", "admin", "Get events of this node that its log lacks back from a peer"
    )._replace(holds=True),
    "links.verifications": _look(
        f"{_GROUP}/verifications", "verify.history:list_verifications", "List the results of verifications", "why"
    ),
    "dead_letters.list": _get(_LETTERS, "admin.deliveries.dead_letters:list_letters", "List dead letters"),
    "dead_letters.all": _get(
        "/dead-letters",
        "admin.deliveries.all_dead_letters:list_all",
        "List the dead letters of all owners, grouped by reason",
    ),
    "dead_letters.retry_chosen": _post(
        "/dead-letters/retry",
        "admin.bulk.chosen_dead_letters:retry",
        "admin",
        "Send chosen dead letters of any owners once more",
    ),
    "dead_letters.drop_chosen": _post(
        "/dead-letters/drop", "admin.bulk.chosen_dead_letters:drop", "delete", "Drop chosen dead letters of any owners"
    ),
    "dead_letters.retry": _post(
        f"{_LETTERS}/retry", "admin.deliveries.dead_letters:retry", "admin", "Send dead letters once more"
    ),
    "dead_letters.drop": _post(f"{_LETTERS}/drop", "admin.deliveries.dead_letters:drop", "delete", "Drop dead letters"),
    # In paths and answers, "book" is the name of a ledger table.
    "books.list": _get("/books", "admin.events.export:list_books", "List the ledger tables and how far each reaches"),
    "books.read": _get("/books/{book}", "admin.events.export:read_rows", "Read rows of a ledger table as columns"),
    "doctor.examine": _look(
        "/doctor",
        "doctor.operations:examine",
        "Check the node and propose fixes",
        "detail",
        "remedy",
        "reason",
    ),
    "doctor.fix": _post(
        "/doctor/fix", "doctor.operations:fix", "admin", "Check the node and apply the fixes that are safe"
    )._replace(outside=True),
    "subscriptions.list": _look(
        "/subscriptions",
        "admin.subscriptions.subscriptions:list_subscriptions",
        "List subscriptions with their state",
        "lastError",
        "lastRun",
    ),
    "subscriptions.runs": _get(
        f"{_SUBSCRIPTION}/runs",
        "admin.subscriptions.subscription_runs:list_runs",
        "List a subscription's runs, event by event",
    ),
    "subscriptions.retry": _post(
        f"{_SUBSCRIPTION}/retry",
        "admin.subscriptions.subscriptions:retry",
        "admin",
        "Retry failed runs and dead letters at once",
    ),
    "subscriptions.reset": _post(
        f"{_SUBSCRIPTION}/reset",
        "admin.subscriptions.subscriptions:reset",
        "admin",
        "Move a subscription to another place in the log",
    ),
    "subscriptions.pause": _post(
        f"{_SUBSCRIPTION}/pause", "admin.subscriptions.subscriptions:pause", "admin", "Pause a subscription"
    ),
    "subscriptions.resume": _post(
        f"{_SUBSCRIPTION}/resume", "admin.subscriptions.subscriptions:resume", "admin", "Resume a subscription, at once"
    ),
    "callbacks.list": _look(
        "/callbacks",
        "admin.callbacks.callbacks:list_callbacks",
        "List callbacks with their state",
        "url",
        "lastError",
    ),
    "callbacks.describe": _get(
        _CALLBACK, "admin.callbacks.callbacks:describe", "Show a callback with its limits, keys and newest attempts"
    ),
    "callbacks.attempts": _get(
        f"{_CALLBACK}/attempts", "admin.callbacks.callbacks:list_attempts", "List the requests to a callback's endpoint"
    ),
    "callbacks.test": _post(
        f"{_CALLBACK}/test", "admin.callbacks.callbacks:test", "admin", "Send a test message to a callback's endpoint"
    )._replace(outside=True),
    "callbacks.pause": _post(f"{_CALLBACK}/pause", "admin.callbacks.callbacks:pause", "admin", "Pause a callback"),
    "callbacks.resume": _post(
        f"{_CALLBACK}/resume", "admin.callbacks.callbacks:resume", "admin", "Resume a callback, at once"
    ),
    "callbacks.reset": _post(
        f"{_CALLBACK}/reset",
        "admin.callbacks.callback_resets:reset",
        "admin",
        "Move a callback to another place in the log",
    ),
    "callbacks.resend": _post(
        f"{_CALLBACK}/resend",
        "admin.callbacks.callback_resends:resend",
        "admin",
        "Send events to a callback again, by id",
    ),
    "callbacks.replay": _post(
        f"{_CALLBACK}/replay",
        "admin.callbacks.callback_resends:replay",
        "admin",
        "Send a range of events to a callback again",
    ),
    "callback_letters.list": _get(
        f"{_CALLBACK}/dead-letters", "admin.callbacks.callback_resends:list_letters", "List a callback's dead letters"
    ),
    "callback_letters.retry": _post(
        f"{_CALLBACK}/dead-letters/retry",
        "admin.callbacks.callback_resends:retry_letters",
        "admin",
        "Send dead letters of a callback once more",
    ),
    "callback_letters.drop": _post(
        f"{_CALLBACK}/dead-letters/drop",
        "admin.callbacks.callback_resends:drop_letters",
        "delete",
        "Drop dead letters of a callback",
    ),
    "jobs.plan": _act(
        "/jobs/plan", "admin.bulk.bulk_jobs:plan", "Count the dead letters that a bulk job would retry or drop"
    )._replace(plans=True),
    "jobs.start": _act("/jobs", "admin.bulk.bulk_jobs:start", "Start the bulk job of a plan"),
    "jobs.list": _get("/jobs", "admin.bulk.bulk_jobs:list_jobs", "List bulk jobs"),
    "jobs.get": _get("/jobs/{number}", "admin.bulk.bulk_jobs:get", "Show a bulk job with its results"),
    "jobs.cancel": _act(
        "/jobs/{number}/cancel", "admin.bulk.bulk_jobs:cancel", "Cancel a bulk job before its next step"
    ),
    "dynamic.list": _get(
        "/dynamic/parts", "admin.resources.dynamic:list_parts", "List the parts that plugins have derived"
    ),
    "dynamic.describe": _get(
        "/dynamic/part", "admin.resources.dynamic:describe", "Show one part, or all parts of an owner"
    ),
    "dynamic.delete": _delete(
        "/dynamic/part", "admin.resources.dynamic:delete", "Delete a part and what it contributes"
    ),
    "dynamic.render": _post(
        "/dynamic/render",
        "admin.resources.dynamic:render",
        "read",
        "Merge the live parts into the declared resources, or into given ones, without storing anything",
        RESOURCES,
    ),
    "dynamic.diff": _post(
        "/dynamic/diff",
        "admin.resources.dynamic:diff",
        "read",
        "Show how the live parts change the declared resources, or given ones",
        RESOURCES,
    ),
    "plugins.list": _get("/plugins", "admin.subscriptions.plugins:list_plugins", "List applied plugins"),
    "plugins.run": _post(
        "/plugins/{name}/run", "admin.subscriptions.plugins:run_plugin", "admin", "Run a plugin once, without events"
    )._replace(outside=True),
    "plugins.check": _post(
        "/plugins/{name}/check",
        "admin.subscriptions.plugins:check_plugin",
        "admin",
        "Run a plugin with sample requests and check its answers",
    )._replace(outside=True),
    "plugins.runs": _get(
        "/plugin-runs", "admin.subscriptions.plugins:list_runs", "List plugin runs with their results"
    ),
    "keys.create": _post("/keys", "admin.keys:create", "admin", "Create an API key; the answer shows it once")._replace(
        secret=True
    ),
    "callers.show": _look("/caller", "admin.callers:show_caller", "Show what the key of the request may do"),
    "keys.list": _get("/keys", "admin.keys:list_keys", "List created API keys, without their secrets", "admin"),
    "keys.revoke": _post("/keys/{name}/revoke", "admin.keys:revoke", "admin", "Revoke an API key at once"),
    "sessions.list": _get(
        "/sessions", "admin.console_sessions:list_sessions", "List the sessions of the console", "admin"
    ),
    "sessions.end": _post(
        "/sessions/{id}/end", "admin.console_sessions:end", "admin", "End a session of the console at once"
    ),
    "routemaster.topics": _look(
        "/routemaster/topics", "admin.routemaster:list_topics", "List the topics of the Routemaster surface"
    ),
    "routemaster.claim": _post(
        "/routemaster/topics/{name}/claim",
        "admin.routemaster:claim",
        "admin",
        "Hand the claim of a topic over to another client, or release it",
    ),
    "routemaster.subscribers": _look(
        "/routemaster/subscribers",
        "admin.routemaster:list_subscribers",
        "List the subscribers of the Routemaster surface, and how many events wait for each",
        "callback",
        "keyIds",
    ),
    "routemaster.sign": _post(
        "/routemaster/subscribers/{client}/keys",
        "admin.routemaster:sign",
        "admin",
        "Set the keys that sign the requests to a subscriber of the Routemaster surface",
    ),
    "routemaster.create_token": _post(
        "/routemaster/tokens",
        "admin.routemaster:create_token",
        "admin",
        "Create a token of the Routemaster surface; the answer shows it once",
    )._replace(secret=True),
    "routemaster.tokens": _get(
        "/routemaster/tokens",
        "admin.routemaster:list_tokens",
        "List the tokens of the Routemaster surface by their handles",
        "admin",
    ),
    "routemaster.rotate_token": _post(
        "/routemaster/tokens/{handle}/rotate",
        "admin.routemaster:rotate_token",
        "admin",
        "Give a client a new token, and end its present ones after a grace period",
    )._replace(secret=True),
    "routemaster.revoke_token": _post(
        "/routemaster/tokens/{handle}/revoke", "admin.routemaster:revoke_token", "admin", "Delete a token at once"
    ),
    "actions.list": _get(
        "/actions", "admin.actions:list_actions", "List the record of actions: who did what, newest first", "admin"
    ),
    "node.settings": _get(
        "/settings", "admin.node_settings:show", "Show the settings of the node with their origins", "admin"
    ),
    "topology.show": _get(
        "/topology",
        "admin.deliveries.topology:show",
        "Show the routing graph, and check it as if routers were added or removed",
    ),
    "queues.list": _look(
        "/queues", "admin.queues:list_all", "List queues with their jobs, and when the oldest ready one was written"
    ),
    "queues.leases": _get(
        "/queues/{topic}/leases", "admin.queue_leases:list_leases", "List the leased and delayed jobs of a queue"
    ),
    "audits.list": _get("/audits", "admin.audit_reports:list_audits", "List the reports of audits, newest first"),
    "audits.report": _get(
        "/audits/{name}/report", "admin.audit_reports:download_report", "Download the page of an audit's report"
    )._replace(media="application/octet-stream"),
    "queues.release": _post(
        "/queues/{topic}/release", "admin.queue_leases:release", "admin", "Make delayed jobs of a queue ready at once"
    ),
    "queues.retry": _post(
        "/queues/{topic}/retry", "admin.queue_leases:retry", "admin", "Return dead letters of a queue to it as new jobs"
    )._replace(outside=True),
    "lake.status": _look(
        "/lake",
        "admin.lake:show_lake",
        "Show how far each ledger table has been shipped to the lake",
        "lake",
        "lastError",
    ),
    **HISTORY_OPERATIONS,
}
"""By the name of the operation, which `routerctl` runs over HTTP or in its own process."""
OPERATION_NAMES: Final = {route: name for name, route in OPERATIONS.items()}
"""The names of operations, by their routes."""

_ALSO_HEAD = (
    _get("/effective", "admin.resources.effective:show", "Show the effective configuration, with an ETag"),
    _get(
        "/effective/stream",
        "admin.resources.effective:stream",
        "Follow the effective configuration as server-sent events: `state`, `change`",
    )._replace(media=_SSE),
    Route("GET", "/healthz", (), "Show whether the process answers", "system:show_health", probe=True),
    Route("GET", "/readyz", (), "Show whether the node is ready", "system:show_ready", probe=True, unready=True),
    Route("GET", "/metrics", ("look",), "Metrics for Prometheus", "system:show_metrics", media="text/plain"),
    Route("GET", "/openapi.json", ("look",), "Describe the whole API as OpenAPI 3.1", "system:describe_all"),
)
SYSTEM: Final = (*_ALSO_HEAD, *(route._replace(method="HEAD") for route in _ALSO_HEAD))
"""The routes outside `OPERATIONS` and `TOPIC_ROUTES`, each for GET and for HEAD, which some load balancers send."""


EXCHANGE: Final = Route(
    "POST",
    "/api/v1/stream-tokens",
    (),
    "Exchange a token of an OpenID Connect issuer for a stream token",
    "quic.exchange:exchange_token",
    BodyLimits(32 << 10),
    refusals=(401, 403),
)
"""The route that exchanges tokens. It needs no key, because the exchanged token proves the caller."""
PUBLISH: Final = Route(
    "GET",
    f"/api/v1{_GROUP}/publish",
    ("write",),
    "Emit events over a WebSocket that stays open: messages with events, answered as they are committed",
    "admin.events.publishing:publish",
    stream=True,
    upgrade=True,
)
ROUTES: Final = (*TOPIC_ROUTES, *OPERATIONS.values(), *LOG_FILES, *SYSTEM, EXCHANGE, PUBLISH)
