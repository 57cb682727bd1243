"""Parts in the database: each resource comes from one part, and an earlier end is written to every row concerned."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from eventd.dynamic.part import form_manual_part, form_part
from eventd.log.core.head import read_head
from eventd.plugins.contract.contract import Result
from eventd.store.engine.database import Database
from eventd.store.engine.statements import execute, fetch
from eventd.store.parts.claims import FOR_SUBJECT, ResourceKey, target_of
from eventd.store.parts.part import NewPart, StoredPart
from eventd.store.parts.parts import delete_old_parts, delete_part, orphan, put_part, withdraw
from eventd.store.parts.reading import PartPlace, read_captures, read_part_page, read_parts, read_revisions
from eventd.testing import NOW, event

SECOND = 1_000_000
HOUR = 3600 * SECOND
ROUTE = "net.routerd.net/v1alpha1"
OWNER = "EventSubscription/claims"
MASK = {"op": "mask", "target": {"apiVersion": ROUTE, "kind": "IPv4Route", "name": "fallback"}}


def route(name: str, *, about: str = "", **spec: Any) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name, **({"annotations": {FOR_SUBJECT: about}} if about else {})}
    return {"apiVersion": ROUTE, "kind": "IPv4Route", "metadata": metadata, "spec": spec or {"destination": name}}


def key(name: str) -> ResourceKey:
    return ResourceKey(ROUTE, "IPv4Route", name)


def formed(
    ids: str,
    resources: Sequence[dict[str, Any]],
    *,
    owner: str = OWNER,
    directives: Sequence[dict[str, Any]] = (),
    plans: Sequence[dict[str, Any]] = (),
    ttl: int = HOUR,
    expires: int | None = None,
    clamp: bool = False,
    grace: int = 30 * SECOND,
    now: int = NOW,
) -> NewPart:
    """The part of the events `e1 e2 …`, each about the subject `s-e1`, `s-e2` …"""
    events = [event(i, subject=f"s-{i}", expires=expires) for i in ids.split()]
    result = Result(observed_at=now, ttl=ttl, resources=resources, directives=directives, action_plans=plans)
    return form_part(owner=owner, events=events, result=result, plugin="p", clamp=clamp, grace=grace, now=now)


def stored(database: Database) -> dict[str, StoredPart]:
    """By the first id of its events."""
    return {part.event_ids[0] if part.event_ids else part.source: part for part in database.read_now(read_parts)}


def version(database: Database) -> int:
    return database.read_now(read_head).parts_version


def counts(database: Database) -> dict[str, int]:
    tables = ("parts", "part_claims", "part_subjects")
    return {name: database.read_now(fetch, f"SELECT count(*) FROM {name}")[0][0] for name in tables}


def test_a_part_is_read_as_it_was_written(database: Database) -> None:
    part = formed("e2 e1", [route("r1"), route("r2")], directives=[MASK], plans=[{"name": "é"}])
    assert database.write_now(put_part, part, NOW) == 1
    (found,) = database.read_now(read_parts)
    assert found.source == f"{OWNER}/499b012dcfbcd232"
    for name in NewPart.__slots__:
        value = getattr(found, name)
        assert value == (list(wanted) if isinstance(wanted := getattr(part, name), tuple) else wanted), name
    assert found.claims == {key("r1"): (NOW, NOW + HOUR), key("r2"): (NOW, NOW + HOUR)}
    assert (found.event_ids, found.subjects) == (["e1", "e2"], ["s-e2", "s-e1"])
    assert (found.ends_at, found.problem, found.created_at) == (NOW + HOUR, "", NOW)


def test_a_page_of_parts_continues_after_the_last_one_of_the_page_before(database: Database) -> None:
    for id, now in (("e1", NOW), ("e2", NOW), ("e3", NOW - 1), ("e4", NOW + 1)):
        database.write_now(put_part, formed(id, [route(id)], now=now), now)
    database.write_now(put_part, formed("e5", [route("r")], owner="EventSubscription/other"), NOW)
    seen: list[str] = []
    place = None
    while page := database.read_now(read_part_page, owner=OWNER, place=place, limit=2):
        assert len(page) <= 2
        seen += [part.event_ids[0] for part in page]
        place = PartPlace(page[-1].observed_at, page[-1].id)
    assert seen == ["e4", "e2", "e1", "e3"]
    assert len(database.read_now(read_part_page, owner="", place=None, limit=9)) == 5


def test_every_change_moves_the_version_and_nothing_else_does(database: Database) -> None:
    seen = [version(database)]
    for change in (
        lambda conn: put_part(conn, formed("e1", [route("r1")]), NOW),
        lambda conn: withdraw(conn, OWNER, ["s-e1"], NOW),
        lambda conn: orphan(conn, [], NOW - HOUR),
        lambda conn: delete_part(conn, formed("e1", []).source),
    ):
        assert database.write_now(change)
        seen.append(version(database))
    assert seen == sorted(set(seen))
    for idle in (
        lambda conn: withdraw(conn, OWNER, ["s-e1"], NOW),
        lambda conn: orphan(conn, [], NOW),
        lambda conn: delete_part(conn, "nobody"),
        lambda conn: delete_old_parts(conn, NOW, 10),
    ):
        assert not database.write_now(idle)
    assert version(database) == seen[-1]


def test_the_generation_counts_contents(database: Database) -> None:
    given = [
        database.write_now(put_part, formed("e1", [route("r1", destination=to)]), NOW) for to in ("a", "a", "b", "a")
    ]
    assert given == [1, 1, 2, 3]
    assert len(database.read_now(read_parts)) == 1


def test_the_generation_of_a_run_by_hand_counts_runs(database: Database) -> None:
    empty = Result(observed_at=NOW, ttl=HOUR)
    same = Result(observed_at=NOW, ttl=HOUR, resources=[route("r1")])
    runs = [form_manual_part(plugin="p", result=result, now=NOW) for result in (same, same, empty, same)]
    assert [database.write_now(put_part, part, NOW) for part in runs] == [1, 2, 3, 4]
    (found,) = database.read_now(read_parts)
    assert (found.owner, found.source, list(found.claims)) == ("Plugin/p", "Plugin/p", [key("r1")])


def test_a_part_without_anything_is_not_kept(database: Database) -> None:
    assert database.write_now(put_part, formed("e1", []), NOW) == 0
    assert database.write_now(put_part, formed("e1", [route("r1")]), NOW) == 1
    assert database.write_now(put_part, formed("e1", []), NOW) == 0
    assert counts(database) == {"parts": 0, "part_claims": 0, "part_subjects": 0}


def test_a_later_part_takes_the_claim_and_the_earlier_one_goes(database: Database) -> None:
    """A repeated observation under a new id: there is one live part for what both name."""
    database.write_now(put_part, formed("e1", [route("r1")]), NOW)
    database.write_now(put_part, formed("e2", [route("r1")]), NOW + SECOND)
    assert list(stored(database)) == ["e2"]
    assert stored(database)["e2"].claims[key("r1")].since == NOW
    assert counts(database) == {"parts": 1, "part_claims": 1, "part_subjects": 1}


def test_a_part_that_loses_one_of_its_claims_stays_with_the_rest(database: Database) -> None:
    database.write_now(put_part, formed("e1", [route("r1"), route("r2")]), NOW)
    before = database.read_now(read_revisions)
    database.write_now(put_part, formed("e2", [route("r1")]), NOW)
    found = stored(database)
    assert {name: sorted(map(str, part.claims)) for name, part in found.items()} == {
        "e1": ["IPv4Route/r2"],
        "e2": ["IPv4Route/r1"],
    }
    assert found["e1"].revision > before[found["e1"].id]  # who follows has to read it again


def test_a_part_that_masks_stays_without_claims(database: Database) -> None:
    database.write_now(put_part, formed("e1", [route("r1")], directives=[MASK]), NOW)
    database.write_now(put_part, formed("e2", [route("r1")]), NOW)
    assert {name: len(part.claims) for name, part in stored(database).items()} == {"e1": 0, "e2": 1}


def test_owners_do_not_take_claims_from_each_other(database: Database) -> None:
    database.write_now(put_part, formed("e1", [route("r1")]), NOW)
    database.write_now(put_part, formed("e2", [route("r1")], owner="EventSubscription/other"), NOW + 5)
    assert {name: part.claims[key("r1")].since for name, part in stored(database).items()} == {
        "e1": NOW,
        "e2": NOW + 5,
    }


def test_a_claim_that_had_ended_begins_anew(database: Database) -> None:
    """Or an owner would be the elder of one that took the resource up while it gave nothing."""
    database.write_now(put_part, formed("e1", [route("r1")], ttl=SECOND), NOW)
    database.write_now(put_part, formed("e2", [route("r1")]), NOW + SECOND)
    assert stored(database)["e2"].claims[key("r1")].since == NOW + SECOND


def test_what_is_over_takes_nothing_from_what_is_alive(database: Database) -> None:
    database.write_now(put_part, formed("e1", [route("r1")]), NOW)
    database.write_now(put_part, formed("e2", [route("r1")], ttl=SECOND, now=NOW - HOUR), NOW)
    assert {name: len(part.claims) for name, part in stored(database).items()} == {"e1": 1, "e2": 0}


def test_clamped_resources_end_with_their_events(database: Database) -> None:
    both = [route("r1", about="s-e1"), route("r2")]
    part = formed("e1 e2", both, expires=NOW + 60 * SECOND, clamp=True)
    database.write_now(put_part, part, NOW)
    (found,) = database.read_now(read_parts)
    assert {k.name: held.ends_at for k, held in found.claims.items()} == {
        "r1": NOW + 60 * SECOND,
        "r2": NOW + 60 * SECOND,
    }
    assert found.ends_at == NOW + 60 * SECOND


def test_a_withdrawn_subject_ends_after_the_grace(database: Database) -> None:
    resources = [route("r1", about="s-e1"), route("r2", about="s-e2"), route("both")]
    database.write_now(put_part, formed("e1 e2", resources), NOW)
    assert database.write_now(withdraw, OWNER, ["s-e1", "unknown"], NOW) == 1
    soon, late = NOW + 30 * SECOND, NOW + HOUR
    ends = {k.name: held.ends_at for k, held in stored(database)["e1"].claims.items()}
    assert ends == {"r1": soon, "r2": late, "both": late}
    assert database.write_now(withdraw, OWNER, ["s-e2"], NOW + 5 * SECOND) == 1
    part = stored(database)["e1"]
    assert {k.name: held.ends_at - NOW for k, held in part.claims.items()} == {
        "r1": 30 * SECOND,
        "r2": 35 * SECOND,
        "both": 35 * SECOND,
    }
    assert part.ends_at == NOW + 35 * SECOND
    assert part.expires_at == late


@pytest.mark.parametrize("owner", ["EventSubscription/other", OWNER])
def test_a_withdrawal_puts_nothing_off_and_is_of_one_owner(database: Database, owner: str) -> None:
    database.write_now(put_part, formed("e1", [route("r1")]), NOW)
    database.write_now(withdraw, OWNER, ["s-e1"], NOW)
    assert database.write_now(withdraw, owner, ["s-e1"], NOW + SECOND) == 0
    assert stored(database)["e1"].ends_at == NOW + 30 * SECOND


@pytest.mark.parametrize("resources", [[], [route("r1")], [route("r1", about="s-e2")]])
def test_what_masks_is_withdrawn_with_the_last_of_its_subjects(
    database: Database, resources: list[dict[str, Any]]
) -> None:
    database.write_now(put_part, formed("e1 e2", resources, directives=[MASK]), NOW)
    database.write_now(withdraw, OWNER, ["s-e1"], NOW)
    assert (stored(database)["e1"].ends_at, stored(database)["e1"].ends_rest_at) == (NOW + HOUR, NOW + HOUR)
    database.write_now(withdraw, OWNER, ["s-e2"], NOW + SECOND)
    assert (stored(database)["e1"].ends_at, stored(database)["e1"].ends_rest_at) == (NOW + 31 * SECOND,) * 2
    assert database.write_now(delete_old_parts, NOW + 31 * SECOND, 9) == 0
    assert database.write_now(delete_old_parts, NOW + 31 * SECOND + 1, 9) == 1


def test_a_new_observation_ends_the_withdrawal(database: Database) -> None:
    database.write_now(put_part, formed("e1", [route("r1")]), NOW)
    database.write_now(withdraw, OWNER, ["s-e1"], NOW)
    database.write_now(put_part, formed("e2", [route("r1")]), NOW + SECOND)
    assert stored(database)["e2"].claims[key("r1")] == (NOW, NOW + HOUR)


def test_parts_of_what_is_gone_end_after_their_grace(database: Database) -> None:
    database.write_now(put_part, formed("e1", [route("r1")]), NOW)
    database.write_now(put_part, formed("e2", [route("r2")], owner="EventSubscription/kept"), NOW)
    manual = Result(observed_at=NOW, ttl=HOUR, resources=[route("r3")])
    for owner in ("Plugin/p", "Plugin/gone", "DynamicConfigSource/gone"):
        database.write_now(put_part, form_manual_part(plugin="p", result=manual, now=NOW, owner=owner), NOW)
    live = ["EventSubscription/kept", "Plugin/p"]
    assert database.write_now(orphan, live, NOW) == 3
    assert database.write_now(orphan, live, NOW + 10 * SECOND) == 0
    ends = {name: (part.expires_at - NOW, part.ends_at - NOW) for name, part in stored(database).items()}
    grace = (30 * SECOND, 30 * SECOND)
    kept = {"e2": (HOUR, HOUR), "Plugin/p": (HOUR, HOUR)}
    assert ends == kept | {"e1": grace, "Plugin/gone": grace, "DynamicConfigSource/gone": grace}
    assert stored(database)["e1"].claims[key("r1")].ends_at == NOW + 30 * SECOND


def test_a_deleted_part_leaves_nothing(database: Database) -> None:
    part = formed("e1", [route("r1")])
    database.write_now(put_part, part, NOW)
    assert database.write_now(delete_part, part.source)
    assert not database.write_now(delete_part, part.source)
    assert counts(database) == {"parts": 0, "part_claims": 0, "part_subjects": 0}


def test_retention_takes_the_longest_over_first_and_all_that_belongs_to_it(database: Database) -> None:
    for number, ttl in enumerate((3, 1, 2, 9), start=1):
        database.write_now(put_part, formed(f"e{number}", [route(f"r{number}")], ttl=ttl * SECOND), NOW)
    assert database.write_now(delete_old_parts, NOW + 3 * SECOND, 1) == 1
    assert sorted(stored(database)) == ["e1", "e3", "e4"]
    assert database.write_now(delete_old_parts, NOW + 3 * SECOND, 10) == 1  # e1 ends at this very time
    assert counts(database) == {"parts": 2, "part_claims": 2, "part_subjects": 2}


def test_a_withdrawn_part_is_over_when_its_subjects_are(database: Database) -> None:
    database.write_now(put_part, formed("e1", [route("r1")], ttl=30 * 24 * HOUR), NOW)
    database.write_now(withdraw, OWNER, ["s-e1"], NOW)
    assert database.write_now(delete_old_parts, NOW + HOUR, 10) == 1


def capture(name: str, address: object, *, how: str = "proxy-arp", about: str = "") -> dict[str, Any]:
    made = route(name, about=about, address=address, capture={"type": how})
    return made | {"apiVersion": "hybrid.routerd.net/v1alpha1", "kind": "RemoteAddressClaim"}


def test_what_is_captured_is_found_by_its_address(database: Database) -> None:
    claims = [
        capture("a", "10.0.0.1/32"),
        capture("b", "10.0.0.2", how=" "),
        capture("c", "no address"),
        capture("d", "10.0.0.4", about="s-e1"),
        route("e", address="10.0.0.5", capture={"type": "proxy-arp"}),
    ]
    part = formed("e1", claims)
    database.write_now(put_part, part, NOW)
    database.write_now(withdraw, OWNER, ["s-e1"], NOW)

    def found(now: int, *addresses: str) -> list[tuple[str, str]]:
        captures = database.read_now(read_captures, addresses, now)
        assert {source for _, _, source in captures} <= {part.source}
        return [(address, claim.name) for address, claim, _ in captures]

    everything = ("10.0.0.1", "10.0.0.2", "10.0.0.4", "10.0.0.5", "?")
    assert found(NOW, *everything) == [("10.0.0.1", "a"), ("10.0.0.4", "d"), ("?", "c")]
    assert found(NOW + 30 * SECOND, *everything) == []
    assert found(NOW, "10.0.0.9") == []
    assert found(NOW) == []


@pytest.mark.parametrize("text", ["{", "3", "null"])
def test_a_row_that_cannot_be_read_says_so_and_is_read(database: Database, text: str) -> None:
    columns = ["action_plans", "directives", "ends", "event_ids", "resources", "subjects"]
    for name in (*columns, "whole"):
        database.write_now(put_part, formed(f"of-{name}", [route(name.replace("_", "-"))]), NOW)
    for column in columns:
        spoil = f"UPDATE parts SET {column} = ? WHERE event_ids LIKE ?"
        assert database.write_now(execute, spoil, (text, f"%of-{column}%")) == 1
    assert sorted(part.problem for part in database.read_now(read_parts)) == [
        "",
        *(f"its stored {column} cannot be read" for column in columns),
    ]


def test_narrow_reads_give_the_same_as_the_whole(database: Database) -> None:
    for ids, owner in (("e1", OWNER), ("e2", OWNER), ("e3", "EventSubscription/other")):
        database.write_now(put_part, formed(ids, [route(ids)], owner=owner), NOW)
    every = {part.id: part for part in database.read_now(read_parts)}
    assert {part.id: part for part in database.read_now(read_parts, ids=list(every))} == every
    assert {p.id for p in database.read_now(read_parts, owner=OWNER)} == {
        i for i, p in every.items() if p.owner == OWNER
    }
    for part in every.values():
        assert database.read_now(read_parts, source=part.source) == [part]
    assert database.read_now(read_parts, ids=[]) == []
    assert database.read_now(read_revisions) == {part.id: part.revision for part in every.values()}


def test_a_mask_is_renewed_and_not_heaped_up(database: Database) -> None:
    database.write_now(put_part, formed("e1", [], directives=[MASK]), NOW)
    database.write_now(put_part, formed("e2", [], directives=[MASK]), NOW + SECOND)
    assert {name: set(part.masks) for name, part in stored(database).items()} == {"e2": {target_of(MASK)}}
    assert stored(database)["e2"].claims == {}


def test_a_part_whose_mask_a_later_one_has_keeps_the_rest(database: Database) -> None:
    database.write_now(put_part, formed("e1", [route("r1")], directives=[MASK]), NOW)
    database.write_now(put_part, formed("e2", [], directives=[MASK]), NOW + SECOND)
    found = stored(database)
    assert (set(found["e1"].claims), set(found["e1"].masks)) == ({key("r1")}, set())
    assert set(found["e2"].masks) == {target_of(MASK)}
