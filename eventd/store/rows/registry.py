"""Rows of the resources that operators declared."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from eventd.store.engine.database import Connection
from eventd.store.engine.statements import execute, fetch, fetch_in, insert_row, notify_head, replacing


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
    labels: Mapping[str, str] = field(default_factory=dict)


class SpecText(NamedTuple):
    """The spec of a declared resource as the text that is stored: equal texts need to be read only once."""

    api_version: str
    kind: str
    name: str
    text: str

    def parse(self) -> StoredResource:
        """Return the resource with its spec, and without its annotations, labels, generation and times."""
        return StoredResource(self.api_version, self.kind, self.name, {}, json.loads(self.text), 0, 0, 0)


def read_spec_texts(conn: Connection, kind: str, name: str | None = None) -> list[SpecText]:
    """Return the specs of the resources of one kind, and with one name if given, ordered by name."""
    where, params = ("", (kind,)) if name is None else (" AND name = ?", (kind, name))
    sql = f"SELECT api_version, kind, name, spec FROM resources WHERE kind = ?{where} ORDER BY name"
    return [SpecText(*row) for row in fetch(conn, sql, params)]


def read_resources(conn: Connection, kind: str | None = None, name: str | None = None) -> list[StoredResource]:
    """Return the resources, of one kind and with one name if given, ordered by kind and name."""
    wanted = {"kind": kind, "name": name}
    given = {column: value for column, value in wanted.items() if value is not None}
    where = f" WHERE {' AND '.join(f'{column} = ?' for column in given)}" if given else ""
    columns = "api_version, kind, name, annotations, spec, labels, generation, created_at, updated_at"
    rows = fetch(conn, f"SELECT {columns} FROM resources{where} ORDER BY kind, name", [*given.values()])
    read = json.loads
    return [
        StoredResource(version, kind, name, read(annotations), read(spec), count, made, put, read(labels))
        for version, kind, name, annotations, spec, labels, count, made, put in rows
    ]


def put_resource(
    conn: Connection,
    *,
    api_version: str,
    kind: str,
    name: str,
    annotations: Mapping[str, str],
    spec: Mapping[str, Any],
    now: int,
    labels: Mapping[str, str] | None = None,
) -> None:
    """Create the resource, or replace its texts and spec and raise its generation, even if nothing is different."""
    key = {"api_version": api_version, "kind": kind, "name": name}
    values = {"annotations": _text(annotations), "labels": _text(labels or {}), "spec": _text(spec), "updated_at": now}
    changes = f"{replacing(values)}, generation = resources.generation + 1"
    insert_row(
        conn,
        "resources",
        {**key, **values, "generation": 1, "created_at": now},
        f"ON CONFLICT ({', '.join(key)}) DO UPDATE SET {changes}",
    )


def delete_resource(conn: Connection, *, api_version: str, kind: str, name: str) -> bool:
    """Delete the resource; False if it does not exist."""
    sql = "DELETE FROM resources WHERE api_version = ? AND kind = ? AND name = ?"
    return execute(conn, sql, (api_version, kind, name)) > 0


def declared_names(conn: Connection, api_version: str, kind: str, names: Sequence[str]) -> set[str]:
    """Return those of `names` under which a resource of a kind is declared."""
    sql = "SELECT name FROM resources WHERE api_version = ? AND kind = ? AND name {in}"
    return {name for (name,) in fetch_in(conn, sql, (api_version, kind), names)} if names else set()


def announce(conn: Connection) -> int:
    """Increase the version of the declared resources (`registry_version`), and notify other processes at commit.

    Returns the new version, which running nodes compare with theirs. Locks the head.
    """
    raised = "UPDATE log_heads SET registry_version = registry_version + 1 RETURNING registry_version"
    ((version,),) = fetch(conn, raised)
    notify_head(conn)
    return int(version)


def read_version(conn: Connection) -> int:
    """Return the version of the declared resources (`registry_version`), which rises with every change."""
    return int(fetch(conn, "SELECT registry_version FROM log_heads")[0][0])


def _text(value: Mapping[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
