"""The callbacks of a group in the ledgers: receivers like peers, without a ledger or receipts of their own."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from eventd.egress.callbacks.selection import CallbackSelection
from eventd.lake.extract import Ledger, LedgerSnapshot, read_state
from eventd.lake.receivers import is_callback, receiver_of_callback
from eventd.log.core.eventlog import EventLog
from eventd.log.cursors.cursors import create_cursor
from eventd.log.cursors.steps import insert_batch
from eventd.store.rows.callback_cursors import RESEND
from eventd.testing import NOW, ManualClock, draft, until
from federation.peers import NODE_NAME
from federation.selector import Selector
from tests.support.callback_receivers import Received, Receiver, Reply
from tests.support.called_back import CalledBack, callback
from tests.support.ledger_store import LedgerStore
from tests.support.stored_batches import stored_batch

DELIVERIES, RECEIPTS = Ledger.DELIVERIES, Ledger.RECEIPTS
HOOK = "a/callback:hook"
ANSWER = json.dumps({"requests": 1, "duration": 7, "address": "127.0.0.1", "answer": "ok"}, separators=(",", ":"))


@pytest.fixture
async def shelf(log: EventLog) -> LedgerStore:
    """Group g of node a, without peers."""
    found = LedgerStore(log)
    await found.declare()
    return found


def accepted(after: int, upto: int, events: int | None = None, **fields: Any) -> Any:
    """Return a batch that the endpoint of the callback `hook` accepted."""
    about = {"protocol": "callback", "key_id": "k1 k2", "receipt": ANSWER, "status": 204}
    return stored_batch("callback:hook", after, upto, events, **(about | fields))


def test_no_peer_has_a_name_like_a_callback() -> None:
    name = receiver_of_callback("site-a", "hook")
    assert name == "site-a/callback:hook"
    assert is_callback(name)
    assert not NODE_NAME.fullmatch(name)
    assert NODE_NAME.fullmatch("callback:hook"), "a nodeName may begin like this"
    assert not is_callback("callback:hook")


# --- rows -----------------------------------------------------------------------------------------------------------


async def test_an_accepted_event_is_delivered_to_the_callback_of_this_node(shelf: LedgerStore) -> None:
    await shelf.call_back("hook")
    await shelf.publish(draft("e1"), draft("e2", node="z", path="z"))
    await shelf.keep(accepted(0, 2, attempts=3), 0)
    rows = await shelf.rows(DELIVERIES)
    assert [(row["id"], row["source"]) for row in rows] == [("e1", "a"), ("e2", "z")], "also those of other nodes"
    names = ("node", "peer", "outcome", "protocol", "key_id", "status", "attempts", "repair", "error")
    assert {tuple(row[name] for name in names) for row in rows} == {
        ("a", HOOK, "delivered", "callback", "k1 k2", 204, 3, False, "")
    }
    assert {(row["receipt_digest"], row["peer_recorded_at"]) for row in rows} == {("", None)}, "it signs nothing"


async def test_every_condition_of_a_selector_counts_payloads_too(shelf: LedgerStore) -> None:
    await shelf.call_back("hook", types=["x.*"], subject_prefixes=["10."], sources=["a"], payload={"k": "v"})
    matching: dict[str, Any] = {"type": "x.y", "subject": "10.1", "payload": {"k": "v", "l": "m"}}
    await shelf.publish(
        draft("e1", **matching),
        draft("e2", **matching | {"type": "y"}),
        draft("e3", **matching | {"subject": "11."}),
        draft("e4", **matching | {"payload": {"k": "w"}}),
        draft("e5", **matching | {"payload": {}}),
        draft("e6", node="z", path="z", **matching),
        draft("e7", **matching),
    )
    await shelf.publish(draft("e8", **matching | {"payload": {"l": "m"}}))
    await shelf.keep(accepted(0, 8, 2), 0)
    assert await shelf.rows(DELIVERIES, "id") == ["e1", "e7"]
    assert await shelf.lost(DELIVERIES) == []


@pytest.mark.parametrize("conditions", [{}, {"sources": ["a"]}, {"payload": {"k": "v"}}, {"types": ["t"]}])
async def test_what_a_batch_left_out_has_the_reason_as_its_outcome(
    shelf: LedgerStore, conditions: dict[str, Any]
) -> None:
    await shelf.call_back("hook", **conditions)
    await shelf.publish(*(draft(f"e{n}", payload={"k": "v"}) for n in range(1, 5)))
    await shelf.keep(accepted(0, 4, 2, exceptions=[(1, "expired"), (3, "refused")], status=200), 0)
    rows = await shelf.rows(DELIVERIES, "id", "outcome", "error", "status")
    assert rows == [
        *[("e2", "delivered", "", 200), ("e4", "delivered", "", 200)],
        *[("e1", "expired", "", 0), ("e3", "refused", "refused", 200)],
    ]


async def test_a_resend_is_a_repair_of_the_same_callback(shelf: LedgerStore) -> None:
    await shelf.call_back("hook", payload={"k": "v"})
    await shelf.publish(*(draft(f"e{n}", payload={"k": "v"}) for n in range(1, 4)))
    await shelf.keep(accepted(0, 3), 0)
    await shelf.log.database.write(
        create_cursor, "resend:hook#1", kind=RESEND, topic_id=await shelf.log.topic("group:g"), position=0, now=NOW
    )
    again = accepted(0, 3, 1, picked=[2, 3], exceptions=[(3, "expired")])
    await shelf.log.database.write(insert_batch, again)
    found = await shelf.rows(DELIVERIES, "peer", "id", "outcome", "repair")
    assert found[3:] == [(HOOK, "e2", "delivered", True), (HOOK, "e3", "expired", True)]


async def test_the_receipt_of_a_callback_is_its_unsigned_answer(shelf: LedgerStore) -> None:
    await shelf.call_back("hook", types=["t"], sources=["a"], payload={"k": "v"})
    await shelf.publish(draft("e1", payload={"k": "v"}))
    await shelf.keep(accepted(0, 1), 0)
    (row,) = await shelf.rows(RECEIPTS)
    assert (row["node"], row["peer"], row["protocol"], row["status"]) == ("a", HOOK, "callback", 204)
    assert (row["after"], row["upto"], row["sent"], row["repair"]) == (0, 1, 1, False)
    assert row["receipt"] == ANSWER
    assert json.loads(row["selection"]) == {"types": ["t"], "sources": ["a"], "payload": {"k": "v"}, "relay": True}
    unknown = ("accepted", "duplicates", "refused", "peer_upto", "peer_recorded_at", "receipt_key_id", "receipt_alg")
    assert {row[name] for name in unknown} == {None}
    assert row["receipt_digest"] == ""


async def test_a_reported_loss_is_a_receipt_without_deliveries(shelf: LedgerStore) -> None:
    await shelf.call_back("hook")
    lost = '{"lost":{"from":1,"to":2,"count":2,"reasons":["age"]}}'
    await shelf.publish(draft("e1"), draft("e2"))
    await shelf.keep(accepted(0, 2, 0, receipt=lost), 0)
    assert await shelf.rows(RECEIPTS, "peer", "sent", "receipt") == [(HOOK, 0, lost)]
    assert await shelf.rows(DELIVERIES, "id") == []
    assert await shelf.lost(DELIVERIES) == []


async def test_each_node_of_a_database_has_its_own_callbacks(shelf: LedgerStore) -> None:
    await shelf.declare(group="h", node="other")
    await shelf.call_back("hook")
    await shelf.call_back("gate", group="h")
    await shelf.publish(draft("e1"))
    await shelf.publish(draft("f1"), group="h")
    await shelf.keep(accepted(0, 2, 1), 0)
    await shelf.keep(stored_batch("callback:gate", 0, 2, 1, protocol="callback", receipt=ANSWER), 0)
    found = await shelf.rows(DELIVERIES, "group", "node", "peer", "id")
    assert found == [("g", "a", HOOK, "e1"), ("h", "other", "other/callback:gate", "f1")]
    assert await shelf.rows(DELIVERIES, "id", node="other") == ["f1"]


async def test_callbacks_of_records_are_not_in_the_ledgers(shelf: LedgerStore) -> None:
    topic = await shelf.log.topic("orders")
    name = "callback:rm/0b9c"
    await shelf.log.database.write(create_cursor, name, kind="callback", topic_id=topic, position=0, now=NOW)
    await shelf.log.append(topic, [draft("r1")])
    await shelf.keep(stored_batch(name, 0, 1, protocol="callback", receipt=ANSWER), 0)
    assert await shelf.rows(DELIVERIES) == await shelf.rows(RECEIPTS) == []
    state: LedgerSnapshot = await shelf.log.database.read(read_state)
    assert [list(group.peers) for group in state.groups] == [[]]


# --- the state ------------------------------------------------------------------------------------------------------


async def test_the_state_has_callbacks_beside_the_peers(shelf: LedgerStore) -> None:
    await shelf.declare("b")
    await shelf.publish(draft("e1"), draft("e2"), draft("e3"))
    await shelf.call_back("hook", position=1, types=["t"], payload={"k": "v"})
    await shelf.keep(accepted(1, 3), 1)
    topic = await shelf.log.topic("group:g")
    for name in ("resend:hook#1", "resend:hook2#1"):
        selection = CallbackSelection(Selector(), positions=frozenset([2])).to_json()
        about = {"kind": RESEND, "topic_id": topic, "position": 1, "until": 2, "selection": selection, "now": NOW}
        await shelf.log.database.write(create_cursor, name, **about)
    state: LedgerSnapshot = await shelf.log.database.read(read_state)
    (group,) = state.groups
    hook, b = sorted(group.peers)
    assert (b.peer, b.begins, b.relay) == ("b", 0, False)
    assert (hook.peer, hook.relay, hook.state) == (HOOK, True, "running")
    assert (hook.begins, hook.cursor, hook.created_at) == (1, 3, NOW)
    assert hook.repairs == [(1, 2)]
    (version,) = hook.selections
    assert version.selection == {"types": ["t"], "payload": {"k": "v"}, "relay": True}


# --- what callbacks write themselves --------------------------------------------------------------------------------


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    made = await Receiver().start()
    yield made
    await made.stop()


@pytest.fixture
async def called(log: EventLog, clock: ManualClock) -> AsyncIterator[CalledBack]:
    made = CalledBack(log, clock)
    yield made
    await made.close()


@pytest.mark.parametrize(("format", "most"), [("standard", 1), ("batch", 3)])
async def test_the_ledger_has_what_a_callback_has_delivered(
    shelf: LedgerStore, called: CalledBack, receiver: Receiver, clock: ManualClock, format: str, most: int
) -> None:
    """The endpoint is down, so that an event expires before it is tried; it refuses another for good."""
    receiver.always(503)
    chosen = {"format": format, "max_events": most, "selector": Selector.of(types=["t"], payload={"k": "v"})}
    await called.emit("before", payload={"k": "v"})
    await called.declare(callback(receiver.url, isolate_after=1, **chosen))
    await called.emit("e1", "e2", "bad", "e3", payload={"k": "v"})
    await called.emit("brief", payload={"k": "v"}, expires=NOW + 500_000)
    await called.emit("other", payload={"k": "w"})
    await called.emit("e4", payload={"k": "v"})
    cursor = await called.failed(1)

    def judge(request: Received) -> Reply:
        return Reply(400 if b'"id":"bad"' in request.body else 204)

    receiver.answer = judge
    await called.rest(cursor)

    async def caught_up() -> bool:
        found = await called.cursor()
        if found.retry_at is not None and clock.waits:
            clock.advance(1)
        return found.position == 8

    await until(caught_up, "the callback to catch up")
    rows = {row[0]: row[1:] for row in await shelf.rows(DELIVERIES, "id", "outcome", "peer", "protocol")}
    delivered = ("delivered", HOOK, "callback")
    assert rows == {
        **dict.fromkeys(("e1", "e2", "e3", "e4"), delivered),
        "bad": ("refused", HOOK, "callback"),
        "brief": ("expired", HOOK, "callback"),
    }
    (link,) = (await shelf.log.database.read(read_state)).groups[0].peers
    assert (link.begins, link.cursor) == (1, 8)
    assert min(await shelf.rows(RECEIPTS, "after")) == 1
