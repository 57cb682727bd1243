"""The search of events: its conditions, its order, its bounds, and one event in all groups."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from eventd.api.admin.events import event_search
from eventd.errors import Invalid, NotFound
from eventd.log.core import listing
from eventd.log.core.eventlog import EventLog
from eventd.log.core.listing import SLACK, place_at
from eventd.log.retention.evict import EvictionLimits, evict
from eventd.runtime.clock import SECOND
from eventd.testing import ManualClock
from tests.support import operations
from tests.support.fresh import on_sqlite
from tests.support.group_ledger import GroupLedger


@pytest.fixture
async def books(log: EventLog, clock: ManualClock) -> GroupLedger:
    """Group g of node a, without peers."""
    found = GroupLedger(log, clock)
    await found.declare()
    return found


async def emit(books: GroupLedger, *events: dict[str, Any]) -> None:
    await books.call("events.emit", group="g", events=[{"type": "t", **event} for event in events], brief=True)


async def ids(books: GroupLedger, **asked: Any) -> list[str]:
    return [event["id"] for event in (await books.call("events.search", group="g", **asked))["events"]]


async def test_the_newest_comes_first_and_a_page_continues_where_the_last_one_ended(books: GroupLedger) -> None:
    await emit(books, *({"id": f"e{number}"} for number in range(5)))
    first = await books.call("events.search", group="g", limit=2)
    assert [event["id"] for event in first["events"]] == ["e4", "e3"]
    await emit(books, {"id": "later"})
    second = await books.call("events.search", group="g", limit=2, after=first["next"])
    assert [event["id"] for event in second["events"]] == ["e2", "e1"]
    third = await books.call("events.search", group="g", limit=2, after=second["next"])
    assert [event["id"] for event in third["events"]] == ["e0"]
    assert third["next"] is third["searchedBackTo"] is None
    assert third["storedEvents"] == 6


@on_sqlite
async def test_each_condition_leaves_out_what_does_not_meet_it(books: GroupLedger) -> None:
    await emit(
        books,
        {"id": "a", "type": "client.seen", "subject": "10.0.0.1", "payload": {"port": "7", "n": "9007199254740993"}},
        {"id": "b", "type": "client.gone", "subject": "10.0.1.1", "payload": {"port": "77"}},
        {"id": "c", "type": "clientele", "subject": "fe80::1", "sourceNode": "other", "payload": {"note": 'a="7"'}},
    )
    assert await ids(books, type=["client.*"]) == ["b", "a"]
    assert await ids(books, type=["client.seen", "clientele"]) == ["c", "a"]
    assert await ids(books, type=["*"]) == ["c", "b", "a"]
    assert await ids(books, subject_prefix="10.0.") == ["b", "a"]
    assert await ids(books, source="other") == ["c"]
    assert await ids(books, id="b") == ["b"]
    assert await ids(books, payload=["port=7"]) == ["a"]
    assert await ids(books, payload=["n=9007199254740993"]) == ["a"]
    assert await ids(books, payload=["n=9007199254740992"]) == []
    assert await ids(books, payload=['note=a="7"']) == ["c"]
    assert await ids(books, payload=["port=7"], type=["clientele"]) == []


@on_sqlite
async def test_a_member_without_a_value_is_refused(books: GroupLedger) -> None:
    for wrong in ("port", "=7"):
        with pytest.raises(ValueError, match="KEY=VALUE"):
            await ids(books, payload=[wrong])


async def test_since_and_until_are_times_of_storage(books: GroupLedger, clock: ManualClock) -> None:
    for number in range(4):
        await emit(books, {"id": f"e{number}", "observedAt": "2020-01-01T00:00:00Z"})
        clock.advance(3600)
    assert await ids(books, since="2026-11-20T13:00:00Z", until="2026-11-20T14:00:00Z") == ["e2", "e1"]
    assert await ids(books, until="2026-11-20T12:00:00Z") == ["e0"]
    assert await ids(books, since="30m") == []
    with pytest.raises(Invalid):
        await ids(books, since="2026-11-20T14:00:00Z", until="2026-11-20T13:00:00Z")


async def test_an_event_stored_after_the_clock_was_put_back_is_found_by_its_time(
    books: GroupLedger, clock: ManualClock
) -> None:
    await emit(books, {"id": "before"})
    clock.advance(300)
    await emit(books, {"id": "ahead"})
    clock.advance(-290)
    await emit(books, {"id": "behind"})
    assert await ids(books, until="2026-11-20T12:01:00Z") == ["behind", "before"]
    assert await ids(books, since="2026-11-20T12:04:00Z") == ["ahead"]


async def test_a_place_by_time_precedes_all_later_records(books: GroupLedger, clock: ManualClock) -> None:
    for number in range(20):
        await emit(books, {"id": f"e{number}"}, {"id": f"f{number}"})
        clock.advance(SLACK / SECOND)
    begun = clock.now() - 20 * SLACK
    topic = await books.log.topic("group:g")
    for number in range(20):
        place = await books.log.database.read(place_at, topic, begun + number * SLACK, 41)
        assert 2 * (number - 1) - 1 <= place <= 2 * number + 1


async def test_a_search_that_finds_little_ends_after_its_bound_and_says_how_far_it_came(
    books: GroupLedger, monkeypatch: pytest.MonkeyPatch, clock: ManualClock
) -> None:
    monkeypatch.setattr(listing, "LOOKED_AT", 3)
    await emit(books, {"id": "wanted", "payload": {"k": "v"}})
    clock.advance(1)
    for number in range(40):
        await emit(books, {"id": f"e{number}", "payload": {"k": "v", "x": "other"} if number % 2 else {"k": "w"}})
        clock.advance(1)
    found: list[str] = []
    answer = await books.call("events.search", group="g", payload=["k=v", "x=no"])
    searches = 1
    assert answer["events"] == []
    assert answer["searchedBackTo"] > "2026-11-20T12:00:01Z"
    while answer["next"]:
        answer = await books.call("events.search", group="g", payload=["k=v"], limit=1, after=answer["next"])
        found += [event["id"] for event in answer["events"]]
        searches += 1
    assert found[-1] == "wanted"
    assert searches > 2


async def test_a_search_ends_after_its_time(books: GroupLedger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "LOOKED_AT", 3)
    monkeypatch.setattr(event_search, "SEARCH_SECONDS", 0)
    for number in range(20):
        await emit(books, {"id": f"e{number}", "payload": {"x": "y"}})
    answer = await books.call("events.search", group="g", subject_prefix="none")
    assert answer["next"]
    assert answer["events"] == []


@on_sqlite
async def test_the_page_of_evicted_events_says_so(books: GroupLedger) -> None:
    await emit(books, *({"id": f"e{number}"} for number in range(4)))
    page = await books.call("events.search", group="g", limit=3)
    topic = await books.log.topic("group:g")
    await books.log.database.write(
        evict, topic, EvictionLimits(max_records=1, keep_undelivered=False), now=books.clock.now()
    )
    after = await books.call("events.search", group="g", limit=3, after=page["next"])
    assert after["events"] == []
    assert after["gap"]["reason"] == "evicted"


@on_sqlite
async def test_an_event_is_found_in_all_groups_that_the_key_sees(books: GroupLedger) -> None:
    await books.declare(group="h")
    await books.call("events.emit", group="g", events=[{"type": "t", "id": "e"}])
    await books.call("events.emit", group="h", events=[{"type": "u", "id": "e"}])
    both = await books.call("events.find", id="e")
    assert [(one["group"], one["stored"], one["event"]["type"]) for one in both["groups"]] == [
        ("g", True, "t"),
        ("h", True, "u"),
    ]
    narrow = replace(books.services, sees=lambda name: name == "h")
    assert [one["group"] for one in (await operations.run(narrow, "events.find", id="e"))["groups"]] == ["h"]
    with pytest.raises(NotFound):
        await operations.run(replace(books.services, sees=lambda _: False), "events.find", id="e")
    with pytest.raises(NotFound):
        await books.call("events.find", id="f")


async def test_a_group_that_does_not_exist_is_not_searched(books: GroupLedger) -> None:
    with pytest.raises(NotFound):
        await books.call("events.search", group="none")
