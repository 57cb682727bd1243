"""Rows of the resources that operators declared."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from eventd.store.engine.database import insert, notify_head
from eventd.store.schema.tables import log_heads, resources


@dataclass(frozen=True, slots=True)
class StoredResource:
    """One declared resource. Times are in microseconds; `generation` counts its versions, from 1."""

    api_version: str
    kind: str
    name: str
    annotations: Mapping[str, str]
    spec: Mapping[str, Any]
    generation: int
    created_at: int
    updated_at: int


def read_resources(conn: sa.Connection, kind: str | None = None, name: str | None = None) -> list[StoredResource]:
    """Return the resources, of one kind and with one name if given, ordered by kind and name."""
    query = sa.select(resources).order_by(resources.c.kind, resources.c.name)
    if kind is not None:
        query = query.where(resources.c.kind == kind)
    if name is not None:
        query = query.where(resources.c.name == name)
    return [
        StoredResource(
            row.api_version,
            row.kind,
            row.name,
            json.loads(row.annotations),
            json.loads(row.spec),
            row.generation,
            row.created_at,
            row.updated_at,
        )
        for row in conn.execute(query)
    ]


def put_resource(
    conn: sa.Connection,
    *,
    api_version: str,
    kind: str,
    name: str,
    annotations: Mapping[str, str],
    spec: Mapping[str, Any],
    now: int,
) -> None:
    """Create the resource, or replace its annotations and spec and raise its generation, even if both are the same."""
    values = {"annotations": _text(annotations), "spec": _text(spec), "updated_at": now}
    statement = insert(conn, resources).values(
        api_version=api_version, kind=kind, name=name, generation=1, created_at=now, **values
    )
    key = [resources.c.api_version, resources.c.kind, resources.c.name]
    conn.execute(
        statement.on_conflict_do_update(index_elements=key, set_={**values, "generation": resources.c.generation + 1})
    )


def delete_resource(conn: sa.Connection, *, api_version: str, kind: str, name: str) -> bool:
    """Delete the resource; False if it does not exist."""
    where = sa.and_(resources.c.api_version == api_version, resources.c.kind == kind, resources.c.name == name)
    return conn.execute(resources.delete().where(where)).rowcount > 0


def announce(conn: sa.Connection) -> int:
    """Increase the version of the declared resources (`registry_version`), and notify other processes at commit.

    Returns the new version, which running nodes compare with theirs. Locks the head.
    """
    raised = log_heads.update().values(registry_version=log_heads.c.registry_version + 1)
    version = conn.execute(raised.returning(log_heads.c.registry_version)).scalar_one()
    notify_head(conn)
    return int(version)


def read_version(conn: sa.Connection) -> int:
    """Return the version of the declared resources (`registry_version`), which rises with every change."""
    return int(conn.execute(sa.select(log_heads.c.registry_version)).scalar_one())


def _text(value: Mapping[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
