"""Writes parts: what plugins derived, and which part defines which resource.

Each function that writes takes the open transaction, in which the head is locked, and raises the version of the parts,
so that running nodes notice. A resource is defined by one part of its owner at a time: by the latest part that named
it, unless an earlier part was derived from newer events.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from eventd.store.engine.database import Connection
from eventd.store.engine.statements import execute, execute_many, fetch, fetch_in, insert_row, notify_head, replacing
from eventd.store.ids.known import read_ids_of
from eventd.store.parts.claims import ResourceClaim, ResourceKey, claims_of, end_of_rest, masking
from eventd.store.parts.part import PLUGIN, SOURCE, SUBSCRIPTION, NewPart, StoredPart
from eventd.store.parts.reading import read_parts


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
        known = read_ids_of(conn, self.topic_id, sorted(frozenset().union(*resource_ids.values())))
        late = {event_id for event_id, row in known.items() if row.position > self.position}
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

    If an owner's claim has ended in the meantime, the owner takes it like a new one, because another owner may have
    taken the claim since. A resource that has ended already takes no claim from a part that still defines it.
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

    Resources that end earlier keep their end, and parts that `later` events produced are not changed.
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


def _text(value: object) -> str:
    return msgspec.json.encode(value).decode()
