"""Names that begin with a prefix, for the completion of command lines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Literal

from pydantic import Field

from eventd.api.framework.operations import Params, Services
from eventd.log.core.listing import read_ids
from eventd.log.core.topic_row import list_topics, read_group_topics
from eventd.resources.kinds.registry import EVENT_CALLBACK, EVENT_GROUP, EVENT_PEER
from eventd.resources.validation.foreign import meant_kinds
from eventd.store.engine.database import Connection
from eventd.store.rows.registry import StoredResource, read_resources

MOST: Final = 200


class ListNames(Params):
    """Which names to list."""

    by_caller = True

    what: Literal["resource", "group", "peer", "topic", "event"] = Field(
        description="Names of a resource, group, peer or topic, or ids of an event: one of these words."
    )
    kind: str = Field(default="", description="With `resource`: only of this kind.")
    prefix: str = Field(default="", max_length=512, description="Only names that begin with this.")
    limit: int = Field(default=100, ge=1, le=MOST, description="Maximum number of names.")


async def list_names(services: Services, params: ListNames) -> dict[str, Any]:
    """Return the sorted names of objects that the caller's key may access. Raises NotFound for an unknown kind."""
    prefixes = services.key.prefixes if services.key is not None else ()
    found = await services.database.read(_read, params, tuple(prefixes))
    return {"names": found[: params.limit], "more": len(found) > params.limit}


def _read(conn: Connection, params: ListNames, prefixes: tuple[str, ...]) -> list[str]:
    """Return at most one name more than `params.limit`."""
    most = params.limit + 1
    if params.what == "topic":
        lines = list_topics(conn, prefixes=prefixes, prefix=params.prefix, after="", limit=params.limit)
        return [line.name for line in lines]
    rows = read_resources(conn)
    seen = _visibility(prefixes)
    if params.what == "event":
        return _read_events(conn, [row.name for row in rows if row.kind == EVENT_GROUP.name and seen(row)], params)
    if params.what == "resource":
        kinds = set(meant_kinds(params.kind, rows)) if params.kind else {(row.api_version, row.kind) for row in rows}
        names: Iterable[str] = (row.name for row in rows if (row.api_version, row.kind) in kinds and seen(row))
    elif params.what == "group":
        names = (row.name for row in rows if row.kind == EVENT_GROUP.name and seen(row))
    else:
        names = (str(row.spec.get("nodeName", "")) for row in rows if row.kind == EVENT_PEER.name and seen(row))
    return sorted({name for name in names if name.startswith(params.prefix)})[:most]


def _visibility(prefixes: tuple[str, ...]) -> Callable[[StoredResource], bool]:
    """Return which resources a key with these prefixes may see: those of its groups and topics.

    Without prefixes, all.
    """

    def is_visible(row: StoredResource) -> bool:
        if not prefixes:
            return True
        source = row.spec.get("source") if row.kind == EVENT_CALLBACK.name else row.spec
        source = source if isinstance(source, dict) else {}
        owner = row.name if row.kind == EVENT_GROUP.name else source.get("groupRef") or source.get("topic")
        return isinstance(owner, str) and owner.startswith(prefixes)

    return is_visible


def _read_events(conn: Connection, groups: Sequence[str], params: ListNames) -> list[str]:
    """Return the ids of stored events of these groups, by an index."""
    found: set[str] = set()
    for topic in read_group_topics(conn):
        if topic.group_name in groups:
            found.update(read_ids(conn, topic.id, params.prefix, params.limit + 1))
    return sorted(found)[: params.limit + 1]
