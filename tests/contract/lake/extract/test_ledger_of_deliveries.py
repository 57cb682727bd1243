"""The extract of deliveries: every batch expanded to exactly the events it carried."""

from __future__ import annotations

import pytest

from eventd.lake.extract import EvictedRows, Ledger, batch_blocks, block_columns, note_lost
from eventd.lake.schema import COLUMNS
from eventd.log.core.eventlog import EventLog
from eventd.log.cursors.cursors import create_cursor, delete_cursors, rewind
from eventd.log.cursors.dead_letters import DeadLetter, insert_dead_letters
from eventd.log.cursors.steps import Step
from eventd.log.retention.evict import EvictionLimits, RowRetention, delete_old_rows, evict
from eventd.testing import NOW, draft
from federation.digest import fingerprint
from tests.support.ledger_store import LedgerStore
from tests.support.stored_batches import evidence, receipt_text, stored_batch

DELIVERIES = Ledger.DELIVERIES


@pytest.fixture
async def shelf(log: EventLog) -> LedgerStore:
    """Group g of node a with one peer, b, that gets everything."""
    found = LedgerStore(log)
    await found.declare("b")
    return found


async def test_a_batch_is_a_row_for_each_event_it_carried(shelf: LedgerStore, log: EventLog) -> None:
    events = [draft("e1", type="x", observed=NOW - 5), draft("e2", node="z", path="z", type="y")]
    await shelf.publish(*events)
    await shelf.select("b", {"relay": True})
    answer = receipt_text("batch-1", 2, upto=2)
    await shelf.settle("b", 0, 2, batch_id="batch-1", attempts=3, acked_at=NOW + 9, receipt=evidence(answer))

    first, second = await shelf.rows(DELIVERIES)

    assert list(first) == [column.name for column in COLUMNS[DELIVERIES]]
    assert first | {"receipt_digest": "", "epoch": ""} == {
        "number": 1,
        "node": "a",
        "epoch": "",
        "group": "g",
        "peer": "b",
        "position": 1,
        "seq": 1,
        "id": "e1",
        "source": "a",
        "type": "x",
        "attempts": 3,
        "outcome": "delivered",
        "status": 200,
        "error": "",
        "protocol": "v2",
        "key_id": "k-a",
        "batch_id": "batch-1",
        "repair": False,
        "bytes": len(events[0].body),
        "event_at": NOW - 5,
        "recorded_at": NOW,
        "attempt_at": NOW,
        "done_at": NOW + 9,
        "peer_recorded_at": NOW + 7,
        "receipt_digest": "",
        "fingerprint": fingerprint(events[0].body),
        "selector_version": 2,
    }
    assert first["epoch"] == (await log.look_around()).epoch
    assert len(first["receipt_digest"]) == 64
    assert (second["id"], second["source"], second["number"]) == ("e2", "z", 1)


async def test_each_peer_has_rows_of_its_own_and_only_for_what_it_was_to_get(shelf: LedgerStore) -> None:
    await shelf.declare(c={"types": ["x"]}, d={"subjectPrefixes": ["10."]}, e={"relay": True})
    await shelf.publish(
        draft("e1", type="x"), draft("e2", subject="10.1"), draft("e3", node="z", path="z", type="x"), draft("e4")
    )
    for peer, events in (("b", 3), ("c", 1), ("d", 1), ("e", 4)):
        await shelf.settle(peer, 0, 4, events)
    found = await shelf.rows(DELIVERIES, "peer", "id", "number")
    assert found == [
        *[("b", "e1", 1), ("b", "e2", 1), ("b", "e4", 1), ("c", "e1", 2), ("d", "e2", 3)],
        *[("e", "e1", 4), ("e", "e2", 4), ("e", "e3", 4), ("e", "e4", 4)],
    ]


async def test_what_was_left_out_is_an_outcome_of_its_own(shelf: LedgerStore) -> None:
    await shelf.publish(*(draft(f"e{n}") for n in range(1, 6)))
    letter = DeadLetter("peer:g/b", 3, 1, "e3", "id_conflict", "", 1, NOW)
    await shelf.log.database.write(insert_dead_letters, [letter])
    left_out = [(1, "expired"), (2, "in_path"), (3, "refused"), (4, "refused")]
    await shelf.settle("b", 0, 5, 1, exceptions=left_out)
    names = ("id", "outcome", "error", "status", "attempts", "receipt_digest", "peer_recorded_at")
    rows = {row[0]: row[1:] for row in await shelf.rows(DELIVERIES, *names)}
    assert rows["e1"] == ("expired", "", 0, 0, "", None)
    assert rows["e2"] == ("in_path", "", 0, 0, "", None)
    assert rows["e3"][:4] == ("refused", "id_conflict", 200, 1)
    assert rows["e4"][:4] == ("refused", "refused", 200, 1), "its letter was dropped"
    assert len(rows["e4"][4]) == 64, "the receipt names it"
    assert rows["e5"][:4] == ("delivered", "", 200, 1)


async def test_what_was_passed_over_before_the_page_was_not_in_the_batch(shelf: LedgerStore) -> None:
    """A page of expired records alone sends nothing, so the next range begins where that page did."""
    await shelf.publish(*(draft(f"e{n}") for n in range(1, 6)))
    await shelf.settle("b", 0, 2, 0, exceptions=[(1, "expired"), (2, "expired")], status=0, receipt="")
    await shelf.settle("b", 0, 5, 2, exceptions=[(4, "in_path")])
    found = await shelf.rows(DELIVERIES, "number", "id", "outcome")
    assert found == [
        *[(1, "e1", "expired"), (1, "e2", "expired")],
        *[(2, "e3", "delivered"), (2, "e5", "delivered"), (2, "e4", "in_path")],
    ]


async def test_a_wider_selection_does_not_reach_back_into_what_was_passed(shelf: LedgerStore) -> None:
    """The cursor had passed e1 and e2 under the narrow one; what they lack is brought by a repair."""
    await shelf.declare(c={"types": ["x"]})
    await shelf.publish(*(draft(f"e{n}") for n in range(1, 5)))
    await shelf.log.settle(Step("peer:g/c", 0, 2, 0, NOW))
    await shelf.select("c", {})
    await shelf.settle("c", 0, 4, 2)
    assert await shelf.rows(DELIVERIES, "id", "selector_version") == [("e3", 2), ("e4", 2)]


async def test_each_batch_is_read_by_the_selection_it_was_made_by(shelf: LedgerStore) -> None:
    await shelf.declare(c={"types": ["x"]})
    await shelf.publish(*(draft(f"e{n}", type="x" if n % 2 else "y") for n in range(1, 9)))
    await shelf.settle("c", 0, 4, 2)
    await shelf.select("c", {"types": ["y"]})
    await shelf.settle("c", 4, 8, 2)
    assert await shelf.rows(DELIVERIES, "id") == ["e1", "e3", "e6", "e8"]


async def test_what_is_sent_again_is_told_again(shelf: LedgerStore) -> None:
    await shelf.publish(draft("e1"), draft("e2"), draft("e3"))
    await shelf.settle("b", 0, 2)
    await shelf.log.database.write(rewind, "peer:g/b", position=2, to=0, now=NOW)
    await shelf.settle("b", 0, 3, attempts=2)
    assert await shelf.rows(DELIVERIES, "number", "id") == [(1, "e1"), (1, "e2"), (2, "e1"), (2, "e2"), (2, "e3")]


async def test_a_repair_tells_what_it_picked(shelf: LedgerStore) -> None:
    await shelf.publish(*(draft(f"e{n}") for n in range(1, 6)))
    await shelf.settle("b", 0, 5)
    topic = await shelf.log.topic("group:g")
    name = "repair:g/b/1"
    await shelf.log.database.write(create_cursor, name, kind="repair", topic_id=topic, position=0, until=5, now=NOW)
    row = stored_batch("peer:g/b", 0, 5, 2, picked=[1, 3, 4], exceptions=[(4, "expired")])
    await shelf.log.settle(Step(name, 0, 5, 0, NOW, [row]))
    found = [row for row in await shelf.rows(DELIVERIES, "number", "id", "outcome", "repair") if row[3]]
    assert found == [(2, "e1", "delivered", True), (2, "e3", "delivered", True), (2, "e4", "expired", True)]


async def test_a_v1_peer_signs_nothing(shelf: LedgerStore) -> None:
    await shelf.publish(draft("e1"), draft("e2"))
    await shelf.settle("b", 0, 2, protocol="v1", receipt="", batch_id="")
    names = ("id", "protocol", "batch_id", "receipt_digest", "peer_recorded_at")
    assert await shelf.rows(DELIVERIES, *names) == [("e1", "v1", "", "", None), ("e2", "v1", "", "", None)]


async def test_a_batch_is_never_cut_and_an_extract_ends_when_it_has_enough(shelf: LedgerStore) -> None:
    await shelf.publish(*(draft(f"e{n}") for n in range(1, 13)))
    for upto in (3, 6, 9, 12):
        await shelf.settle("b", upto - 3, upto)
    extract = await shelf.extract(DELIVERIES, rows=4)
    assert (extract.rows, extract.upto, extract.full) == (6, 2, True)
    extract = await shelf.extract(DELIVERIES, 2, rows=100)
    assert (extract.rows, extract.upto, extract.full) == (6, 4, False)
    assert extract.columns["id"] == [f"e{n}" for n in range(7, 13)]
    extract = await shelf.extract(DELIVERIES, 4, rows=100)
    assert (extract.rows, extract.upto, extract.full) == (0, 4, False)


async def test_records_of_other_groups_lie_in_between(shelf: LedgerStore) -> None:
    await shelf.declare("b", group="h", node="elsewhere")
    for n in range(1, 7):
        await shelf.publish(draft(f"e{n}"), group="gh"[n % 2])
    await shelf.settle("b", 0, 6, 3)
    await shelf.settle("b", 0, 6, 3, group="h")
    found = await shelf.rows(DELIVERIES, "node", "group", "id", "position", "seq")
    assert found == [
        *[("a", "g", "e2", 2, 1), ("a", "g", "e4", 4, 2), ("a", "g", "e6", 6, 3)],
        *[("elsewhere", "h", "e1", 1, 1), ("elsewhere", "h", "e3", 3, 2), ("elsewhere", "h", "e5", 5, 3)],
    ]
    assert await shelf.rows(DELIVERIES, "id", node="elsewhere") == ["e1", "e3", "e5"]
    assert (await shelf.extract(DELIVERIES, node="a")).upto == 2, "beyond the rows of others, too"
    assert await shelf.rows(DELIVERIES, "id", node="nobody") == []


@pytest.mark.parametrize("most", [1, 500, 1 << 20])
async def test_however_little_is_remembered_the_rows_are_the_same(
    shelf: LedgerStore, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """Blocks of one event: own ones, relayed ones and those of another group lie in turn."""
    monkeypatch.setattr(block_columns, "MOST_BYTES", most)
    monkeypatch.setattr(batch_blocks, "BYTES_PER_READ", most)
    monkeypatch.setattr(batch_blocks, "AHEAD", 2)
    await shelf.declare(c={"relay": True}, d={"relay": True, "types": ["x"]})
    await shelf.declare(group="h")
    for n in range(1, 41):
        one = draft(f"e{n}", type="x" if n % 4 else "y", **({"node": "z", "path": "z"} if n % 3 else {}))
        await shelf.publish(one, group="h" if n % 5 == 0 else "g")
    of_g = [n for n in range(1, 41) if n % 5]
    wanted = {
        "b": [n for n in of_g if n % 3 == 0],
        "c": of_g,
        "d": [n for n in of_g if n % 4],
    }
    for after, upto in ((0, 10), (10, 11), (11, 40)):
        for peer, all_of_them in wanted.items():
            await shelf.settle(peer, after, upto, sum(after < n <= upto for n in all_of_them))
    found = await shelf.rows(DELIVERIES, "peer", "position", rows=7)
    assert {peer: [at for to, at in found if to == peer] for peer in wanted} == wanted


# --- what is unknown -------------------------------------------------------------------------------------------


async def _evict(shelf: LedgerStore, keep: int) -> None:
    limits = EvictionLimits(max_records=keep, keep_undelivered=False)
    await shelf.log.database.write(evict, await shelf.log.topic("group:g"), limits, now=NOW)


async def test_events_that_retention_took_are_told_as_lost(shelf: LedgerStore) -> None:
    await shelf.publish(*(draft(f"e{n}") for n in range(1, 7)))
    await shelf.settle("b", 0, 4, 3, exceptions=[(1, "expired")])
    await shelf.settle("b", 4, 6)
    await _evict(shelf, 3)
    extract = await shelf.extract(DELIVERIES)
    assert extract.columns["id"] == ["e4", "e5", "e6"]
    assert extract.lost == [EvictedRows("g", "b", "e", 0, 4, 3, "deliveries_lost")], "e2 and e3, and that e1 expired"


async def test_so_are_those_of_a_repair(shelf: LedgerStore) -> None:
    await shelf.publish(*(draft(f"e{n}") for n in range(1, 5)))
    await shelf.settle("b", 0, 4, 2, picked=[1, 3, 4], exceptions=[(3, "expired")])
    await _evict(shelf, 1)
    extract = await shelf.extract(DELIVERIES)
    assert extract.columns["id"] == ["e4"]
    assert extract.lost == [EvictedRows("g", "b", "e", 0, 4, 2, "deliveries_lost")]


async def test_a_loss_from_before_the_batch_is_none_of_it(shelf: LedgerStore) -> None:
    """What retention had taken before the page was read was never in it."""
    await shelf.publish(*(draft(f"e{n}") for n in range(1, 5)))
    await _evict(shelf, 2)
    await shelf.settle("b", 0, 4, 2)
    extract = await shelf.extract(DELIVERIES)
    assert (extract.columns["id"], list(extract.lost)) == (["e3", "e4"], [])


async def test_a_selection_nobody_remembers_makes_its_events_lost(shelf: LedgerStore) -> None:
    await shelf.publish(draft("e1"))
    batch = stored_batch("peer:g/b", 0, 1, selector_version=7)
    await shelf.keep(batch, 0)
    assert await shelf.lost(DELIVERIES) == [EvictedRows("g", "b", "e", 0, 1, 1, "deliveries_lost")]


async def test_batches_that_were_forgotten_unread_are_told_as_lost(shelf: LedgerStore) -> None:
    await shelf.publish(*(draft(f"e{n}") for n in range(1, 4)))
    for upto in (1, 2, 3):
        await shelf.settle("b", upto - 1, upto, acked_at=NOW + upto)
    await shelf.under_lock(delete_old_rows, RowRetention(ids=0, batches=1, dead_letters=0, receipts=0), now=NOW + 4)
    epoch = (await shelf.log.look_around()).epoch
    for book in (DELIVERIES, Ledger.RECEIPTS):
        extract = await shelf.extract(book)
        assert extract.columns["number"] == [3]
        assert extract.lost == [EvictedRows("g", "", epoch, 0, 2, 0, f"{book}_forgotten")]
        assert await shelf.lost(book, 1) == [EvictedRows("g", "", epoch, 1, 2, 0, f"{book}_forgotten")]
        assert await shelf.lost(book, 2) == [], "a reader that has read them has lost nothing"


async def test_a_book_that_was_forgotten_to_its_end_ends_there(shelf: LedgerStore) -> None:
    await shelf.publish(draft("e1"), draft("e2"))
    await shelf.settle("b", 0, 1)
    await shelf.settle("b", 1, 2)
    await shelf.under_lock(delete_cursors, ["peer:g/b"])
    extract = await shelf.extract(DELIVERIES)
    assert (extract.rows, extract.upto, extract.full) == (0, 2, False)
    assert [lost.reason for lost in extract.lost] == ["deliveries_forgotten"]
    assert await shelf.lost(DELIVERIES, 2) == []


async def test_a_loss_that_was_noted_is_a_row_among_the_gaps_once(shelf: LedgerStore) -> None:
    lost = [
        EvictedRows("g", "b", "e", 0, 4, 3, "deliveries_lost"),
        EvictedRows("gone", "", "e", 0, 4, 0, "events_lost"),
    ]
    for _ in range(2):
        await shelf.under_lock(note_lost, lost, NOW)
    names = ("group", "peer", "gap_epoch", "after", "upto", "reason", "recorded_at")
    assert await shelf.rows(Ledger.GAPS, *names) == [("g", "b", "e", 0, 4, "deliveries_lost", NOW)]
