"""Reads parts and their claims."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from eventd.store.engine.database import Connection
from eventd.store.engine.statements import fetch, fetch_in
from eventd.store.parts.claims import ResourceKey, masked_by
from eventd.store.parts.part import ClaimSpan, StoredPart


def read_sources(conn: Connection) -> list[str]:
    """Return the source of every part, sorted."""
    return sorted(source for (source,) in fetch(conn, "SELECT source FROM parts"))


def read_revisions(conn: Connection) -> dict[int, int]:
    """Return the revision of every part by its id: changed parts must be read again."""
    return dict(fetch(conn, "SELECT id, revision FROM parts"))


_COLUMNS = [
    "id",
    "source",
    "owner",
    "group_name",
    "plugin",
    "generation",
    "observed_at",
    "expires_at",
    "ends_at",
    "digest",
    "resources",
    "directives",
    "action_plans",
    "event_ids",
    "subjects",
    "ends",
    "grace",
    "revision",
    "created_at",
    "updated_at",
]


def read_parts(
    conn: Connection, *, ids: Sequence[int] | None = None, source: str = "", owner: str = ""
) -> list[StoredPart]:
    """Return all parts, or those with these ids and this source or owner: latest observed first, then by source."""
    columns = ", ".join(_COLUMNS)
    wanted, values = ("source = ?", (source,)) if source else ("owner = ?", (owner,)) if owner else ("1 = 1", ())
    if ids is None:
        rows = fetch(conn, f"SELECT {columns} FROM parts WHERE {wanted}", values)
    else:
        rows = fetch_in(conn, f"SELECT {columns} FROM parts WHERE {wanted} AND id {{in}}", values, ids)
    narrow = ids is not None or bool(source or owner)
    claims = _read_claims(conn, [row[0] for row in rows] if narrow else None)
    found = [_part(dict(zip(_COLUMNS, row, strict=True)), claims.get(row[0], {})) for row in rows]
    return sorted(found, key=lambda part: (-part.observed_at, part.source))


class PartPlace(NamedTuple):
    """A place in the list of parts: after the part with this id, observed at this time."""

    observed_at: int
    id: int


def read_part_page(conn: Connection, *, owner: str, place: PartPlace | None, limit: int) -> list[StoredPart]:
    """Return up to `limit` parts after a place, all or those of an owner: latest observed first, then by id."""
    wanted, values = ("owner = ?", [owner]) if owner else ("1 = 1", [])
    after = " AND (observed_at < ? OR (observed_at = ? AND id < ?))" if place else ""
    order = "ORDER BY observed_at DESC, id DESC LIMIT ?"
    given = [*values, *((place.observed_at, *place) if place else ()), limit]
    ids = [id for (id,) in fetch(conn, f"SELECT id FROM parts WHERE {wanted}{after} {order}", given)]
    found = {part.id: part for part in read_parts(conn, ids=ids)}
    return [found[id] for id in ids]


def read_part_ids(conn: Connection, owner: str, subject: str, *, limit: int) -> list[int]:
    """Return the ids of up to `limit` parts of an owner, the newest ones, from events about a subject.

    With an empty subject, those from any events.
    """
    if subject:
        sql = "SELECT part_id FROM part_subjects WHERE owner = ? AND subject = ? ORDER BY part_id DESC LIMIT ?"
        return [int(id) for (id,) in fetch(conn, sql, (owner, subject, limit))]
    rows = fetch(conn, "SELECT id FROM parts WHERE owner = ? ORDER BY id DESC LIMIT ?", (owner, limit))
    return [int(id) for (id,) in rows]


def _read_claims(conn: Connection, ids: Sequence[int] | None) -> dict[int, dict[ResourceKey, ClaimSpan]]:
    sql = "SELECT part_id, api_version, kind, name, since, ends_at FROM part_claims"
    rows = fetch(conn, sql) if ids is None else fetch_in(conn, f"{sql} WHERE part_id {{in}}", (), ids)
    claims: dict[int, dict[ResourceKey, ClaimSpan]] = {}
    for part_id, api_version, kind, name, since, ends_at in rows:
        claims.setdefault(part_id, {})[ResourceKey(api_version, kind, name)] = ClaimSpan(since, ends_at)
    return claims


_LISTS = ("resources", "directives", "action_plans", "event_ids", "subjects")
_NOTHING: dict[str, Any] = {"[]": [], "{}": {}}


def _part(row: dict[str, Any], claims: Mapping[ResourceKey, ClaimSpan]) -> StoredPart:
    problem = ""
    for name in (*_LISTS, "ends"):
        kind: type = dict if name == "ends" else list
        row[name] = _value(row[name])
        if not isinstance(row[name], kind):
            row[name], problem = kind(), f"its stored {name} cannot be read"
    if problem:
        row.update({name: [] for name in _LISTS}, ends={})
    masks = frozenset(target for target in map(masked_by, claims) if target is not None)
    given = {key: held for key, held in claims.items() if masked_by(key) is None} if masks else claims
    return StoredPart(**row | {"group": row.pop("group_name")}, claims=given, masks=masks, problem=problem)


def _value(text: str) -> Any:
    """Parse a stored list or object; None if it cannot be read. Most lists of a part are empty."""
    if text in _NOTHING:
        return _NOTHING[text].copy()
    try:
        return msgspec.json.decode(text)
    except (ValueError, RecursionError):
        return None


def read_captures(conn: Connection, addresses: Collection[str], now: int) -> list[tuple[str, ResourceKey, str]]:
    """Return the claims on these addresses that have not ended, as (address, key, source of the part), sorted."""
    rows = fetch_in(
        conn,
        "SELECT c.captures, c.api_version, c.kind, c.name, p.source FROM part_claims c JOIN parts p ON p.id = c.part_id"
        " WHERE c.captures <> '' AND c.ends_at > ? AND c.captures {in}",
        (now,),
        sorted(addresses),
    )
    return sorted((address, ResourceKey(*key), source) for address, *key, source in rows)
