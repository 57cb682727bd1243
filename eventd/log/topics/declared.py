"""Which topics and routers are declared by resources: only these resources change and delete them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from eventd.log.topics.errors import Incompatible
from eventd.store.engine.database import Connection
from eventd.store.rows.registry import declared_names
from eventd.text.arguments import as_argument
from eventd.text.topic_names import GROUP_PREFIX, ROUTER_KIND, TOPIC_KIND, TOPICS_VERSION

ManagedBy = Literal["declared", "api"]
"""Whether a resource declares a topic or router, or it was made through the API."""


def managed_by(conn: Connection, kind: str, name: str) -> ManagedBy:
    """Return `declared` if a resource of the `kind` Topic or TopicRouter, or an EventGroup, declares it; else `api`."""
    return managed_by_each(conn, kind, [name])[name]


def managed_by_each(conn: Connection, kind: str, names: Sequence[str]) -> dict[str, ManagedBy]:
    """Return by name what `managed_by` returns for each of these topics or routers."""
    declared = _declared(conn, kind, names) if names else set()
    of_groups = {name for name in names if kind == TOPIC_KIND and name.startswith(GROUP_PREFIX)}
    return {name: "declared" if name in declared or name in of_groups else "api" for name in names}


def refuse_declared_topic(conn: Connection, name: str, doing: str) -> None:
    """Raise `Incompatible` if a resource declares the topic. `doing`: a past participle, such as "deleted"."""
    if _declared(conn, TOPIC_KIND, [name]):
        raise _refusal(TOPIC_KIND, name, doing, "topic")


def refuse_declared_routers(conn: Connection, names: Sequence[str], doing: str) -> None:
    """Raise `Incompatible` if a resource declares one of these routers."""
    for name in sorted(_declared(conn, ROUTER_KIND, names)):
        raise _refusal(ROUTER_KIND, name, doing, "router")


def _declared(conn: Connection, kind: str, names: Sequence[str]) -> set[str]:
    return declared_names(conn, TOPICS_VERSION, kind, names)


def _refusal(kind: str, name: str, doing: str, noun: str) -> Incompatible:
    return Incompatible(
        f"the {noun} {name!r} is declared by {kind}/{name} and cannot be {doing} here",
        hint=f"use routerctl edit {as_argument(f'{kind}/{name}', 'RESOURCE')}, or routerctl delete",
        detail={noun: name, "reason": "declared", "resource": f"{kind}/{name}"},
    )
