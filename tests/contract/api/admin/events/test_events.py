"""Emitting and listing events: defaults, refusals with their place, and lists that report every gap."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eventd.api.admin.events import events
from eventd.api.admin.events.emitted import BadEvents, EventsTooLarge
from eventd.api.admin.events.event_columns import PlainEvent
from eventd.api.admin.events.events import Emit
from eventd.api.admin.events.events import emit as emit_events
from eventd.api.framework.operations import Services
from eventd.errors import Conflict, Full, Invalid, NotFound
from eventd.log.core.eventlog import EventLog
from eventd.log.core.listing import EventList, EventQuery, list_latest
from eventd.log.core.units import Publish, StaleDeclaration
from eventd.log.history.hints import keep_hints
from eventd.log.history.refuted import RefutedRecord, keep_refuted
from eventd.log.retention.evict import EvictionLimits, evict
from eventd.log.retention.waiting import RetentionWaits
from eventd.runtime.clock import SECOND
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import execute
from eventd.testing import NOW, ManualClock, draft
from federation.history.leaf_hints import LeafPlace
from tests.support.declared import declare, group
from tests.support.fresh import on_sqlite
from tests.support.group_ledger import GroupLedger

HOUR = 3600 * SECOND
ZERO = "0001-01-01T00:00:00Z"


@pytest.fixture
async def books(log: EventLog, clock: ManualClock) -> GroupLedger:
    """Group g of node a, without peers."""
    found = GroupLedger(log, clock)
    await found.declare()
    return found


async def emit(books: GroupLedger, *events: dict[str, Any]) -> list[dict[str, Any]]:
    answer = await books.call("events.emit", group="g", events=list(events))
    results: list[dict[str, Any]] = answer["results"]
    return results


async def ids(books: GroupLedger, **asked: Any) -> list[str]:
    return [event["id"] for event in (await books.call("events.list", group="g", **asked))["events"]]


@on_sqlite
async def test_what_is_missing_is_filled_in(books: GroupLedger) -> None:
    (result,) = await emit(books, {"type": "t"})
    assert result["result"] == "new"
    assert result["event"] == {
        "id": result["id"],
        "group": "g",
        "sourceNode": "a",
        "type": "t",
        "subject": "",
        "dedupeKey": result["id"],
        "payload": {},
        "observedAt": "2026-11-20T12:00:00Z",
        "expiresAt": ZERO,
        "recordedAt": "2026-11-20T12:00:00Z",
        "seq": 1,
        "path": [],
    }


@on_sqlite
async def test_a_brief_answer_leaves_the_events_out(books: GroupLedger) -> None:
    answer = await books.call("events.emit", group="g", events=[{"type": "t", "id": "i"}], brief=True)
    assert answer == {
        "counts": {"new": 1, "refreshed": 0, "duplicate": 0, "conflict": 0},
        "results": [{"id": "i", "result": "new"}],
    }


@on_sqlite
async def test_an_answer_of_exceptions_tells_of_what_is_not_new(books: GroupLedger) -> None:
    fact = {"type": "t", "id": "i"}
    answer = await books.call("events.emit", group="g", events=[fact], exceptions=True)
    assert answer == {"counts": {"new": 1, "refreshed": 0, "duplicate": 0, "conflict": 0}, "results": []}
    events = [{"type": "t"}, fact, {"type": "t"}, {**fact, "subject": "s"}]
    answer = await books.call("events.emit", group="g", events=events, exceptions=True)
    assert len(answer["results"][1]["owner"].pop("digest")) == 64
    assert answer == {
        "counts": {"new": 2, "refreshed": 0, "duplicate": 1, "conflict": 1},
        "results": [
            {"index": 1, "id": "i", "result": "duplicate"},
            {"index": 3, "id": "i", "result": "conflict", "owner": {"sourceNode": "a", "keyId": ""}},
        ],
    }


@on_sqlite
async def test_a_changed_declaration_counts_from_the_next_event_on(books: GroupLedger) -> None:
    await emit(books, {"type": "t"})
    await books.declare(spec="limits: {maxEventBytes: 1KiB}")
    with pytest.raises(EventsTooLarge):
        await emit(books, {"type": "t", "payload": {"k": "v" * 2000}})
    await books.call("resources.delete", kind="eg", name="g")
    with pytest.raises(NotFound, match="EventGroup g is not declared"):
        await emit(books, {"type": "t"})


@on_sqlite
async def test_what_is_given_is_kept(books: GroupLedger) -> None:
    given = {
        "id": " i ",
        "group": "g",
        "sourceNode": "z",
        "type": "t.u",
        "subject": "10.1/32",
        "dedupeKey": "k",
        "payload": {"b": "2", "a": "", "ü": "=\n"},
        "observedAt": "2026-05-30T12:13:20.5+02:00",
        "expiresAt": "2030-01-01T00:00:00Z",
    }
    (result,) = await emit(books, given)
    event = result["event"]
    assert {name: event[name] for name in given} == {**given, "id": "i", "observedAt": "2026-05-30T10:13:20.500000Z"}


async def test_generated_ids_follow_time(books: GroupLedger, clock: ManualClock) -> None:
    first = [result["id"] for result in await emit(books, {"type": "t"})]
    clock.advance(0.001)
    second = [result["id"] for result in await emit(books, {"type": "t"})]
    assert first < second


@on_sqlite
async def test_a_ttl_counts_from_the_observation(books: GroupLedger) -> None:
    for ttl, expires in [
        ("90s", "2026-11-20T11:01:30Z"),
        ("0s", ZERO),
        ("-5m", ZERO),
        ("1.5h", "2026-11-20T12:30:00Z"),
    ]:
        (result,) = await emit(books, {"type": "t", "ttl": ttl, "observedAt": "2026-11-20T11:00:00Z"})
        assert result["event"]["expiresAt"] == expires, ttl


WRONG_EVENTS: list[tuple[Any, str]] = [
    ({}, "federation event type is required"),
    ({"type": "  "}, "federation event type is required"),
    ({"type": 7}, "type must be text, not a number"),
    ({"type": "t", "payload": {"k": 1}}, r"each value of payload must be text, not a number"),
    ({"type": "t", "payload": []}, "payload must be an object, not a list"),
    ([], "an event must be an object, not a list"),
    ("t", "an event must be an object, not text"),
    ({"type": "t", "subjekt": "s"}, r"unknown member subjekt \(did you mean subject\?\)"),
    ({"type": "t", "zzz": "s"}, r"unknown member zzz \(an event has id, group, .*, ttl\)"),
    ({"type": "t", "group": "h"}, "group is h, and this request is for g"),
    ({"type": "t", "observedAt": "now"}, "'now' is not an RFC 3339 time"),
    ({"type": "t", "expiresAt": ""}, "'' is not an RFC 3339 time"),
    ({"type": "t", "ttl": "soon"}, "ttl 'soon' is not a duration; write 30s, 5m or 168h"),
    (
        {"type": "t", "ttl": "1000000h", "observedAt": "9990-01-01T00:00:00Z"},
        "ttl '1000000h' ends after the year 9999",
    ),
    ({"type": "t", "ttl": "5m", "expiresAt": "2030-01-01T00:00:00Z"}, "both set the expiry"),
    ({"type": "a\0b"}, r"type holds U\+0000 or a lone surrogate"),
    ({"type": "\ud800"}, r"type holds U\+0000 or a lone surrogate"),
    ({"type": "t" * 513}, "type is longer than 512 characters"),
]


@on_sqlite
async def test_a_wrong_event_is_refused_with_its_reason(books: GroupLedger) -> None:
    for event, message in WRONG_EVENTS:
        with pytest.raises(BadEvents, match=message):
            await emit(books, event)
        assert await ids(books) == [], message


async def test_a_wrong_event_is_refused_though_its_group_has_no_topic_yet(books: GroupLedger) -> None:
    await books.log.database.write(execute, "DELETE FROM topics WHERE name = 'group:g'")
    async with asyncio.timeout(10):  # it was tried again for ever, because the new topic was not remembered
        with pytest.raises(BadEvents, match="federation event type is required"):
            await emit(books, {})
        assert [result["result"] for result in await emit(books, {"type": "t"})] == ["new"]


@on_sqlite
async def test_every_wrong_event_is_named_and_none_is_stored(books: GroupLedger) -> None:
    with pytest.raises(BadEvents) as raised:
        await emit(books, {"type": "t"}, {"typo": "t"}, {"type": "t"}, {})
    assert [problem["index"] for problem in raised.value.detail] == [1, 3]
    assert raised.value.message.startswith(
        "2 of 4 events are wrong, nothing was stored:\n  event 1: unknown member typo"
    )
    assert await ids(books) == []


@on_sqlite
async def test_a_listing_can_be_emitted_elsewhere(books: GroupLedger) -> None:
    await emit(books, {"type": "t", "id": "i", "payload": {"k": "v"}, "ttl": "1h"})
    (event,) = (await books.call("events.list", group="g"))["events"]
    (result,) = await emit(books, event)
    assert result["result"] == "duplicate"


@on_sqlite
async def test_a_copied_listing_has_the_true_event_of_an_id_and_not_the_refuted_one(
    books: GroupLedger, log: EventLog
) -> None:
    topic = await log.topic("group:g")
    [forged] = await books.publish(draft("e1", node="evil", path="b,hub"))
    await log.database.write(keep_refuted, topic, RefutedRecord(forged, "e1", "eventd/g/b/tree", 7, NOW))
    await books.publish(draft("e1", node="a", path="b,hub"))
    assert [one["sourceNode"] for one in (await books.call("events.list", group="g"))["events"]] == ["a"]
    both = (await books.call("events.list", group="g", id="e1"))["events"]
    assert [one["sourceNode"] for one in both] == ["evil", "a"]
    with pytest.raises(BadEvents) as refused:
        await emit(books, *both)
    [problem] = refused.value.problems
    assert (problem.index, "is marked as refuted: do not emit it" in problem.message) == (0, True)


@on_sqlite
async def test_an_undeclared_group_is_refused_by_name(books: GroupLedger) -> None:
    with pytest.raises(NotFound, match="EventGroup gg is not declared") as raised:
        await books.call("events.emit", group="gg", events=[{"type": "t"}])
    assert raised.value.hint == "did you mean g?"


@on_sqlite
async def test_the_same_id_refreshes_repeats_or_conflicts(books: GroupLedger) -> None:
    fact = {"type": "t", "id": "i", "observedAt": "2026-11-20T12:00:00Z"}
    assert [r["result"] for r in await emit(books, {**fact, "ttl": "1h"})] == ["new"]
    assert [r["result"] for r in await emit(books, {**fact, "ttl": "2h"})] == ["refreshed"]
    (repeated,) = await emit(books, {**fact, "ttl": "1h"})
    assert repeated["result"] == "duplicate"
    assert repeated["event"]["expiresAt"] == "2026-11-20T14:00:00Z", "what is stored, not what was sent"
    with pytest.raises(Conflict, match="taken in group g by another event of a, which was emitted at this node"):
        await emit(books, {**fact, "subject": "s"})
    results = await emit(books, {**fact, "subject": "s"}, {"type": "t", "id": "j"}, {"type": "t", "id": "j"})
    assert [r["result"] for r in results] == ["conflict", "new", "duplicate"]
    assert [r.get("owner", {}).get("sourceNode") for r in results] == ["a", None, None]
    assert await ids(books) == ["i", "j"], "one row for each id"


@on_sqlite
async def test_the_limit_of_one_event_is_the_groups(books: GroupLedger) -> None:
    await books.declare(spec="limits: {maxEventBytes: 1KiB}")
    await emit(books, {"type": "t", "payload": {"k": "v" * 700}})
    with pytest.raises(
        EventsTooLarge, match=r"the event cannot be stored: \d+ bytes are over the limit of 1024 of group g"
    ):
        await emit(books, {"type": "t", "payload": {"k": "v" * 1000}})
    with pytest.raises(BadEvents, match="2 of 2 events are wrong"):
        await emit(books, {"type": "t", "payload": {"k": "v" * 1000}}, {})


@on_sqlite
async def test_a_full_group_refuses_and_keeps_what_it_has(books: GroupLedger) -> None:
    await books.declare(spec="retention: {maxBytes: 1000}")
    await emit(books, *({"type": "t", "id": f"e{n}"} for n in range(5)))
    with pytest.raises(Full, match="limit of 1000 bytes"):
        await emit(books, {"type": "t", "id": "last", "payload": {"k": "v" * 600}})
    assert len(await ids(books)) == 5


async def test_filters_of_a_listing(books: GroupLedger) -> None:
    await books.publish(
        draft("e1", type="x", subject="10%.1", observed=NOW - HOUR),
        draft("e2", type="y", subject="10X.1", node="z", path="z"),
        draft("e3", type="z", subject="11", expires=NOW - 1),
    )
    assert await ids(books) == ["e1", "e2"]
    assert await ids(books, include_expired=True) == ["e1", "e2", "e3"]
    assert await ids(books, type=["x", "z"], include_expired=True) == ["e1", "e3"]
    assert await ids(books, subject_prefix="10%") == ["e1"]
    assert await ids(books, source="z") == ["e2"]
    assert await ids(books, id="e2") == ["e2"]
    assert await ids(books, since="30m") == ["e2"]
    assert await ids(books, until="2026-11-20T11:00:00Z") == ["e1"]
    assert await ids(books, newest=True) == ["e2", "e1"]
    with pytest.raises(Invalid, match="until: 'tomorrow' is not a time"):
        await ids(books, until="tomorrow")


async def test_pages_hold_every_event_once(books: GroupLedger) -> None:
    await emit(books, *({"type": "t", "id": f"e{n:02}"} for n in range(25)))
    for newest in [False, True]:
        found: list[str] = []
        after, pages = "", 0
        while pages == 0 or after:
            answer = await books.call("events.list", group="g", after=after, limit=10, newest=newest)
            found += [event["id"] for event in answer["events"]]
            after, pages = answer["next"] or "", pages + 1
        assert pages == 3, newest
        assert found == sorted((f"e{n:02}" for n in range(25)), reverse=newest), newest


@on_sqlite
async def test_a_reader_that_follows_sees_what_is_new(books: GroupLedger) -> None:
    await emit(books, {"type": "t", "id": "e1"})
    first = await books.call("events.list", group="g")
    await emit(books, {"type": "t", "id": "e2"}, {"type": "t", "id": "e1", "ttl": "1h"})
    second = await books.call("events.list", group="g", after=first["upto"])
    assert [event["id"] for event in second["events"]] == ["e2"]
    assert second["gap"] is None


@on_sqlite
async def test_what_retention_took_from_a_reader_is_said(books: GroupLedger, log: EventLog, clock: ManualClock) -> None:
    await emit(books, {"type": "t", "id": "e1"})
    token = (await books.call("events.list", group="g"))["upto"]
    await emit(books, *({"type": "t", "id": f"e{n}"} for n in range(2, 6)))
    topic = await log.topic("group:g")
    await log.database.write(evict, topic, EvictionLimits(max_records=2), now=clock.now())
    answer = await books.call("events.list", group="g", after=token)
    assert [event["id"] for event in answer["events"]] == ["e4", "e5"]
    assert answer["gap"] == {
        "reason": "evicted",
        "message": "retention has removed events after the token, up to seq 3 of the group",
    }
    assert (await books.call("events.list", group="g"))["gap"] is None, "a reader that begins has missed nothing"
    foreign = await books.call("events.list", group="g", after="feedfeed:1")
    assert foreign["gap"]["reason"] == "another_history"
    ahead = await books.call("events.list", group="g", after=token.split(":")[0] + ":999")
    assert ahead["gap"]["reason"] == "another_history"


@on_sqlite
async def test_prune_applies_the_retention_now(books: GroupLedger, clock: ManualClock) -> None:
    await emit(books, *({"type": "t", "id": f"e{n:04}"} for n in range(4500)))
    assert await books.call("events.prune", group="g") == {
        "group": "g",
        "removed": 0,
        "evictedSeq": 0,
        "bounded": False,
    }
    await books.declare(spec="retention: {maxEvents: 100}")
    answer = await books.call("events.prune", group="g")
    assert answer == {"group": "g", "removed": 4400, "evictedSeq": 4400, "bounded": True}
    assert len(await ids(books, limit=1000)) == 100


@on_sqlite
async def test_prune_holds_what_a_peer_has_yet_to_get(books: GroupLedger) -> None:
    await books.declare("b", spec="retention: {maxEvents: 1}")
    await emit(books, *({"type": "t", "id": f"e{n}"} for n in range(1, 6)))
    await books.settle("b", 2)
    answer = await books.call("events.prune", group="g")
    assert (answer["removed"], await ids(books)) == (2, ["e3", "e4", "e5"])
    (group,) = (await books.call("groups.status"))["groups"]
    assert group["retentionWaits"] == {"peers": 2}, "e5 is within the limit"
    checks = (await books.call("doctor.examine"))["checks"]
    (found,) = [check for check in checks if check["code"] == "retention-waits"]
    assert found["name"] == "g retention"
    assert found["detail"].endswith("events over the limits are kept: up to 2 for peers")


@on_sqlite
async def test_prune_shows_what_it_waits_for_now_where_it_is_asked(books: GroupLedger) -> None:
    """And not what a status has read in the second before."""
    books.services = replace(books.services, retention_waits=RetentionWaits())
    await books.declare("b", spec="retention: {maxEvents: 1}")
    await emit(books, {"type": "t"})
    (group,) = (await books.call("groups.status"))["groups"]
    assert group["retentionWaits"] == {}
    await emit(books, {"type": "t"}, {"type": "t"})
    answer = await books.call("events.prune", group="g", waits=True)
    assert answer == {
        "group": "g",
        "removed": 0,
        "evictedSeq": 0,
        "bounded": True,
        "retentionWaits": {"peers": 2},
    }


@on_sqlite
async def test_the_status_of_all_groups(books: GroupLedger) -> None:
    await books.declare("b", "c")
    await emit(books, {"type": "t"}, {"type": "t"})
    await books.call("links.pause", group="g", peer="c")
    status = await books.call("groups.status")
    assert status["position"] == 2
    (group,) = status["groups"]
    assert group["bytes"] > 0
    assert {**group, "bytes": 0} == {
        "group": "g",
        "nodeName": "a",
        "listen": "",
        "protocols": ["v1", "v2"],
        "events": 2,
        "bytes": 0,
        "seq": 2,
        "evictedSeq": 0,
        "peers": 2,
        "links": {"running": 1, "paused": 1},
        "retentionWaits": {},
    }


@on_sqlite
async def test_a_span_that_ends_before_it_begins_is_refused(books: GroupLedger) -> None:
    await books.declare("b")
    for operation, more in (("events.list", {}), ("deliveries.list", {}), ("deliveries.redeliver", {"peer": "b"})):
        with pytest.raises(Invalid, match=r"until \(2h\) is before since \(1h\)"):
            await books.call(operation, group="g", since="1h", until="2h", **more)


@on_sqlite
async def test_whoever_emits_is_held_to_what_is_declared_by_now(books: GroupLedger) -> None:
    """The group is remembered from one event to the next, also where another process has declared it anew."""
    await emit(books, {"type": "t", "id": "a"})
    await books.declare(spec="limits: {maxEventBytes: 4096}")
    with pytest.raises(EventsTooLarge, match="limit of 4096"):
        await emit(books, {"type": "t", "payload": {"k": "v" * 5000}})
    await books.declare(spec="limits: {maxEventBytes: 8192}")
    await emit(books, {"type": "t", "id": "b", "payload": {"k": "v" * 5000}})
    await books.declare(spec="retention: {maxBytes: 1}")
    with pytest.raises(Full):
        await emit(books, {"type": "t"})
    assert await ids(books) == ["a", "b"]


@on_sqlite
async def test_an_event_comes_from_the_node_by_its_name_of_now(books: GroupLedger) -> None:
    await emit(books, {"type": "t", "id": "a"})
    text = declare(group("z", name="g", port=7999, secret=Path("/etc/secret")))
    await books.call("resources.apply", sources=[{"name": "renamed.yaml", "text": text}])
    asked = Emit.model_construct(group="g", events=[PlainEvent(type="t", id="b")], brief=False, exceptions=False)
    told = await emit_events(Services(books.log), asked)
    assert told["results"][0]["event"]["sourceNode"] == "z"


@on_sqlite
async def test_a_source_that_the_client_wrote_stays_when_the_node_is_renamed(books: GroupLedger) -> None:
    await emit(books, {"type": "t", "id": "a"})
    text = declare(group("z", name="g", port=7999, secret=Path("/etc/secret")))
    await books.call("resources.apply", sources=[{"name": "renamed.yaml", "text": text}])
    events = [PlainEvent(type="t", id="b", source_node="a"), PlainEvent(type="t", id="c")]
    asked = Emit.model_construct(group="g", events=events, brief=False, exceptions=False)
    told = await emit_events(Services(books.log), asked)
    assert [result["event"]["sourceNode"] for result in told["results"]] == ["a", "z"]


@on_sqlite
async def test_a_group_that_is_gone_takes_nothing_though_it_is_remembered(books: GroupLedger) -> None:
    await emit(books, {"type": "t"})
    await books.call("resources.delete", kind="EventGroup", name="g")
    with pytest.raises(NotFound, match="EventGroup g is not declared"):
        await emit(books, {"type": "t"})
    await books.declare()
    await emit(books, {"type": "t", "id": "again"})
    assert await ids(books) == ["again"]


@on_sqlite
async def test_what_was_made_for_another_declaration_is_not_written(books: GroupLedger) -> None:
    topic = await books.log.topic("group:g")
    with pytest.raises(StaleDeclaration):
        await books.log.submit(Publish(topic, [draft("a")], declared=0))
    assert await ids(books) == []


@on_sqlite
async def test_events_are_listed_by_the_result_of_their_check(log: EventLog, clock: ManualClock) -> None:
    books = GroupLedger(log, clock)
    await books.declare(spec="history: {mode: verify}")
    topic = await log.topic("group:g")
    *_, forged, late = await books.publish(draft("own"), *(draft(name, path="b,hub") for name in ("old", "bad", "new")))
    await log.database.write(keep_refuted, topic, RefutedRecord(forged, "bad", "eventd/g/b/tree", 7, NOW))
    await log.database.write(keep_hints, topic, [LeafPlace(late, 9, "t" * 16)], [late], [late], NOW)

    found = {state: await ids(books, history=state) for state in ("waiting", "verified", "unproven", "refuted")}
    assert found == {"waiting": ["new"], "verified": [], "unproven": ["old"], "refuted": ["bad"]}
    shown = (await books.call("events.list", group="g"))["events"]
    assert [one.get("history") for one in shown] == [None, "unproven", "waiting"]
    assert [one.get("admittedBy") for one in shown] == [None, "b", "b"]
    described = (await books.call("events.describe", group="g", id="new"))["event"]
    assert (described["history"], described["admittedBy"]) == ("waiting", "b")
    assert [one["result"] for one in await emit(books, *shown)] == ["duplicate", "duplicate", "duplicate"]
    assert (await books.call("history.status", group="g"))["groups"][0]["waiting"] == 1
    await books.declare(spec="history: {mode: record}")
    with pytest.raises(Invalid, match=r"its history\.mode is record"):
        await ids(books, history="waiting")


@pytest.mark.parametrize("newest", [False, True])
async def test_a_list_by_the_result_of_a_check_reads_full_pages_and_a_bounded_number_of_them(
    log: EventLog, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, newest: bool
) -> None:
    books = GroupLedger(log, clock)
    await books.declare(spec="history: {mode: verify}")
    for number in range(20):
        await books.publish(draft(f"own{number}"))
    await books.publish(*(draft(f"e{number}", path="b,hub") for number in range(3)))
    reads: list[EventQuery] = []

    def read_page(conn: Connection, ask: EventQuery) -> EventList:
        reads.append(ask)
        return list_latest(conn, ask)

    monkeypatch.setattr(events, "list_latest", read_page)
    assert await ids(books, history="unproven", newest=newest, limit=1) == ["e2" if newest else "e0"]
    assert len(reads) == 1, "one page has all events"
    monkeypatch.setattr(events, "MAX_PAGE_SIZE", 3)
    monkeypatch.setattr(events, "SEARCH_PAGES", 2)
    found, token = list[list[str]](), ""
    while token is not None:
        reads.clear()
        answer = await books.call("events.list", group="g", history="unproven", newest=newest, limit=2, after=token)
        assert len(reads) <= 2
        found.append([one["id"] for one in answer["events"]])
        token = answer["next"]
    assert [one for page in found for one in page] == (["e2", "e1", "e0"] if newest else ["e0", "e1", "e2"])
    assert [] in found, "a page between two others may be empty"
