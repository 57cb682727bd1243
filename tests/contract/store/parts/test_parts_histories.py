"""Random histories of parts: the rows are consistent, and a follower of changes sees what a new reader sees."""

from __future__ import annotations

import random
from collections.abc import Callable

from eventd.dynamic.effective import ConfigMerger
from eventd.dynamic.part import form_part
from eventd.log.core.head import read_head
from eventd.plugins.contract.contract import Result
from eventd.store.engine.database import Connection, Database
from eventd.store.engine.statements import fetch
from eventd.store.parts.claims import claims_of
from eventd.store.parts.part import NewPart
from eventd.store.parts.parts import delete_old_parts, delete_part, orphan, put_part, withdraw
from eventd.store.parts.reading import read_parts
from eventd.store.rows.registry import announce, put_resource
from eventd.testing import NOW, event
from tests.unit.dynamic.samples import NET, mask, route

SECOND = 1_000_000
OWNERS = ["EventSubscription/a", "EventSubscription/b", "EventSubscription/c"]
NAMES = [f"r{number}" for number in range(5)]
STEPS = 40


def some_part(chance: random.Random, now: int) -> NewPart:
    ids = chance.sample([f"e{number}" for number in range(6)], chance.randint(1, 2))
    expires = now + chance.randint(1, 20) * SECOND if chance.random() < 0.5 else None
    events = [event(id, subject=f"s{int(id[1:]) % 3}", expires=expires) for id in ids]
    resources = [route(name, chance.choice(["", "s0", "s1"]), v=chance.randint(0, 1)) for name in _some(chance, NAMES)]
    result = Result(
        observed_at=now - chance.choice([0, 0, 0, 9]) * SECOND,
        ttl=chance.randint(1, 15) * SECOND,
        resources=resources,
        directives=[mask("fixed")] if chance.random() < 0.2 else [],
        action_plans=[{"name": "x"}] if chance.random() < 0.1 else [],
    )
    return form_part(
        owner=chance.choice(OWNERS),
        events=events,
        result=result,
        plugin="p",
        clamp=chance.random() < 0.3,
        grace=chance.randint(0, 3) * SECOND,
        now=now,
    )


def _some(chance: random.Random, names: list[str]) -> list[str]:
    return chance.sample(names, chance.choice([0, 1, 1, 1, 2, 3]))


def some_change(chance: random.Random, now: int) -> Callable[[Connection], object]:
    kind = chance.random()
    if kind < 0.6:
        part = some_part(chance, now)
        return lambda conn: put_part(conn, part, now)
    if kind < 0.75:
        owner, subject = chance.choice(OWNERS), f"s{chance.randint(0, 2)}"
        return lambda conn: withdraw(conn, owner, [subject], now)
    if kind < 0.82:
        live = chance.sample(OWNERS, 2)
        return lambda conn: orphan(conn, live, now)
    if kind < 0.9:
        return lambda conn: delete_old_parts(conn, now - 5 * SECOND, chance.randint(1, 3))
    return lambda conn: delete_part(conn, chance.choice([part.source for part in read_parts(conn)] or ["none"]))


def check(conn: Connection) -> None:
    """What must hold at any time."""
    parts = {part.id: part for part in read_parts(conn)}
    version = read_head(conn).parts_version
    for table in ("part_claims", "part_subjects"):
        assert {id for (id,) in fetch(conn, f"SELECT DISTINCT part_id FROM {table}")} <= parts.keys()
    for part in parts.values():
        made = claims_of(
            part.resources, part.directives, ends=part.ends, subjects=part.subjects, expires_at=part.expires_at
        )
        assert {key: held.ends_at for key, held in part.claims.items()}.items() <= {
            key: claim.ends_at for key, claim in made.items()
        }.items()
        assert max((held.ends_at for held in part.claims.values()), default=0) <= part.ends_at <= part.expires_at
        assert part.revision <= version
    known = {subject for part in parts.values() for subject in part.subjects}
    assert {subject for (subject,) in fetch(conn, "SELECT DISTINCT subject FROM part_subjects")} == known


def test_rows_fit_together_and_nothing_is_overlooked(database: Database, chance: random.Random) -> None:
    now, follower = NOW, ConfigMerger()

    def declare(conn: Connection) -> None:
        put_resource(conn, api_version=NET, kind="IPv4Route", name="fixed", annotations={}, spec={}, now=NOW)
        announce(conn)

    database.write_now(declare)
    for _ in range(STEPS):
        now += chance.randint(0, 3) * SECOND
        change = some_change(chance, now)
        before = database.read_now(read_head).parts_version
        parts_before = database.read_now(read_parts)
        database.write_now(change)
        if database.read_now(read_parts) != parts_before:
            assert database.read_now(read_head).parts_version > before
        database.read_now(check)
        followed, fresh = (database.read_now(one.merge, now) for one in (follower, ConfigMerger()))
        assert followed.effective == fresh.effective
        assert followed.etag == fresh.etag
