"""Redelivery, pausing and dead letters: what is refused and why, and what is started."""

from __future__ import annotations

import asyncio
import json
from contextlib import closing
from typing import Any

import pytest
from pydantic import ValidationError

from eventd.api.admin.deliveries import redelivery
from eventd.errors import Conflict, Invalid, NotFound
from eventd.log.core.eventlog import EventLog
from eventd.log.core.head import lock_head
from eventd.log.delivery import backlog
from eventd.log.delivery.backlog import Backlog, read_backlog, survey
from eventd.log.delivery.selection import Selection
from eventd.log.retention.evict import EvictionLimits, evict
from eventd.runtime.clock import SECOND
from eventd.store.engine.database import Database
from eventd.store.rows.registry import read_version
from eventd.testing import NOW, ManualClock, draft
from federation.selector import Selector
from tests.support.group_ledger import GroupLedger

HOUR = 3600 * SECOND


@pytest.fixture
async def books(log: EventLog, clock: ManualClock) -> GroupLedger:
    """Group g of node a with the peers b, which takes everything, and c, which takes type x."""
    found = GroupLedger(log, clock)
    await found.declare("b", c="types: [x]")
    return found


async def test_redelivery_by_id_names_the_positions(books: GroupLedger) -> None:
    await books.publish(*(draft(f"e{n}") for n in range(1, 7)))
    await books.settle("b", 6)
    answer = await books.call("deliveries.redeliver", group="g", peer="b", ids=["e5", "e2", "e2"])
    assert (answer["events"], answer["dryRun"]) == (2, False)
    (repair,) = await books.repairs("b")
    assert (repair.kind, repair.position, repair.until) == ("repair", 1, 5)
    assert repair.selection["positions"] == [2, 5]
    assert repair.name == "repair:g/b/1"


async def test_redelivery_is_told_to_running_nodes(books: GroupLedger, log: EventLog) -> None:
    await books.publish(draft("e1"))
    await books.settle("b", 1)
    before = await log.database.read(read_version)
    await books.call("deliveries.redeliver", group="g", peer="b", ids=["e1"], dry_run=True)
    assert await log.database.read(read_version) == before
    assert await books.repairs("b") == []
    await books.call("deliveries.redeliver", group="g", peer="b", ids=["e1"])
    assert await log.database.read(read_version) == before + 1


async def test_a_delivered_event_stays_delivered_while_it_is_sent_again(books: GroupLedger) -> None:
    await books.publish(draft("e1"))
    await books.settle("b", 1)
    await books.call("deliveries.redeliver", group="g", peer="b", ids=["e1"])
    assert await books.states() == {"e1": "delivered"}


async def test_several_repairs_of_a_peer_have_names_of_their_own(books: GroupLedger) -> None:
    await books.publish(draft("e1"))
    await books.settle("b", 1)
    for _ in range(3):
        await books.call("deliveries.redeliver", group="g", peer="b", ids=["e1"])
    assert [repair.name for repair in await books.repairs("b")] == [f"repair:g/b/{n}" for n in (1, 2, 3)]


async def test_what_cannot_be_sent_again_is_refused_with_its_reason(
    books: GroupLedger, log: EventLog, clock: ManualClock
) -> None:
    await books.publish(
        draft("gone"), draft("dead", expires=NOW + SECOND), draft("own", node="b"), draft("x", type="x")
    )
    await books.publish(draft("far", node="z", path="z"), draft("last"))
    await books.settle("b", 5)
    await books.settle("c", 6)
    topic = await log.topic("group:g")
    await log.database.write(evict, topic, EvictionLimits(max_records=5, keep_undelivered=False), now=clock.now())
    clock.advance(5)
    for event_id, reason in {
        "gone": "retention has removed it",
        "dead": "it expired at 2026-11-20T12:00:01Z",
        "own": "it came from b, or through it",
        "far": "it is not meant for b",
        "last": "it is still in the backlog of the link",
    }.items():
        with pytest.raises(Conflict, match=f"^event {event_id} cannot be sent again: {reason}$"):
            await books.call("deliveries.redeliver", group="g", peer="b", ids=[event_id])
        with pytest.raises(Conflict, match=f"^event {event_id} cannot be sent again: {reason}$"):
            await books.call("deliveries.redeliver", group="g", peer="b", ids=["x", event_id], dry_run=True)
    with pytest.raises(NotFound, match=r"^event none cannot be sent again: group g has no event with this id$"):
        await books.call("deliveries.redeliver", group="g", peer="b", ids=["none"])
    with pytest.raises(Conflict, match=r"2 events cannot be sent again, so none is:\n  dead: it expired.*\n  none: "):
        await books.call("deliveries.redeliver", group="g", peer="b", ids=["x", "dead", "none"])
    assert await books.repairs("b") == []


async def test_a_range_says_what_it_would_send_and_what_not(books: GroupLedger, clock: ManualClock) -> None:
    await books.publish(draft("e1", type="x", payload={"k": "v" * 100}), draft("e2", type="x", expires=NOW + SECOND))
    clock.advance(10)
    await books.publish(draft("e3", type="y"), draft("e4", type="x"), draft("e5", type="x"))
    await books.settle("c", 4)
    dry = await books.call("deliveries.redeliver", group="g", peer="c", from_seq=1, to_seq=5, dry_run=True)
    assert dry == {
        "group": "g",
        "peer": "c",
        "dryRun": True,
        "events": 2,
        "bytes": dry["bytes"],
        "oldest": "2026-11-20T12:00:00Z",
        "newest": "2026-11-20T12:00:10Z",
        "expired": 1,
        "notMeant": 1,
        "waiting": 1,
        "evicted": 0,
    }
    assert dry["bytes"] > 200
    wet = await books.call("deliveries.redeliver", group="g", peer="c", from_seq=1, to_seq=5)
    assert wet == {**dry, "dryRun": False}
    (repair,) = await books.repairs("c")
    assert (repair.position, repair.until) == (0, 4)
    assert repair.selection == {"types": ["x"]}


async def test_a_span_of_time_is_that_of_the_recording(books: GroupLedger, clock: ManualClock) -> None:
    for n in range(1, 5):
        await books.publish(draft(f"e{n}", observed=NOW - n * HOUR))
        clock.advance(60)
    await books.settle("b", 4)
    await books.call("deliveries.redeliver", group="g", peer="b", since="2026-11-20T12:01:00Z", until="90s")
    (repair,) = await books.repairs("b")
    assert (repair.position, repair.until) == (1, 3)


async def test_the_numbers_of_a_range_are_the_groups_own(books: GroupLedger, log: EventLog) -> None:
    other = await log.topic("group:other")
    await books.publish(draft("e1"))
    await log.append(other, [draft("o1"), draft("o2")])
    await books.publish(draft("e2"))
    await books.settle("b", 4)
    await books.call("deliveries.redeliver", group="g", peer="b", from_seq=2)
    (repair,) = await books.repairs("b")
    assert (repair.position, repair.until) == (3, 4)


async def test_an_evicted_part_of_a_range_is_counted(books: GroupLedger, log: EventLog, clock: ManualClock) -> None:
    await books.publish(*(draft(f"e{n}") for n in range(1, 6)))
    for peer in "bc":
        await books.settle(peer, 5)
    topic = await log.topic("group:g")
    await log.database.write(evict, topic, EvictionLimits(max_records=2), now=clock.now())
    dry = await books.call("deliveries.redeliver", group="g", peer="b", from_seq=2, to_seq=4, dry_run=True)
    assert (dry["events"], dry["evicted"]) == (1, 2)
    with pytest.raises(Conflict, match=r"nothing to send to b again: 3 removed by retention$"):
        await books.call("deliveries.redeliver", group="g", peer="b", to_seq=3)


async def test_a_range_is_looked_over_without_the_writer(books: GroupLedger, migrated_url: str) -> None:
    await books.publish(draft("e1"))
    with closing(Database(migrated_url)) as other, other.transaction() as conn:
        lock_head(conn)
        with pytest.raises(Conflict, match=r"nothing to send to b again: 1 already in the backlog$"):
            await books.call("deliveries.redeliver", group="g", peer="b", from_seq=1)


async def test_nothing_to_send_is_refused(books: GroupLedger, clock: ManualClock) -> None:
    await books.publish(draft("e1", type="y"), draft("e2", type="x", expires=NOW), draft("e3", type="x"))
    await books.settle("c", 2)
    clock.advance(1)
    with pytest.raises(Conflict, match=r"again: 1 expired, 1 not meant for c, 1 already in the backlog$"):
        await books.call("deliveries.redeliver", group="g", peer="c", from_seq=1)
    with pytest.raises(Conflict, match=r"again: the range holds no event$"):
        await books.call("deliveries.redeliver", group="g", peer="c", from_seq=9, to_seq=12)
    with pytest.raises(Invalid, match="the range ends at seq 2, before it begins at 3"):
        await books.call("deliveries.redeliver", group="g", peer="c", from_seq=3, to_seq=2)


async def test_events_are_chosen_in_one_way(books: GroupLedger) -> None:
    choices = ({}, {"ids": ["e1"], "from_seq": 1}, {"since": "1h", "to_seq": 3}, {"ids": ["e1"], "until": "1h"})
    for choice in choices:
        with pytest.raises(ValidationError, match="in one way"):
            await books.call("deliveries.redeliver", group="g", peer="b", **choice)


async def test_a_repair_of_a_paused_peer_waits(books: GroupLedger) -> None:
    await books.publish(draft("e1"))
    await books.settle("b", 1)
    await books.call("links.pause", group="g", peer="b", by="ann")
    await books.call("deliveries.redeliver", group="g", peer="b", ids=["e1"])
    (repair,) = await books.repairs("b")
    assert repair.paused_by == "ann"
    await books.call("links.resume", group="g", peer="b")
    (repair,) = await books.repairs("b")
    assert repair.paused_at is None


async def test_a_paused_link_keeps_who_paused_it_and_resumes_at_once(books: GroupLedger, clock: ManualClock) -> None:
    await books.publish(draft("e1"))
    await books.fail("b", 1, "connection refused")
    clock.advance(3)
    answer = await books.call("links.pause", group="g", peer="b", by="ann")
    (link,) = answer["outbound"]
    assert (link["state"], link["pausedBy"], link["pausedAt"]) == ("paused", "ann", "2026-11-20T12:00:03Z")
    assert (link["lagEvents"], link["lagSeconds"], link["retryAt"]) == (1, 3.0, None)
    clock.advance(3)
    (link,) = (await books.call("links.pause", group="g", peer="b", by="ben"))["outbound"]
    assert (link["pausedBy"], link["since"]) == ("ann", "2026-11-20T12:00:03Z")
    (link,) = (await books.call("links.resume", group="g", peer="b"))["outbound"]
    assert (link["state"], link["attempts"], link["pausedBy"], link["retryAt"]) == ("running", 0, "", None)


async def test_a_link_shows_why_and_how_far_it_is_behind(books: GroupLedger, clock: ManualClock) -> None:
    await books.publish(draft("e1", type="x"), draft("e2", type="y"), draft("e3", type="x", expires=NOW + SECOND))
    await books.settle("c", 1)
    clock.advance(2)
    await books.publish(draft("e4", type="x"))
    await books.fail("c", 4, "no route to host")
    clock.advance(5)
    answer = await books.call("links.status", group="g", peer="c")
    assert answer["inbound"] == []
    (link,) = answer["outbound"]
    assert {
        name: link[name] for name in ("state", "reason", "lastError", "attempts", "protocol", "position", "head")
    } == {
        "state": "backing-off",
        "reason": "unreachable",
        "lastError": "no route to host",
        "attempts": 1,
        "protocol": "v2",
        "position": 1,
        "head": 4,
    }
    assert (link["lagEvents"], link["lagSeconds"]) == (1, 5.0), "e2 is not meant for c and e3 has expired"
    assert (link["lastSuccessAt"], link["retryAt"]) == ("2026-11-20T12:00:00Z", "2026-11-20T12:00:03Z")


async def test_the_lag_counts_what_the_selection_means(log: EventLog, books: GroupLedger) -> None:
    await books.publish(
        draft("e1", subject="10%.1"),
        draft("e2", subject="10X.1", node="b"),
        draft("e3", subject="10%.2", node="z", path="z"),
        draft("e4", subject="10%.3", node="z", path="z,b"),
        draft("e5", subject="11", type="it's"),
    )
    topic = await log.topic("group:g")

    async def waiting(relay: bool = False, **selector: list[str]) -> int:
        wanted = Selection(Selector.of(**selector), relay).wanted_by("b")
        lag = await log.database.read(read_backlog, topic, wanted, after=0, now=NOW)
        seen = await log.database.read(survey, topic, wanted, after=0, upto=5, now=NOW)
        assert lag.events == seen.events == 5 - seen.others
        return lag.events

    assert await waiting() == 2
    assert await waiting(relay=True) == 3
    assert await waiting(subject_prefixes=["10%"]) == 1
    assert await waiting(subject_prefixes=["10%", "11"], relay=True) == 3
    assert await waiting(types=["it's"]) == 1
    assert await waiting(types=["it's", "t"], subject_prefixes=["1"]) == 2
    assert await waiting(types=["none"]) == 0


@pytest.mark.parametrize("peer", ["b", "c"])
async def test_a_range_is_looked_over_in_short_steps_one_at_a_time(
    books: GroupLedger, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, peer: str
) -> None:
    """A step occupies a reader and most of the interpreter: deliveries wait for it."""
    for n in range(6):
        await books.publish(draft(f"e{n}", type="x"), draft(f"late{n}", type="x", expires=NOW + SECOND))
    clock.advance(10)
    await books.settle(peer, 8)
    asked = {"group": "g", "peer": peer, "from_seq": 1, "to_seq": 11, "dry_run": True}
    whole = await books.call("deliveries.redeliver", **asked)
    steps: list[int] = []
    running = 0

    def step(*args: Any, **place: Any) -> Backlog:
        nonlocal running
        running += 1
        assert running == 1, "two steps at once"
        found = survey(*args, **place)
        steps.append(found.upto - place["after"])
        running -= 1
        return found

    monkeypatch.setattr(redelivery, "survey", step)
    monkeypatch.setattr(backlog, "SURVEYED", 1)
    told = await asyncio.gather(*(books.call("deliveries.redeliver", **asked) for _ in range(3)))
    assert told == [whole] * 3
    assert (whole["events"], whole["expired"], whole["waiting"]) == (4, 4, 2)
    assert {*steps} == {1}, "a step goes no further than its budget, not even within a block"


async def test_dead_letters_are_listed_in_pages(books: GroupLedger) -> None:
    await books.publish(*(draft(f"e{n}", type="x", subject=f"s{n}") for n in range(1, 6)))
    await books.settle("b", 5, parked={1: "invalid", 2: "invalid", 3: "loop"})
    await books.settle("c", 5, parked={5: "id_conflict"})
    first = await books.call("dead_letters.list", group="g", limit=2)
    assert [letter["eventId"] for letter in first["deadLetters"]] == ["e1", "e2"]
    rest = await books.call("dead_letters.list", group="g", after=first["next"])
    assert [(letter["eventId"], letter["peer"]) for letter in rest["deadLetters"]] == [("e3", "b"), ("e5", "c")]
    assert rest["next"] is None
    letter = rest["deadLetters"][0]
    assert {**letter, "id": 0} == {
        "id": 0,
        "eventId": "e3",
        "peer": "b",
        "type": "x",
        "subject": "s3",
        "reason": "loop",
        "detail": "said so",
        "attempts": 1,
        "parkedAt": "2026-11-20T12:00:00Z",
        "stored": True,
    }
    only = await books.call("dead_letters.list", group="g", peer="c")
    assert [letter["eventId"] for letter in only["deadLetters"]] == ["e5"]
    only = await books.call("dead_letters.list", group="g", event_id="e2")
    assert [letter["eventId"] for letter in only["deadLetters"]] == ["e2"]


async def test_retrying_letters_starts_one_repair_a_peer_and_takes_them_away(books: GroupLedger) -> None:
    await books.publish(*(draft(f"e{n}", type="x") for n in range(1, 5)))
    await books.settle("b", 4, parked={1: "invalid", 3: "invalid"})
    await books.settle("c", 4, parked={2: "invalid"})
    answer = await books.call("dead_letters.retry", group="g", all=True)
    assert answer == {"retried": 3, "kept": []}
    (to_b,), (to_c,) = await books.repairs("b"), await books.repairs("c")
    assert (to_b.selection["positions"], to_c.selection["positions"]) == ([1, 3], [2])
    assert (await books.call("dead_letters.list", group="g"))["deadLetters"] == []
    assert await books.states("b", status=["pending"]) == {"e1": "pending", "e3": "pending"}
    await books.repaired("b", 1, exceptions=[(3, "refused")])
    assert await books.states("b") == {"e1": "delivered", "e2": "delivered", "e3": "refused", "e4": "delivered"}


async def test_letters_that_can_no_longer_be_sent_stay(books: GroupLedger, clock: ManualClock) -> None:
    await books.publish(draft("e1", expires=NOW + SECOND), draft("e2"))
    await books.settle("b", 2, parked={1: "invalid", 2: "invalid"})
    clock.advance(2)
    first, second = (await books.call("dead_letters.list", group="g"))["deadLetters"]
    with pytest.raises(Conflict, match=f"none is: dead letter {first['id']}: it expired at"):
        await books.call("dead_letters.retry", group="g", ids=[first["id"], second["id"]])
    assert len((await books.call("dead_letters.list", group="g"))["deadLetters"]) == 2
    answer = await books.call("dead_letters.retry", group="g", peer="b")
    assert answer["retried"] == 1
    assert [(kept["id"], kept["eventId"]) for kept in answer["kept"]] == [(first["id"], "e1")]
    with pytest.raises(NotFound, match=f"group g has no dead letter {second['id']}"):
        await books.call("dead_letters.drop", group="g", ids=[second["id"]])
    assert await books.call("dead_letters.drop", group="g", ids=[first["id"]]) == {"dropped": 1}
    with pytest.raises(ValidationError, match="in one way"):
        await books.call("dead_letters.drop", group="g")


async def test_letters_of_another_group_are_out_of_reach(books: GroupLedger) -> None:
    await books.publish(draft("e1"))
    await books.settle("b", 1, parked={1: "invalid"})
    (letter,) = (await books.call("dead_letters.list", group="g"))["deadLetters"]
    await books.declare(group="h")
    with pytest.raises(NotFound, match="group h has no dead letter"):
        await books.call("dead_letters.drop", group="h", ids=[letter["id"]])


async def test_answers_are_plain_json(books: GroupLedger) -> None:
    await books.publish(draft("e1"))
    await books.settle("b", 1, parked={1: "invalid"})
    for name in ("links.status", "dead_letters.list", "deliveries.list", "deliveries.summary", "events.list"):
        answer = await books.call(name, group="g")
        assert json.loads(json.dumps(answer)) == answer, name
