"""Rows of parts: what plugins derived, and which part defines which resource.

Each function that writes takes the open transaction, in which the head is locked, and raises the version of the parts,
so that running nodes notice. A resource is defined by one part of its owner at a time: the latest that named it,
unless an earlier one is from newer events.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from eventd.store.engine.database import Connection
from eventd.store.engine.statements import execute, execute_many, fetch, fetch_in, insert_row, notify_head, replacing
from eventd.store.parts.claims import ResourceClaim, ResourceKey, claims_of, end_of_rest, masked_by, masking

SUBSCRIPTION, PLUGIN, SOURCE = "EventSubscription/", "Plugin/", "DynamicConfigSource/"
"""The prefixes of owners: the kind of what is declared, followed by its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPart:
    """A part to write. Times and the `grace` are in microseconds; `resources` have their annotations.

    `source` identifies the part, and `owner`, the declaration behind it, holds its claims. `ends`: the end of
    each subject that ends before the part.
    """

    owner: str
    source: str
    group: str
    plugin: str
    observed_at: int
    expires_at: int
    digest: str
    resources: Sequence[Mapping[str, Any]]
    directives: Sequence[Mapping[str, Any]] = ()
    action_plans: Sequence[Mapping[str, Any]] = ()
    event_ids: Sequence[str] = ()
    subjects: Sequence[str] = ()
    ends: Mapping[str, int]
    grace: int = 0


class ClaimSpan(NamedTuple):
    """A claim of a part: since when its owner has had it, and until when. Microseconds."""

    since: int
    ends_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPart(NewPart):
    """A stored part. `claims` are the resources that it defines, without those that a later part took over.

    Likewise `masks` are the declared resources that it masks. `revision` is the `parts_version` of its last change.
    `problem` says why the row cannot be read; its lists are empty then.
    """

    id: int
    generation: int
    ends_at: int
    claims: Mapping[ResourceKey, ClaimSpan]
    masks: frozenset[ResourceKey]
    revision: int
    created_at: int
    updated_at: int
    problem: str = ""

    @property
    def ends_rest_at(self) -> int:
        """Return when the resources end that are about no single subject."""
        return end_of_rest(ends=self.ends, subjects=self.subjects, expires_at=self.expires_at)


class NewerEvents(NamedTuple):
    """The events of a topic that were recorded or refreshed after a position.

    A plugin that runs late must not undo the results of newer events.
    """

    topic_id: int
    position: int

    def origins_among(self, conn: Connection, part_ids: Collection[int]) -> set[int]:
        """Return the ids of those parts that one of these newer events produced."""
        rows = fetch_in(conn, "SELECT id, event_ids FROM parts WHERE id {in}", (), sorted(part_ids))
        resource_ids = {part_id: _ids(text) for part_id, text in rows}
        sql = "SELECT event_id FROM event_ids WHERE topic_id = ? AND position > ? AND event_id {in}"
        late = {
            event_id for (event_id,) in fetch_in(conn, sql, self, sorted(frozenset().union(*resource_ids.values())))
        }
        return {part_id for part_id, ids in resource_ids.items() if not late.isdisjoint(ids)}


def _ids(text: str) -> frozenset[str]:
    """Return the event ids of a part; empty if they cannot be read."""
    try:
        found = json.loads(text)
    except ValueError:
        return frozenset()
    return frozenset(one for one in found if isinstance(one, str)) if isinstance(found, list) else frozenset()


def put_part(conn: Connection, part: NewPart, now: int, *, later: NewerEvents | None = None) -> int:
    """Write the part, replacing that of its source, and give it the claims on its resources; return its generation.

    The generation rises with each run without events, otherwise with each changed content; 0 if nothing is stored. An
    empty part of a subscription only deletes the one before. Parts of the owner that define nothing any more are
    deleted. Parts that `later` events produced keep their claims.
    """
    revision = _move_version(conn)
    before = fetch(conn, "SELECT id, generation, digest FROM parts WHERE source = ?", (part.source,))
    by_hand = part.source == part.owner
    if not (by_hand or part.resources or part.directives or part.action_plans):
        _remove(conn, [int(before[0][0])] if before else [])
        return 0
    _, generation, digest = before[0] if before else (0, 0, "")
    generation += not before or by_hand or digest != part.digest
    claims = _claims(part)
    part_id = _write(conn, part, claims, generation, revision, now)
    execute(conn, "DELETE FROM part_subjects WHERE part_id = ?", (part_id,))
    subjects = [(part.owner, subject, part_id) for subject in dict.fromkeys(filter(None, part.subjects))]
    execute_many(conn, "INSERT INTO part_subjects (owner, subject, part_id) VALUES (?, ?, ?)", subjects)
    losers = _claim(conn, part_id, part, claims, now, later)
    _settle_losers(conn, losers, revision)
    return 0 if part_id in losers and not _exists(conn, part_id) else int(generation)


def _exists(conn: Connection, part_id: int) -> bool:
    return bool(fetch(conn, "SELECT 1 FROM parts WHERE id = ?", (part_id,)))


def _move_version(conn: Connection) -> int:
    """Raise the version of the parts, which locks the head, and signal it at commit. Returns the new version."""
    moved = "UPDATE log_heads SET parts_version = parts_version + 1 WHERE id = 1 RETURNING parts_version"
    ((version,),) = fetch(conn, moved)
    notify_head(conn)
    return int(version)


def _write(
    conn: Connection,
    part: NewPart,
    claims: Mapping[ResourceKey, ResourceClaim],
    generation: int,
    revision: int,
    now: int,
) -> int:
    values = {
        "owner": part.owner,
        "group_name": part.group,
        "plugin": part.plugin,
        "generation": generation,
        "observed_at": part.observed_at,
        "expires_at": part.expires_at,
        "ends_at": _end_of(part, claims),
        "digest": part.digest,
        "resources": _text(part.resources),
        "directives": _text(part.directives),
        "action_plans": _text(part.action_plans),
        "event_ids": _text(part.event_ids),
        "subjects": _text(part.subjects),
        "ends": _text(part.ends),
        "grace": part.grace,
        "revision": revision,
        "updated_at": now,
    }
    end = f"ON CONFLICT (source) DO UPDATE SET {replacing(values)} RETURNING id"
    ((part_id,),) = insert_row(conn, "parts", {"source": part.source, "created_at": now, **values}, end)
    return int(part_id)


def _claims(part: NewPart) -> dict[ResourceKey, ResourceClaim]:
    return claims_of(
        part.resources, part.directives, ends=part.ends, subjects=part.subjects, expires_at=part.expires_at
    )


def _end_of(part: NewPart, claims: Mapping[ResourceKey, ResourceClaim]) -> int:
    ends = [claim.ends_at for claim in claims.values()]
    if part.directives or part.action_plans or not ends:
        ends.append(end_of_rest(ends=part.ends, subjects=part.subjects, expires_at=part.expires_at))
    return max(ends)


def _claim(
    conn: Connection,
    part_id: int,
    part: NewPart,
    wanted: Mapping[ResourceKey, ResourceClaim],
    now: int,
    later: NewerEvents | None,
) -> set[int]:
    """Give the part the claims on its resources only. Returns the ids of parts that lose claims, perhaps its own.

    An owner holds a claim without interruption only if it has not ended meanwhile, because another owner may have taken
    it since. A resource that has ended already takes nothing from a part that still defines it.
    """
    held = _read_held(conn, part.owner, wanted)
    newer = (
        set() if later is None else later.origins_among(conn, {holder for holder, _, _ in held.values()} - {part_id})
    )
    execute(conn, "DELETE FROM part_claims WHERE part_id = ?", (part_id,))
    rows = []
    for key, claim in wanted.items():
        holder, since, ends_at = held.get(key, (part_id, now, 0))
        if holder != part_id and (claim.ends_at <= now < ends_at or (holder in newer and now < ends_at)):
            del held[key]
            continue
        rows.append((part.owner, *key, part_id, since if ends_at > now else now, claim.ends_at, claim.captures))
    execute_many(
        conn,
        "INSERT INTO part_claims (owner, api_version, kind, name, part_id, since, ends_at, captures)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (owner, api_version, kind, name) DO UPDATE SET"
        " part_id = excluded.part_id, since = excluded.since, ends_at = excluded.ends_at, captures = excluded.captures",
        rows,
    )
    return ({holder for holder, _, _ in held.values()} - {part_id}) | ({part_id} if newer else set())


def _read_held(conn: Connection, owner: str, keys: Iterable[ResourceKey]) -> dict[ResourceKey, tuple[int, int, int]]:
    """Return the owner's claims with these keys, each as (id of the part, since, ends at)."""
    names: dict[tuple[str, str], list[str]] = {}
    for key in keys:
        names.setdefault((key.api_version, key.kind), []).append(key.name)
    held = {}
    for kind, those in names.items():
        found = fetch_in(
            conn,
            "SELECT name, part_id, since, ends_at FROM part_claims"
            " WHERE owner = ? AND api_version = ? AND kind = ? AND name {in}",
            (owner, *kind),
            those,
        )
        held.update({ResourceKey(*kind, name): (part_id, since, ends_at) for name, part_id, since, ends_at in found})
    return held


def _settle_losers(conn: Connection, losers: Collection[int], revision: int) -> None:
    """Set the revision of parts that have lost claims; delete those that have no claim any more."""
    if not losers:
        return
    bare = fetch_in(
        conn,
        "SELECT id FROM parts WHERE NOT EXISTS (SELECT 1 FROM part_claims WHERE part_id = parts.id) AND id {in}",
        (),
        sorted(losers),
    )
    gone = {part_id for (part_id,) in bare}
    _remove(conn, sorted(gone))
    left = [(revision, part_id) for part_id in sorted(set(losers) - gone)]
    execute_many(conn, "UPDATE parts SET revision = ? WHERE id = ?", left)


def _remove(conn: Connection, ids: Sequence[int]) -> None:
    for table, column in (("part_claims", "part_id"), ("part_subjects", "part_id"), ("parts", "id")):
        execute_many(conn, f"DELETE FROM {table} WHERE {column} = ?", [(part_id,) for part_id in ids])


def withdraw(
    conn: Connection, owner: str, subjects: Collection[str], now: int, *, later: NewerEvents | None = None
) -> int:
    """End the resources of the owner's parts for these subjects, each after its grace; return how many parts change.

    Ends that are earlier stay, and so do parts that `later` events produced.
    """
    found = fetch_in(
        conn,
        "SELECT DISTINCT part_id FROM part_subjects WHERE owner = ? AND subject {in}",
        (owner,),
        sorted(set(subjects)),
    )
    ids = {part_id for (part_id,) in found}
    concerned = read_parts(conn, ids=sorted(ids - later.origins_among(conn, ids) if later is not None else ids))
    changed = [(part, ends) for part in concerned if (ends := _earlier(part, subjects, now)) != dict(part.ends)]
    if changed:
        revision = _move_version(conn)
        for part, ends in changed:
            _write_earlier_ends(conn, part, ends, revision, now)
    return len(changed)


def _earlier(part: StoredPart, subjects: Collection[str], now: int) -> dict[str, int]:
    """Return the ends of a part's subjects if `subjects` are withdrawn now: these end after the grace, or as before if
    that is sooner.
    """
    end = now + part.grace
    going = {subject for subject in part.subjects if subject in subjects}
    sooner = {s: min(end, part.ends.get(s, part.expires_at)) for s in going}
    return dict(part.ends) if part.ends_at <= now else {**part.ends, **sooner}


def _write_earlier_ends(conn: Connection, part: StoredPart, ends: Mapping[str, int], revision: int, now: int) -> None:
    """After a withdrawal, store the earlier ends of a part's subjects, and so of the part and of its claims."""
    claims = claims_of(part.resources, part.directives, ends=ends, subjects=part.subjects, expires_at=part.expires_at)
    rest = end_of_rest(ends=ends, subjects=part.subjects, expires_at=part.expires_at)
    held = (*part.claims, *map(masking, part.masks))
    own = [claims[key].ends_at for key in held if key in claims]
    if part.directives or part.action_plans or not own:
        own.append(rest)
    execute(
        conn,
        "UPDATE parts SET ends = ?, ends_at = ?, revision = ?, updated_at = ? WHERE id = ?",
        (_text(ends), max(own), revision, now, part.id),
    )
    rows = [(claims[key].ends_at, part.owner, *key, part.id) for key in held if key in claims]
    # After a withdrawal the new end is never later than the stored one.
    execute_many(
        conn,
        "UPDATE part_claims SET ends_at = ? WHERE owner = ? AND api_version = ? AND kind = ? AND name = ?"
        " AND part_id = ?",
        rows,
    )


def orphan(conn: Connection, live_owners: Collection[str], now: int) -> int:
    """End the parts of owners that are no longer declared, each after its grace. Returns the number of changed parts.

    Repeated calls postpone nothing.
    """
    owners = [owner for (owner,) in fetch(conn, "SELECT DISTINCT owner FROM parts")]
    declared = (SUBSCRIPTION, PLUGIN, SOURCE)
    gone = [owner for owner in owners if owner.startswith(declared) and owner not in live_owners]
    found = fetch_in(conn, "SELECT id FROM parts WHERE expires_at > ? + grace AND owner {in}", (now,), gone)
    if not found:
        return 0
    revision = _move_version(conn)
    execute_many(
        conn,
        "UPDATE parts SET expires_at = ? + grace, revision = ?, updated_at = ? WHERE id = ?",
        [(now, revision, now, part_id) for (part_id,) in found],
    )
    for sql in (
        "UPDATE parts SET ends_at = expires_at WHERE id = ? AND ends_at > expires_at",
        "UPDATE part_claims SET ends_at = (SELECT expires_at FROM parts WHERE id = part_id)"
        " WHERE part_id = ? AND ends_at > (SELECT expires_at FROM parts WHERE id = part_id)",
    ):
        execute_many(conn, sql, [(part_id,) for (part_id,) in found])
    return len(found)


def delete_part(conn: Connection, source: str) -> bool:
    """Delete the part of this source, with its claims; False if there is none."""
    found = fetch(conn, "SELECT id FROM parts WHERE source = ?", (source,))
    if found:
        _move_version(conn)
        _remove(conn, [part_id for (part_id,) in found])
    return bool(found)


def delete_old_parts(conn: Connection, before: int, limit: int) -> int:
    """Delete at most `limit` parts whose last resource ended before `before` (microseconds). Returns their number."""
    sql = "SELECT id FROM parts WHERE ends_at < ? ORDER BY ends_at, id LIMIT ?"
    ids = [part_id for (part_id,) in fetch(conn, sql, (before, limit))]
    if ids:
        _move_version(conn)
        _remove(conn, ids)
    return len(ids)


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


def _text(value: object) -> str:
    return msgspec.json.encode(value).decode()
