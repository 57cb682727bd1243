"""The delivery states: every state of an event at a peer, from batches, exceptions, selections and repairs."""

from __future__ import annotations

import pytest

from eventd.errors import Invalid, NotFound
from eventd.log.core.eventlog import EventLog
from eventd.log.cursors.cursors import LinkState, rewind
from eventd.log.retention.evict import RowRetention, delete_old_rows
from eventd.runtime.clock import SECOND
from eventd.testing import NOW, ManualClock, draft
from tests.support.fresh import on_sqlite
from tests.support.group_ledger import GroupLedger

HOUR = 3600 * SECOND


@pytest.fixture
async def books(log: EventLog, clock: ManualClock) -> GroupLedger:
    """Group g of node a with one peer, b, that takes everything."""
    found = GroupLedger(log, clock)
    await found.declare("b")
    return found


@on_sqlite
async def test_nothing_is_delivered_before_a_batch_says_so(books: GroupLedger) -> None:
    await books.publish(draft("e1"), draft("e2"))
    assert await books.states() == {"e1": "pending", "e2": "pending"}
    assert (await books.row("e1"))["attempts"] == 0


@on_sqlite
async def test_an_acknowledged_batch_delivers_its_whole_range(books: GroupLedger, clock: ManualClock) -> None:
    await books.publish(draft("e1"), draft("e2", expires=NOW + HOUR), draft("e3"))
    clock.advance(2)
    await books.settle("b", 2, attempts=3)
    assert await books.states() == {"e1": "delivered", "e2": "delivered", "e3": "pending"}
    row = await books.row("e2")
    assert row["attempts"] == 3
    assert row["batchId"] == "batch-1"
    assert row["deliveredAt"] == row["lastAttemptAt"] == "2026-11-20T12:00:02Z"
    assert row["recordedAt"] == "2026-11-20T12:00:00Z"
    assert row["eventExpiresAt"] == "2026-11-20T13:00:00Z"
    assert row["lastError"] == ""


@on_sqlite
async def test_what_was_tried_and_not_acknowledged_has_failed_for_now(books: GroupLedger) -> None:
    await books.publish(draft("e1"), draft("e2"), draft("e3"))
    await books.settle("b", 1)
    await books.fail("b", 2, "connection refused")
    await books.fail("b", 2, "connection refused")
    assert await books.states() == {"e1": "delivered", "e2": "failed", "e3": "pending"}
    row = await books.row("e2")
    assert (row["attempts"], row["lastError"], row["deliveredAt"]) == (2, "connection refused", None)
    assert row["lastAttemptAt"] == "2026-11-20T12:00:00Z"


async def test_what_waits_behind_a_blocked_link_shows_why(books: GroupLedger, clock: ManualClock) -> None:
    await books.publish(draft("e1"), draft("e2"))
    await books.fail("b", 1, "bad signature", state=LinkState.BLOCKED, reason="unauthorized")
    clock.advance(1)
    await books.publish(draft("e3"))
    assert await books.states() == {"e1": "failed", "e2": "failed", "e3": "failed"}
    assert (await books.row("e1"))["lastError"] == "bad signature"
    for waiting in ("e2", "e3"):
        row = await books.row(waiting)
        assert (row["attempts"], row["lastError"]) == (1, "link blocked: unauthorized: bad signature")
        assert row["lastAttemptAt"] == "2026-11-20T12:00:00Z"
    (summed,) = (await books.call("deliveries.summary", group="g"))["summary"]
    assert (summed["failed"], summed["pending"]) == (3, 0)
    await books.call("links.pause", group="g", peer="b")
    assert await books.states() == {"e1": "failed", "e2": "pending", "e3": "pending"}


@on_sqlite
async def test_a_link_that_cannot_be_opened_fails_what_waited(books: GroupLedger, clock: ManualClock) -> None:
    await books.publish(draft("e1"), draft("e2"))
    await books.settle("b", 1)
    await books.fail("b", 1, "connection refused")
    clock.advance(1)
    await books.publish(draft("e3"))
    assert await books.states() == {"e1": "delivered", "e2": "failed", "e3": "pending"}
    assert (await books.row("e2"))["lastError"] == "connection refused"
    await books.fail("b", 1)
    assert await books.states() == {"e1": "delivered", "e2": "failed", "e3": "failed"}


@on_sqlite
async def test_the_batch_that_ends_first_speaks_for_a_position(books: GroupLedger) -> None:
    """A page of expired records alone shares its beginning with the next batch, which does not name them."""
    await books.publish(draft("e1", expires=NOW - 1), draft("e2"))
    await books.settle("b", 1, exceptions=[(1, "expired")], sent=False)
    await books.settle("b", 2)
    assert await books.states() == {"e1": "expired", "e2": "delivered"}


@on_sqlite
async def test_exceptions_are_outcomes_of_their_own(books: GroupLedger) -> None:
    await books.publish(*(draft(f"e{n}") for n in range(1, 5)))
    await books.settle("b", 4, exceptions=[(1, "expired"), (2, "in_path")], parked={3: "source_not_allowed"})
    assert await books.states() == {"e1": "expired", "e2": "in_path", "e3": "refused", "e4": "delivered"}
    row = await books.row("e3")
    assert row["lastError"] == "source_not_allowed: said so"
    assert row["deliveredAt"] is None


@on_sqlite
async def test_a_refusal_outlives_its_dead_letter(books: GroupLedger) -> None:
    await books.publish(draft("e1"))
    await books.settle("b", 1, parked={1: "id_conflict"})
    await books.call("dead_letters.drop", group="g", all=True)
    row = await books.row("e1")
    assert (row["status"], row["lastError"]) == ("refused", "refused")


@on_sqlite
async def test_without_its_batch_the_state_is_unknown(books: GroupLedger, log: EventLog, clock: ManualClock) -> None:
    await books.publish(draft("e1"), draft("e2"))
    await books.settle("b", 1)
    clock.advance(100)
    await books.settle("b", 2)
    limits = RowRetention(ids=HOUR, batches=50 * SECOND, dead_letters=HOUR, receipts=HOUR)
    await log.database.write(delete_old_rows, limits, now=clock.now())
    assert await books.states() == {"e1": "unknown", "e2": "delivered"}


@on_sqlite
async def test_an_event_that_expires_on_its_way_is_expired_not_pending(books: GroupLedger, clock: ManualClock) -> None:
    await books.publish(draft("e1", expires=NOW + SECOND), draft("e2", expires=NOW + HOUR))
    await books.fail("b", 2)
    clock.advance(1)
    assert await books.states() == {"e1": "failed", "e2": "failed"}, "alive up to and including its last microsecond"
    clock.advance(0.000001)
    assert await books.states() == {"e1": "expired", "e2": "failed"}


@on_sqlite
async def test_a_refresh_is_pending_until_the_peer_has_it(books: GroupLedger) -> None:
    await books.publish(draft("e1", expires=NOW + HOUR))
    await books.settle("b", 1)
    await books.publish(draft("e1", expires=NOW + 2 * HOUR))
    assert await books.states() == {"e1": "pending"}
    (total,) = (await books.call("deliveries.summary", group="g"))["summary"]
    assert (total["events"], total["pending"], total["staleTTL"]) == (1, 1, 1)
    await books.settle("b", 2)
    (total,) = (await books.call("deliveries.summary", group="g"))["summary"]
    assert (total["events"], total["delivered"], total["staleTTL"]) == (1, 1, 0)


@on_sqlite
async def test_peers_have_no_row_for_what_is_not_meant_for_them(books: GroupLedger) -> None:
    await books.declare("b", c="types: [x]", d='subjectPrefixes: ["10."]', e="relay: true")
    await books.publish(
        draft("e1", type="x"), draft("e2", subject="10.1"), draft("e3", node="z", path="z"), draft("e4", node="e")
    )
    await books.settle("e", 4, exceptions=[(4, "in_path")])
    assert list(await books.states("b")) == ["e1", "e2", "e4"]
    assert list(await books.states("c")) == ["e1"]
    assert list(await books.states("d")) == ["e2"]
    assert await books.states("e") == {"e1": "delivered", "e2": "delivered", "e3": "delivered", "e4": "in_path"}


@on_sqlite
async def test_what_came_through_a_peer_is_in_its_path_before_any_batch(books: GroupLedger) -> None:
    await books.declare(b="relay: true")
    await books.publish(draft("e1", node="z", path="z,b"), draft("e2", node="b"), draft("e3", node="z", path="z,bb"))
    assert await books.states() == {"e1": "in_path", "e2": "in_path", "e3": "pending"}


async def test_a_narrower_selector_hides_and_recalls_nothing(books: GroupLedger) -> None:
    await books.publish(draft("e1", type="x"), draft("e2", type="y"))
    await books.settle("b", 2)
    await books.declare(b="types: [x]")
    assert await books.states() == {"e1": "delivered"}


async def test_a_wider_selector_is_not_proven_by_older_batches(books: GroupLedger, clock: ManualClock) -> None:
    await books.declare(b="types: [x]")
    await books.publish(
        draft("e1", type="x"), draft("e2", type="y"), draft("e3", type="y", expires=NOW + SECOND), draft("e4", type="x")
    )
    await books.settle("b", 4)
    clock.advance(2)
    await books.declare("b")
    assert await books.states() == {"e1": "delivered", "e2": "pending", "e3": "expired", "e4": "delivered"}
    await books.repaired("b", 2, exceptions=[(3, "expired")])
    assert await books.states() == {"e1": "delivered", "e2": "delivered", "e3": "expired", "e4": "delivered"}


async def test_what_a_wider_selector_found_too_old_is_expired_without_any_line(
    books: GroupLedger, log: EventLog, clock: ManualClock
) -> None:
    await books.declare(b="types: [x]")
    await books.publish(draft("e1", type="y", expires=NOW + SECOND), draft("e2", type="y"))
    await books.settle("b", 2, idle=True)
    clock.advance(2)
    await books.declare("b")
    await books.repaired("b", 2)
    assert await books.states() == {"e1": "expired", "e2": "delivered"}


@on_sqlite
async def test_a_rewound_link_says_pending_again(books: GroupLedger, log: EventLog, clock: ManualClock) -> None:
    await books.publish(draft("e1"), draft("e2"), draft("e3"))
    await books.settle("b", 2)
    await log.database.write(rewind, "peer:g/b", position=2, to=1, now=clock.now())
    assert await books.states() == {"e1": "delivered", "e2": "pending", "e3": "pending"}
    await books.settle("b", 3)
    assert await books.states() == {"e1": "delivered", "e2": "delivered", "e3": "delivered"}


async def test_many_batches_and_pages_are_told_apart(books: GroupLedger) -> None:
    await books.publish(*(draft(f"e{n:04}") for n in range(1, 1201)))
    for upto in range(50, 1151, 50):
        await books.settle("b", upto, exceptions=[(upto - 7, "expired")])
    found: dict[str, str] = {}
    after = ""
    while True:
        answer = await books.call("deliveries.list", group="g", after=after, limit=90)
        assert len(answer["deliveries"]) <= 90
        found |= {row["eventId"]: row["status"] for row in answer["deliveries"]}
        if not (after := answer["next"]):
            break
    assert list(found) == [f"e{n:04}" for n in range(1, 1201)]
    assert [e for e, s in found.items() if s == "expired"] == [f"e{upto - 7:04}" for upto in range(50, 1151, 50)]
    assert [e for e, s in found.items() if s == "pending"] == [f"e{n:04}" for n in range(1151, 1201)]
    (total,) = (await books.call("deliveries.summary", group="g"))["summary"]
    assert (total["events"], total["delivered"], total["expired"], total["pending"]) == (1200, 1127, 23, 50)


async def test_filters_pick_exact_subsets(books: GroupLedger) -> None:
    await books.declare("b", "c")
    await books.publish(draft("e1", type="x"), draft("e2", type="y", observed=NOW - HOUR))
    await books.settle("b", 1)
    await books.fail("c", 1)
    answer = await books.call("deliveries.list", group="g")
    assert [(row["eventId"], row["peer"], row["status"]) for row in answer["deliveries"]] == [
        ("e1", "b", "delivered"),
        ("e1", "c", "failed"),
        ("e2", "b", "pending"),
        ("e2", "c", "pending"),
    ]
    assert await books.states("c", status=["failed"]) == {"e1": "failed"}
    assert await books.states("b", status=["failed", "delivered"]) == {"e1": "delivered"}
    assert await books.states("b", event_id="e2") == {"e2": "pending"}
    assert await books.states("b", type=["y"]) == {"e2": "pending"}
    assert await books.states("b", since="30m") == {"e1": "delivered"}
    assert await books.states("b", until="30m") == {"e2": "pending"}
    assert await books.states("b", event_id="none") == {}
    with pytest.raises(NotFound, match="EventGroup h is not declared"):
        await books.call("deliveries.list", group="h")
    with pytest.raises(NotFound, match="group g has no peer bb") as raised:
        await books.call("deliveries.list", group="g", peer="bb")
    assert raised.value.hint == "did you mean b?"
    with pytest.raises(Invalid, match="since: 'yesterday' is not a time"):
        await books.call("deliveries.list", group="g", since="yesterday")


@on_sqlite
async def test_a_group_without_peers_or_events_has_no_deliveries(books: GroupLedger) -> None:
    assert (await books.call("deliveries.list", group="g"))["deliveries"] == []
    await books.declare(group="lonely")
    assert (await books.call("deliveries.list", group="lonely"))["deliveries"] == []
    assert (await books.call("deliveries.summary", group="lonely"))["summary"] == []


@on_sqlite
async def test_the_summary_counts_each_state_once_and_measures_from_the_recording(
    books: GroupLedger, clock: ManualClock
) -> None:
    await books.publish(*(draft(f"e{n}", observed=NOW - HOUR) for n in range(1, 5)), draft("e5", expires=NOW + HOUR))
    clock.advance(1.5)
    await books.settle("b", 3, exceptions=[(1, "expired")], parked={2: "invalid"})
    await books.fail("b", 4)
    clock.advance(8.5)
    (total,) = (await books.call("deliveries.summary", group="g"))["summary"]
    assert total == {
        "group": "g",
        "peer": "b",
        "events": 5,
        "delivered": 1,
        "staleTTL": 0,
        "failed": 1,
        "pending": 1,
        "expired": 1,
        "refused": 1,
        "inPath": 0,
        "unknown": 0,
        "maxLagSeconds": 1.5,
        "minExpiresInSeconds": 3590.0,
    }


@on_sqlite
async def test_the_summary_shows_what_expired_on_the_way_and_hides_what_ended_in_peace(
    books: GroupLedger, clock: ManualClock
) -> None:
    await books.publish(
        draft("old", expires=NOW - 1), draft("e1", expires=NOW + SECOND), draft("e2", expires=NOW + SECOND)
    )
    await books.settle("b", 2, exceptions=[(1, "expired")])
    clock.advance(5)
    (total,) = (await books.call("deliveries.summary", group="g"))["summary"]
    assert (total["events"], total["delivered"], total["expired"]) == (1, 0, 1), "e2; old was dead before b was there"
    (total,) = (await books.call("deliveries.summary", group="g", include_expired=True))["summary"]
    assert (total["events"], total["delivered"], total["expired"]) == (3, 1, 2)


@on_sqlite
async def test_a_redelivery_does_not_make_the_lag_longer(books: GroupLedger, clock: ManualClock) -> None:
    await books.publish(draft("e1"))
    clock.advance(1)
    await books.settle("b", 1)
    clock.advance(1000)
    await books.call("deliveries.redeliver", group="g", peer="b", ids=["e1"])
    await books.repaired("b", 1)
    (total,) = (await books.call("deliveries.summary", group="g"))["summary"]
    assert total["maxLagSeconds"] == 1.0
    assert (await books.row("e1"))["deliveredAt"] == "2026-11-20T12:16:41Z"


@on_sqlite
async def test_the_summary_of_some_types_counts_only_those(books: GroupLedger) -> None:
    await books.declare("b", c="types: [x, y]", d="types: [z]")
    await books.publish(draft("e1", type="x", expires=NOW + HOUR), draft("e2", type="y", expires=NOW + HOUR))
    for peer in "bcd":
        await books.settle(peer, 2)
    await books.publish(draft("e1", type="x", expires=NOW + 2 * HOUR), draft("e2", type="y", expires=NOW + 2 * HOUR))
    rows = (await books.call("deliveries.summary", group="g", type=["x"]))["summary"]
    assert {row["peer"]: (row["events"], row["pending"], row["staleTTL"]) for row in rows} == {
        "b": (1, 1, 1),
        "c": (1, 1, 1),
        "d": (0, 0, 0),
    }


@on_sqlite
async def test_a_token_of_another_history_is_a_gap(books: GroupLedger) -> None:
    await books.publish(draft("e1"))
    answer = await books.call("deliveries.list", group="g", after="feedfeed:7")
    assert answer["gap"]["reason"] == "another_history"
    assert len(answer["deliveries"]) == 1
    with pytest.raises(Invalid, match="'seven' is not a token of this list"):
        await books.call("deliveries.list", group="g", after="seven")
