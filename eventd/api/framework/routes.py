"""Where each operation is asked for over HTTP, and who may ask. Loads no code of it: who asks has no use for that."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

Scope = Literal["read", "write", "delete", "admin"]
Method = Literal["GET", "POST", "PUT", "DELETE"]


class Body(NamedTuple):
    """The largest body of a request: in bytes, and in JSON values, whatever the texts in it hold."""

    bytes: int = 1 << 20
    values: int = 20_000


RESOURCES: Final = Body(bytes=16 << 20, values=10_000)
"""Files of resources, each of which is one text."""
EVENTS: Final = Body(bytes=64 << 20, values=500_000)


class Route(NamedTuple):
    """`path` may hold fields of the operation's parameters in braces; the others are sent in the query or the body."""

    method: Method
    path: str
    scope: Scope
    summary: str
    body: Body = Body()


ROUTES: Final[dict[str, Route]] = {
    "groups.status": Route("GET", "/api/v1/status", "read", "All groups: sizes, and the state of links"),
    "resources.apply": Route("POST", "/api/v1/resources/apply", "admin", "Declare resources, all or none", RESOURCES),
    "resources.diff": Route(
        "POST", "/api/v1/resources/diff", "read", "What applying resources would change", RESOURCES
    ),
    "resources.list": Route("GET", "/api/v1/resources", "read", "List declared resources"),
    "resources.get": Route("GET", "/api/v1/resources/{kind}/{name}", "read", "One declared resource"),
    "resources.describe": Route(
        "GET", "/api/v1/resources/{kind}/{name}/describe", "read", "A resource with its defaults, and how it is doing"
    ),
    "resources.delete": Route("DELETE", "/api/v1/resources/{kind}/{name}", "admin", "Delete one resource"),
    "resources.delete_sources": Route(
        "POST", "/api/v1/resources/delete", "admin", "Delete the resources that a text names", RESOURCES
    ),
    "events.emit": Route("POST", "/api/v1/groups/{group}/events", "write", "Store observed facts", EVENTS),
    "events.list": Route("GET", "/api/v1/groups/{group}/events", "read", "List events"),
    "events.prune": Route("POST", "/api/v1/groups/{group}/prune", "delete", "Apply the retention now"),
    "deliveries.list": Route(
        "GET", "/api/v1/groups/{group}/deliveries", "read", "The state of each event at each peer"
    ),
    "deliveries.summary": Route(
        "GET", "/api/v1/groups/{group}/deliveries/summary", "read", "What the deliveries to each peer add up to"
    ),
    "deliveries.redeliver": Route(
        "POST", "/api/v1/groups/{group}/peers/{peer}/redeliver", "admin", "Send events again to a peer"
    ),
    "links.status": Route(
        "GET", "/api/v1/groups/{group}/links", "read", "The state and lag of each link, in both directions"
    ),
    "links.gaps": Route("GET", "/api/v1/groups/{group}/gaps", "read", "What senders said they have lost, or took back"),
    "links.pause": Route("POST", "/api/v1/groups/{group}/peers/{peer}/pause", "admin", "Stop sending to a peer"),
    "links.resume": Route(
        "POST", "/api/v1/groups/{group}/peers/{peer}/resume", "admin", "Send to a peer again, at once"
    ),
    "links.verify": Route(
        "POST", "/api/v1/groups/{group}/peers/{peer}/verify", "read", "Compare what a peer holds with our books"
    ),
    "dead_letters.list": Route("GET", "/api/v1/groups/{group}/dead-letters", "read", "What peers refused for good"),
    "dead_letters.retry": Route(
        "POST", "/api/v1/groups/{group}/dead-letters/retry", "admin", "Send dead letters once more"
    ),
    "dead_letters.drop": Route("POST", "/api/v1/groups/{group}/dead-letters/drop", "delete", "Forget dead letters"),
    "books.list": Route("GET", "/api/v1/books", "read", "Which books there are, and how far"),
    "books.read": Route("GET", "/api/v1/books/{book}", "read", "Rows of a book as columns"),
    "doctor.examine": Route("GET", "/api/v1/doctor", "read", "Is everything in order, and what could be done about it"),
    "doctor.mend": Route("POST", "/api/v1/doctor/fix", "admin", "The same, and do what is safe to do about it"),
    "subscriptions.list": Route("GET", "/api/v1/subscriptions", "read", "The state of each subscription"),
    "subscriptions.runs": Route(
        "GET", "/api/v1/subscriptions/{subscription}/runs", "read", "What became of a subscription's events"
    ),
    "subscriptions.retry": Route(
        "POST", "/api/v1/subscriptions/{subscription}/retry", "admin", "Try again what failed or was parked"
    ),
    "subscriptions.reset": Route(
        "POST", "/api/v1/subscriptions/{subscription}/reset", "admin", "Go on somewhere else in the log"
    ),
    "subscriptions.pause": Route(
        "POST", "/api/v1/subscriptions/{subscription}/pause", "admin", "Stop running a subscription's plugin"
    ),
    "subscriptions.resume": Route(
        "POST", "/api/v1/subscriptions/{subscription}/resume", "admin", "Run it again, at once"
    ),
    "dynamic.list": Route("GET", "/api/v1/dynamic/parts", "read", "List what plugins have derived"),
    "dynamic.describe": Route("GET", "/api/v1/dynamic/part", "read", "One part, or all of an owner"),
    "dynamic.delete": Route("DELETE", "/api/v1/dynamic/part", "admin", "Delete a part; nobody gives what it gave"),
    "dynamic.render": Route("POST", "/api/v1/dynamic/render", "read", "The effective configuration", RESOURCES),
    "dynamic.diff": Route("POST", "/api/v1/dynamic/diff", "read", "What parts change of what is declared", RESOURCES),
    "plugins.list": Route("GET", "/api/v1/plugins", "read", "List the declared plugins"),
    "plugins.run": Route("POST", "/api/v1/plugins/{name}/run", "admin", "Run a plugin once, without events"),
    "plugins.check": Route(
        "POST", "/api/v1/plugins/{name}/check", "admin", "Run a plugin with sample requests and judge its answers"
    ),
    "plugins.runs": Route("GET", "/api/v1/plugin-runs", "read", "What runs of plugins came to"),
    "keys.create": Route("POST", "/api/v1/keys", "admin", "Make a key; it is shown this once"),
    "keys.list": Route("GET", "/api/v1/keys", "admin", "Keys that were made, without the keys"),
    "keys.revoke": Route("POST", "/api/v1/keys/{name}/revoke", "admin", "End a key at once"),
    "lake.status": Route("GET", "/api/v1/lake", "read", "How far each book is in the lake, and why"),
}
"""By the name of the operation."""
