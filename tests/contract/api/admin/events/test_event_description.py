"""The description of one event: its payload as stored, its course at this node, and what is known once it is gone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from eventd.api.admin.events.event_description import INLINE_BYTES, EventGone
from eventd.errors import NotFound
from eventd.log.core.eventlog import EventLog
from eventd.log.cursors.steps import Step
from eventd.log.history.refuted import RefutedRecord, find_refuted, keep_refuted
from eventd.log.retention.evict import EvictionLimits, evict
from eventd.store.engine.statements import fetch
from eventd.store.rows.callback_attempts import CallbackAttempt, add_attempt
from eventd.store.rows.runs import NewRun, RunEnd, RunStatus, begin_run, end_run
from eventd.testing import NOW, ManualClock, draft
from tests.support.fresh import on_sqlite
from tests.support.group_ledger import GroupLedger

CALLBACK = """
apiVersion: federation.routerd.net/v1alpha1
kind: EventCallback
metadata: {name: hook}
spec: {source: {groupRef: g}, url: "https://hook.example/", signing: {keys: []}}
"""


@pytest.fixture
async def books(log: EventLog, clock: ManualClock) -> GroupLedger:
    """Group g of node a, with the peers b and c."""
    found = GroupLedger(log, clock)
    await found.declare("b", "c")
    return found


async def emit(books: GroupLedger, **event: Any) -> None:
    await books.call("events.emit", group="g", events=[{"type": "t", "id": "e1", **event}], brief=True)


async def describe(books: GroupLedger, event_id: str = "e1", **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = await books.call("events.describe", group="g", id=event_id, **more)
    return found


@on_sqlite
async def test_the_payload_is_the_stored_text(books: GroupLedger) -> None:
    await emit(books, payload={"n": "9007199254740993", "html": "<b>", "a": "\u202e"})
    found = await describe(books)
    assert found["payload"] == '{"a":"\u202e","html":"<b>","n":"9007199254740993"}'
    assert found["payloadBytes"] == len(found["payload"].encode())
    assert found["event"]["type"] == "t"
    assert "payload" not in found["event"]


@on_sqlite
async def test_a_large_payload_is_downloaded(books: GroupLedger) -> None:
    await emit(books, payload={"x": "y" * INLINE_BYTES})
    found = await describe(books)
    assert found["payload"] is None
    assert found["payloadBytes"] == INLINE_BYTES + 8
    download = await books.call("events.payload", group="g", id="e1")
    assert download.content == b'{"x":"' + b"y" * INLINE_BYTES + b'"}'


@on_sqlite
async def test_an_event_without_a_payload_has_an_empty_one(books: GroupLedger) -> None:
    await emit(books)
    assert (await describe(books))["payload"] == "{}"


@on_sqlite
async def test_each_peer_has_its_delivery_with_the_batch(books: GroupLedger) -> None:
    await emit(books)
    await books.settle("b", 1)
    await books.fail("c", 1, "cannot connect")
    delivered, failed = (await describe(books))["deliveries"]
    assert (delivered["peer"], delivered["status"]) == ("b", "delivered")
    assert delivered["batch"]["id"] == "batch-1"
    assert delivered["batch"]["protocol"] == "v2"
    assert (failed["peer"], failed["status"], failed["lastError"]) == ("c", "failed", "cannot connect")
    assert failed["batch"] is None


async def test_the_dead_letter_of_an_event_is_shown(books: GroupLedger) -> None:
    await books.publish(draft("e1"), draft("e2"))
    await books.settle("b", 2, parked={1: "loop"})
    [letter] = (await describe(books))["deadLetters"]
    assert (letter["kind"], letter["owner"], letter["reason"]) == ("peer", "b", "loop")
    assert (await describe(books, "e2"))["deadLetters"] == []


@on_sqlite
async def test_runs_with_the_event_are_shown_with_what_they_wrote(books: GroupLedger) -> None:
    await emit(books)
    new = NewRun(plugin="p", trigger="federation-subscription", started_at=NOW, subscription="s", group="g")
    for ids in (["e1"], ["e10"], ["x", "e1"]):
        run = await books.log.database.write(
            begin_run, NewRun(**{n: getattr(new, n) for n in NewRun.__slots__} | {"event_ids": ids})
        )
        ending = RunEnd(status=RunStatus.FAILED, completed_at=NOW, stderr=f"on {ids[0]}")
        await books.log.database.write(end_run, run, ending)
    found = await describe(books)
    assert [run["stderr"] for run in found["runs"]] == ["on x", "on e1"]
    assert found["runsSearched"]


@on_sqlite
async def test_a_callback_is_pending_then_failed_with_its_attempts(books: GroupLedger) -> None:
    await books.call("resources.apply", sources=[{"name": "hook.yaml", "text": CALLBACK}])
    await emit(books)
    [pending] = (await describe(books))["callbacks"]
    assert (pending["callback"], pending["status"]) == ("hook", "pending")
    attempt = CallbackAttempt(
        cursor="callback:hook", message_id="m", after=0, upto=1, events=1, status=500, reason="server_error",
        started_at=NOW, first_at=NOW,
    )  # fmt: skip
    await books.log.database.write(add_attempt, attempt)
    [failed] = (await describe(books))["callbacks"]
    assert [one["status"] for one in failed["failedAttempts"]] == [500]


async def test_an_event_that_a_callback_accepted_is_delivered_with_its_message(books: GroupLedger) -> None:
    await books.call("resources.apply", sources=[{"name": "hook.yaml", "text": CALLBACK}])
    await books.publish(draft("e1"), draft("e2"))
    batch = replace(books.batch("callback:hook", 0, 2, 1, [(2, "too_large")]), protocol="callback")
    await books.log.settle(Step("callback:hook", 0, 2, 2, books.clock.now(), [batch]))
    [accepted] = (await describe(books))["callbacks"]
    assert (accepted["status"], accepted["messageId"]) == ("delivered", "batch-1")
    [left_out] = (await describe(books, "e2"))["callbacks"]
    assert (left_out["status"], left_out["lastError"]) == ("refused", "too_large")


@on_sqlite
async def test_an_evicted_event_is_not_found_with_what_is_known(books: GroupLedger) -> None:
    topic = await books.log.topic("group:g")
    await books.publish(draft("e1"))
    await books.publish(draft("e2"))
    books.clock.advance(60)
    await books.log.database.write(
        evict, topic, EvictionLimits(max_records=1, keep_undelivered=False), now=books.clock.now()
    )
    with pytest.raises(EventGone) as gone:
        await describe(books)
    assert gone.value.detail["evictedAt"] == "2026-11-20T12:01:00Z"
    assert gone.value.detail["reason"] == "retention"
    [place] = (await books.call("events.find", id="e1"))["groups"]
    assert (place["stored"], place["evictedAt"]) == (False, "2026-11-20T12:01:00Z")


@on_sqlite
async def test_an_unknown_event_is_not_found(books: GroupLedger) -> None:
    with pytest.raises(NotFound, match="has no event nothing"):
        await describe(books, "nothing")


async def test_a_peer_whose_filter_does_not_take_an_event_is_named_with_what_to_change(
    log: EventLog, clock: ManualClock
) -> None:
    books = GroupLedger(log, clock)
    await books.declare(
        b="types: [dns.*, dhcp]", c='types: [t], subjectPrefixes: ["10."]', d="relay: true", e="types: [t]"
    )
    await emit(books, subject="192.0.2.1")
    found = await describe(books)
    assert [one["peer"] for one in found["deliveries"]] == ["d", "e"]
    assert found["notSelected"] == [
        {
            "peer": "b",
            "resource": "b",
            "reason": "its filter takes only types dhcp, dns.*",
            "remedy": "add t to spec.types of EventPeer b",
        },
        {
            "peer": "c",
            "resource": "c",
            "reason": "its filter takes only subjects that begin with 10.",
            "remedy": "add the beginning of the subject to spec.subjectPrefixes of EventPeer c",
        },
    ]


@on_sqlite
async def test_an_event_of_another_node_says_why_it_is_not_relayed(log: EventLog, clock: ManualClock) -> None:
    books = GroupLedger(log, clock)
    await books.declare(b="types: [dns.*]", c="")
    await books.publish(draft("e1", node="b", path="b"))
    from_b, not_relayed = (await describe(books))["notSelected"]
    assert "the event came from or through b" in from_b["reason"]
    assert from_b["remedy"] == "", "no change of the filter returns an event to where it has been"
    assert not_relayed["reason"] == "the event came from b, and the link does not relay"
    assert "spec.relay of EventPeer c" in not_relayed["remedy"]


async def test_a_link_says_what_its_filter_takes(log: EventLog, clock: ManualClock) -> None:
    books = GroupLedger(log, clock)
    await books.declare(b="types: [dns.*], relay: true", c="")
    links = (await books.call("links.status", group="g"))["outbound"]
    assert [link["filter"]["words"] for link in links] == [
        "events of all nodes, only of types dns.*",
        "events that entered the log at this node",
    ]
    assert links[0]["filter"]["types"] == ["dns.*"]


@on_sqlite
async def test_a_refuted_event_is_shown_as_such_until_the_true_one_has_its_id(books: GroupLedger) -> None:
    forged = draft("e1", path="b,hub", subject="forged")
    topic = await books.log.topic("group:g")
    [position] = await books.publish(forged)
    await books.log.database.write(keep_refuted, topic, RefutedRecord(position, "e1", "eventd/g/b/tree", 7, NOW))
    mark = {"kind": "refuted", "tree": "eventd/g/b/tree", "leaf": 7, "at": "2026-11-20T12:00:00Z"}
    shown = (await describe(books))["event"]
    assert (shown["subject"], shown["mark"]) == ("forged", mark)
    for operation in ("events.list", "events.search"):
        [listed] = (await books.call(operation, group="g", id="e1"))["events"]
        assert listed["mark"] == mark
    [found] = (await books.call("events.find", id="e1"))["groups"]
    assert (found["group"], found["stored"], found["event"]["mark"]) == ("g", True, mark)
    await books.publish(draft("e1", path="b,hub", subject="true"))
    shown = (await describe(books))["event"]
    assert (shown["subject"], shown["mark"]) == ("true", None)
    listed = (await books.call("events.list", group="g", id="e1"))["events"]
    assert [one.get("mark") for one in listed] == [mark, None], "the id leads to both"
    [other] = (await describe(books))["others"]
    assert (other["position"], other["mark"]) == (position, mark)
    assert (await describe(books, position=position))["event"]["subject"] == "forged"
    with pytest.raises(NotFound, match="no record of event e1 at position 99") as wrong:
        await describe(books, position=99)
    assert wrong.value.hint == f"its records are at positions {position}, {position + 1}"
    [found] = (await books.call("events.find", id="e1"))["groups"]
    assert found["event"]["subject"] == "true"


async def test_the_mark_of_a_refuted_event_goes_with_its_record(books: GroupLedger) -> None:
    topic = await books.log.topic("group:g")
    [position] = await books.publish(draft("e1", path="b,hub"))
    await books.log.database.write(keep_refuted, topic, RefutedRecord(position, "e1", "eventd/g/b/tree", 7, NOW))
    await books.log.database.write(evict, topic, EvictionLimits(max_records=0), now=NOW)
    assert await books.log.database.read(find_refuted, topic, "e1") == []
    with pytest.raises(NotFound):
        await describe(books)
    [(ids,)] = await books.log.database.read(fetch, "SELECT ids FROM topics WHERE id = ?", (topic,))
    assert ids == 0, "the id was subtracted once"
