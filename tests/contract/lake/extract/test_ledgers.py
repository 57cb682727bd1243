"""Extracts of the ledger as columns: events, receipts of both sides, gaps and refusals, and their metadata."""

from __future__ import annotations

import asyncio
import hashlib
import random
from contextlib import closing

import pytest

from eventd.lake.extract import EvictedRows, Ledger, LedgerSnapshot, LinkSnapshot, SelectionPeriod, Span, read_state
from eventd.lake.schema import COLUMNS
from eventd.log.core.eventlog import EventLog
from eventd.log.cursors.cursors import create_cursor, rewind, set_paused
from eventd.log.delivery.refused_requests import RefusedRequests, StoreRefusals
from eventd.log.retention.evict import EvictionLimits, RowRetention, delete_old_rows, evict
from eventd.store.engine.database import Database
from eventd.store.rows.links import keep_receipt, record_gap
from eventd.testing import NOW, ManualClock, draft
from federation.digest import digest, fingerprint
from federation.ranges import Range
from federation.wire import Refusal
from tests.support.ledger_store import LedgerStore
from tests.support.stored_batches import evidence, receipt_text
from tests.support.topics import Topics

EVENTS = Ledger.EVENTS


@pytest.fixture
async def shelf(log: EventLog) -> LedgerStore:
    """Group g of node a with one peer, b, that gets everything."""
    found = LedgerStore(log)
    await found.declare("b")
    return found


@pytest.mark.parametrize("book", Ledger)
async def test_an_empty_book_has_all_its_columns_and_no_row(shelf: LedgerStore, book: Ledger) -> None:
    extract = await shelf.extract(book)
    assert list(extract.columns) == [column.name for column in COLUMNS[book]]
    assert (extract.rows, extract.after, extract.upto, extract.full, list(extract.lost)) == (0, 0, 0, False, [])


@pytest.mark.parametrize("book", Ledger)
async def test_beyond_the_largest_number_that_a_request_can_name_there_is_no_row(
    shelf: LedgerStore, book: Ledger
) -> None:
    await shelf.publish(draft("e1"))
    assert (await shelf.extract(book, 2**63 - 1)).rows == 0


# --- events ----------------------------------------------------------------------------------------------------


async def test_an_event_is_told_with_all_that_is_known_of_it(shelf: LedgerStore) -> None:
    one = draft("e1", subject="10.0.0.1", payload={"k": "ü"}, observed=NOW - 5, expires=NOW + 8)
    two = draft("e2", node="z", path="z,y", type="u")
    await shelf.publish(one)
    await shelf.publish(two)
    first, second = await shelf.rows(EVENTS, payloads=True)
    assert first.pop("epoch") == (await shelf.log.look_around()).epoch
    assert first == {
        "number": 1,
        "node": "a",
        "group": "g",
        "position": 1,
        "seq": 1,
        "id": "e1",
        "source": "a",
        "type": "t",
        "subject": "10.0.0.1",
        "own": True,
        "path": "",
        "event_at": NOW - 5,
        "expires_at": NOW + 8,
        "recorded_at": NOW,
        "bytes": len(one.body.encode()),
        "fingerprint": fingerprint(one.body),
        "digest": digest(one.body),
        "payload": '{"k":"ü"}',
        "dedupe_key": None,
        "tree": None,
        "leaf": None,
    }
    assert (second["own"], second["path"], second["expires_at"], second["payload"]) == (False, "z,y", None, "{}")
    assert (await shelf.rows(EVENTS, "payload")) == [None, None], "payloads are returned only on request"
    with_keys = await shelf.rows(EVENTS, "dedupe_key", payloads=True)
    assert with_keys == [None, None], "the dedupe key of both is the id"


async def test_a_refresh_is_an_event_at_its_own_place(shelf: LedgerStore) -> None:
    await shelf.publish(draft("e1", expires=NOW + 1))
    await shelf.publish(draft("e1", expires=NOW + 2))
    found = await shelf.rows(EVENTS, "number", "seq", "id", "expires_at")
    assert found == [(1, 1, "e1", NOW + 1), (2, 2, "e1", NOW + 2)]


async def test_records_of_topics_are_no_events_and_are_passed(shelf: LedgerStore) -> None:
    await shelf.publish(draft("e1"))
    topics = Topics(shelf.log)
    await topics.make("other")
    await topics.put("other", "one", "two")
    await shelf.publish(draft("e2"))
    await topics.put("other", "three")
    assert await shelf.rows(EVENTS, "number", "id") == [(1, "e1"), (4, "e2")]
    assert (await shelf.extract(EVENTS)).upto == 5, "there is no event up to the head"


async def test_an_extract_of_events_ends_with_a_block_and_goes_on_in_the_middle_of_one(shelf: LedgerStore) -> None:
    for start in (1, 4, 7):
        await shelf.publish(*(draft(f"e{n}") for n in range(start, start + 3)))
    extract = await shelf.extract(EVENTS, rows=4)
    assert (extract.columns["number"], extract.upto, extract.full) == ([1, 2, 3, 4, 5, 6], 6, True)
    extract = await shelf.extract(EVENTS, 4, payloads=True)
    assert (extract.columns["number"], extract.upto, extract.full) == ([5, 6, 7, 8, 9], 9, False)
    assert extract.columns["id"] == [f"e{n}" for n in range(5, 10)]
    assert len(extract.columns["payload"]) == 5


async def test_events_that_retention_took_unread_are_told_as_lost_range_by_range(shelf: LedgerStore) -> None:
    await shelf.declare(group="h", node="other")
    for n in range(1, 7):
        await shelf.publish(draft(f"e{n}"), group="gh"[n % 2])
    limits = EvictionLimits(max_records=1, keep_undelivered=False)
    await shelf.log.database.write(evict, await shelf.log.topic("group:g"), limits, now=NOW)
    epoch = (await shelf.log.look_around()).epoch
    extract = await shelf.extract(EVENTS, rows=1)
    assert (extract.columns["id"], extract.upto) == (["e1"], 1)
    assert extract.lost == [EvictedRows("g", "", epoch, 0, 1, 0, "events_lost")]
    extract = await shelf.extract(EVENTS, 1)
    assert extract.columns["id"] == ["e3", "e5", "e6"]
    assert extract.lost == [EvictedRows("g", "", epoch, 1, 4, 0, "events_lost")]
    assert await shelf.lost(EVENTS, 4) == []


# --- receipts of both ends -------------------------------------------------------------------------------------


async def test_a_receipt_is_told_with_what_it_says_and_who_signed_it(shelf: LedgerStore) -> None:
    await shelf.publish(*(draft(f"e{n}") for n in range(1, 5)))
    answer = receipt_text("batch-1", 2, refused=(Refusal(3, "e3", "id_conflict"),), upto=4)
    left_out = [(1, "expired"), (3, "refused")]
    await shelf.settle("b", 0, 4, 2, batch_id="batch-1", exceptions=left_out, receipt=evidence(answer))
    (row,) = await shelf.rows(Ledger.RECEIPTS)
    kept = {"number", "node", "epoch", "group", "peer", "batch_id"}
    assert {name: value for name, value in row.items() if name not in kept} == {
        "link_epoch": "e",
        "incarnation": 1,
        "after": 0,
        "upto": 4,
        "repair": False,
        "sent": 3,
        "accepted": 2,
        "duplicates": 0,
        "refused": 1,
        "peer_upto": 4,
        "selector_version": 1,
        "selection": "{}",
        "attempts": 1,
        "sent_at": NOW,
        "acked_at": NOW,
        "peer_recorded_at": NOW + 7,
        "status": 200,
        "protocol": "v2",
        "key_id": "k-a",
        "receipt_key_id": "k-b",
        "receipt_alg": "ed25519",
        "receipt_digest": hashlib.sha256(answer.encode()).hexdigest(),
        "receipt": evidence(answer),
        "exceptions": '[[1,"expired"],[3,"refused"]]',
    }


@pytest.mark.parametrize("receipt", ["", "no JSON", '{"body": "{}"}', '{"body": "{}", "headers": {}}'])
async def test_without_a_receipt_nothing_is_made_up(shelf: LedgerStore, receipt: str) -> None:
    await shelf.publish(draft("e1"))
    await shelf.settle("b", 0, 1, receipt=receipt)
    (row,) = await shelf.rows(Ledger.RECEIPTS)
    unknown = ("accepted", "duplicates", "refused", "peer_upto", "peer_recorded_at", "receipt_key_id", "receipt_alg")
    assert [row[name] for name in unknown] == [None] * 7
    assert (row["sent"], row["receipt_digest"], row["receipt"]) == (1, "", receipt)


async def test_what_was_answered_to_others_has_the_same_digest_at_both_ends(shelf: LedgerStore) -> None:
    topic = await shelf.log.topic("group:g")
    answer = receipt_text("batch-1", 3, refused=(Refusal(2, "x", "loop"),))
    covers = [Range(epoch="theirs", incarnation=2, after=4, upto=9), Range(epoch="theirs", incarnation=2, repair=True)]
    for number, claim in enumerate(covers):
        await shelf.under_lock(
            keep_receipt,
            topic_id=topic,
            node="z",
            batch_id=f"batch-{number}",
            key_id="k-z",
            covers=claim.to_header(),
            digest="sha-256=:AA==:",
            receipt=answer,
            now=NOW + number,
        )
    first, second = await shelf.rows(Ledger.INBOUND)
    assert first | {"epoch": ""} == {
        "number": 1,
        "node": "a",
        "epoch": "",
        "group": "g",
        "peer": "z",
        "batch_id": "batch-0",
        "link_epoch": "theirs",
        "incarnation": 2,
        "after": 4,
        "upto": 9,
        "repair": False,
        "accepted": 3,
        "duplicates": 0,
        "refused": 1,
        "key_id": "k-z",
        "body_digest": "sha-256=:AA==:",
        "recorded_at": NOW,
        "receipt": answer,
        "receipt_digest": hashlib.sha256(answer.encode()).hexdigest(),
    }
    assert (second["number"], second["repair"], second["after"], second["upto"]) == (2, True, 0, 0)
    assert await shelf.rows(Ledger.INBOUND, "number", rows=1) == [1, 2]


# --- gaps and refusals -----------------------------------------------------------------------------------------


async def test_gaps_are_told_as_their_senders_told_them(shelf: LedgerStore) -> None:
    topic = await shelf.log.topic("group:g")
    await shelf.under_lock(record_gap, topic, "z", "theirs", 3, 8, "lost", NOW)
    await shelf.under_lock(record_gap, topic + 99, "z", "theirs", 3, 8, "lost", NOW)
    names = ("number", "node", "group", "peer", "gap_epoch", "after", "upto", "reason", "recorded_at")
    assert await shelf.rows(Ledger.GAPS, *names) == [(1, "a", "g", "z", "theirs", 3, 8, "lost", NOW)]
    assert (await shelf.extract(Ledger.GAPS)).upto == 2, "beyond what is of a group that is gone"


async def test_refusals_are_told_by_kind(shelf: LedgerStore) -> None:
    rows = [
        RefusedRequests("g", "b", "k", "bad_signature", 7, NOW, NOW + 5),
        RefusedRequests("gone", "", "", "x", 1, NOW, NOW),
    ]
    await shelf.log.submit(StoreRefusals(rows))
    names = ("number", "node", "group", "peer", "key_id", "reason", "count", "first_at", "last_at")
    found = await shelf.rows(Ledger.REFUSALS, *names)
    assert found == [(1, "a", "g", "b", "k", "bad_signature", 7, NOW, NOW + 5)]


async def test_refusals_are_kept_for_a_while(shelf: LedgerStore) -> None:
    await shelf.log.submit(StoreRefusals([RefusedRequests("g", "", "", "x", 1, at, at) for at in (NOW, NOW + 50)]))
    await shelf.under_lock(delete_old_rows, RowRetention(ids=0, batches=10, dead_letters=0, receipts=0), now=NOW + 20)
    extract = await shelf.extract(Ledger.REFUSALS)
    assert extract.columns["number"] == [2]
    assert [(lost.after, lost.upto, lost.reason) for lost in extract.lost] == [(0, 1, "refusals_forgotten")]


# --- what they are read by -------------------------------------------------------------------------------------


async def test_the_state_says_whose_the_books_are_and_how_far_they_go(shelf: LedgerStore) -> None:
    await shelf.declare(group="h", node="other", c={"types": ["x"], "relay": True})
    await shelf.publish(draft("e1"), draft("e2"))
    await shelf.settle("b", 0, 2)
    await shelf.select("b", {"types": ["y"]})
    topic = await shelf.log.topic("group:g")
    repair = "repair:g/b/1"
    await shelf.log.database.write(create_cursor, repair, kind="repair", topic_id=topic, position=1, until=2, now=NOW)
    await shelf.log.database.write(set_paused, "peer:h/c", at=NOW, by="me")
    state: LedgerSnapshot = await shelf.log.database.read(read_state)
    assert (state.head, state.nodes, len(state.epoch), len(state.instance)) == (2, ["a", "other"], 16, 16)
    assert state.books == {
        Ledger.EVENTS: Span(1, 2),
        Ledger.DELIVERIES: Span(1, 1),
        Ledger.RECEIPTS: Span(1, 1),
        Ledger.INBOUND: Span(1, 0),
        Ledger.GAPS: Span(1, 0),
        Ledger.REFUSALS: Span(1, 0),
        Ledger.HISTORY: Span(0, 0),
    }
    (g, h) = state.groups
    versions = [SelectionPeriod(1, NOW, {}), SelectionPeriod(2, NOW, {"types": ["y"]})]
    assert (g.group, g.node) == ("g", "a")
    assert list(g.peers) == [LinkSnapshot("b", versions, False, False, "running", "", NOW, 2, NOW, [(1, 2)])]
    (c,) = h.peers
    assert (c.peer, c.relay, c.paused, c.state, c.repairs) == ("c", True, True, "paused", [])


async def test_a_book_whose_rows_were_all_forgotten_still_knows_its_last_number(shelf: LedgerStore) -> None:
    await shelf.log.submit(StoreRefusals([RefusedRequests("g", "", "", "x", 1, NOW, NOW)] * 3))
    await shelf.under_lock(delete_old_rows, RowRetention(ids=0, batches=0, dead_letters=0, receipts=0), now=NOW + 20)
    state: LedgerSnapshot = await shelf.log.database.read(read_state)
    assert state.books[Ledger.REFUSALS] == Span(4, 3)


async def test_another_process_goes_on_where_the_first_one_ended(shelf: LedgerStore, migrated_url: str) -> None:
    await shelf.publish(draft("e1"), draft("e2"))
    await shelf.settle("b", 0, 2)
    before = await shelf.extract(Ledger.DELIVERIES)
    with closing(Database(migrated_url)) as database:
        log = await EventLog.open(database, ManualClock())
        again = LedgerStore(log)
        await again.publish(draft("e3"))
        await again.settle("b", 2, 3)
        extract = await again.extract(Ledger.DELIVERIES, before.upto)
        assert (extract.columns["number"], extract.columns["id"]) == ([2], ["e3"])
        await log.close()


# --- nothing twice, nothing left out ---------------------------------------------------------------------------


async def test_whoever_reads_while_others_write_reads_each_row_once(shelf: LedgerStore, chance: random.Random) -> None:
    """Publishers, two peers that settle, go back and leave out at random, and readers with extracts of any size."""
    await shelf.declare("c")
    expected: list[tuple[str, str]] = []
    ended = asyncio.Event()

    async def publish() -> None:
        for number in range(16):
            await shelf.publish(*(draft(f"{number}-{n}") for n in range(chance.randint(1, 30))))

    async def deliver(peer: str, publishing: asyncio.Task[None]) -> None:
        at = 0
        while not publishing.done() or at < shelf.log.wakeups.head:
            upto = min(shelf.log.wakeups.head, at + chance.randint(1, 50))
            if upto > at:
                left_out = [(place, "expired") for place in range(at + 1, upto + 1) if chance.random() < 0.1]
                await shelf.settle(peer, at, upto, upto - at - len(left_out), exceptions=left_out)
                gone = dict(left_out)
                expected.extend((peer, f"{place}{gone.get(place, '')}") for place in range(at + 1, upto + 1))
                at = upto
                if chance.random() < 0.05:
                    await shelf.log.database.write(rewind, f"peer:g/{peer}", position=at, to=at // 2, now=NOW)
                    at //= 2
            await asyncio.sleep(0)

    async def read(book: Ledger) -> list[tuple[int, str, str]]:
        found: list[tuple[int, str, str]] = []
        after = 0
        while True:
            last_look = ended.is_set()
            extract = await shelf.extract(book, after, rows=chance.randint(1, 90))
            assert not extract.lost
            columns = extract.columns
            numbers = columns["number"]
            assert numbers == sorted(numbers)
            assert all(after < number <= extract.upto for number in numbers)
            if book is EVENTS:
                found += [(number, "", event_id) for number, event_id in zip(numbers, columns["id"], strict=True)]
            else:
                outcomes = ["" if each == "delivered" else each for each in columns["outcome"]]
                places = [f"{place}{said}" for place, said in zip(columns["position"], outcomes, strict=True)]
                found += list(zip(numbers, columns["peer"], places, strict=True))
            after = extract.upto
            if last_look and not extract.full:
                return found
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as tasks:
        publishing = tasks.create_task(publish())
        delivering = [tasks.create_task(deliver(peer, publishing)) for peer in ("b", "c")]
        events, deliveries = tasks.create_task(read(EVENTS)), tasks.create_task(read(Ledger.DELIVERIES))
        await asyncio.wait(delivering)
        ended.set()
    assert [number for number, _, _ in events.result()] == [*range(1, shelf.log.wakeups.head + 1)]
    for peer in ("b", "c"):
        told = [place for _, to, place in deliveries.result() if to == peer]
        assert sorted(told) == sorted(place for to, place in expected if to == peer)
