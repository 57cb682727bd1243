"""The ledgers of real nodes over HTTP: what both ends of a link record, and how a reader follows it."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any

import pytest
from aiohttp import ClientSession

from eventd.ingress import refusal_counter
from eventd.log.core.head import renew_epoch
from eventd.testing import until
from federation.event import from_micros, micros
from federation.keys import KeyRing
from tests.integration.conftest import MakeSites
from tests.support.declared import group, peer
from tests.support.sites import Site
from tests.support.v2_sender import V2Sender, line


async def _get(site: Site, path: str, key: str = "", **query: Any) -> tuple[int, Any]:
    assert site.running.api_address is not None
    host, port = site.running.api_address
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    async with (
        ClientSession() as session,
        session.get(f"http://{host}:{port}/api/v1{path}", params=query, headers=headers) as answer,
    ):
        return answer.status, await answer.json()


async def _rows(site: Site, book: str, **query: Any) -> list[dict[str, Any]]:
    """All rows of a book, answer by answer."""
    found: list[dict[str, Any]] = []
    after, full = 0, True
    while full:
        status, told = await _get(site, f"/books/{book}", after=after, **query)
        assert (status, told["book"], told["after"], told["lost"]) == (200, book, after, [])
        found += [dict(zip(told["columns"], row, strict=True)) for row in zip(*told["columns"].values(), strict=True)]
        after, full = told["upto"], told["full"]
    return found


async def test_both_ends_of_a_link_tell_the_same(sites: MakeSites) -> None:
    a, b = sites("a", "b")
    await b.start()
    await b.join(a)
    await a.start()
    await a.join(b)
    await a.emit("one", "two")
    await b.emit("three")
    await a.holds("one", "two", "three")
    await b.holds("one", "two", "three")
    await a.caught_up("b")

    events = {row["id"]: row for row in await _rows(a, "events")}
    held = {row["id"]: row for row in await _rows(b, "events")}
    for event_id in ("one", "two", "three"):
        assert events[event_id]["digest"] == held[event_id]["digest"]
        assert events[event_id]["fingerprint"] == held[event_id]["fingerprint"]
    assert (events["one"]["own"], held["one"]["own"], held["one"]["path"]) == (True, False, "a")

    deliveries = await _rows(a, "deliveries", rows=1)
    assert [(row["id"], row["peer"], row["outcome"]) for row in deliveries] == [
        ("one", "b", "delivered"),
        ("two", "b", "delivered"),
    ]
    receipts, inbound = await _rows(a, "receipts"), await _rows(b, "inbound")
    assert {row["receipt_digest"] for row in receipts} == {row["receipt_digest"] for row in inbound}
    assert {row["receipt_digest"] for row in deliveries} <= {row["receipt_digest"] for row in receipts}
    assert [(row["batch_id"], row["after"], row["upto"], row["link_epoch"]) for row in receipts] == [
        (row["batch_id"], row["after"], row["upto"], row["link_epoch"]) for row in inbound
    ]
    assert {row["receipt_alg"] for row in receipts} == {"hmac-sha256"}
    for row, answered in zip(receipts, inbound, strict=True):
        assert hashlib.sha256(answered["receipt"].encode()).hexdigest() == row["receipt_digest"]
        assert row["peer_recorded_at"] == micros(from_micros(answered["recorded_at"]))


async def test_a_v1_link_has_deliveries_and_nothing_signed(sites: MakeSites) -> None:
    a, b = sites("a", "b")
    await b.start()
    await b.join(a)
    await a.start()
    await a.apply(group("a", port=a.port, secret=a.secret), peer("b", b.port, protocol="v1"))
    await a.emit("one")
    await a.caught_up("b")
    (row,) = await _rows(a, "deliveries")
    assert (row["id"], row["protocol"], row["outcome"], row["receipt_digest"]) == ("one", "v1", "delivered", "")
    (receipt,) = await _rows(a, "receipts")
    assert (receipt["protocol"], receipt["receipt"], receipt["accepted"]) == ("v1", "", None)
    assert await _rows(b, "inbound") == []


async def test_what_is_there_is_told_with_the_history_it_is_of(sites: MakeSites) -> None:
    (a,) = sites("a")
    await a.start()
    await a.join()
    await a.emit("one", "two")
    status, told = await _get(a, "/books")
    assert (status, told["nodes"], told["head"]) == (200, ["a"], 2)
    assert told["books"]["events"] == {"first": 1, "last": 2}
    assert told["groups"] == [{"group": "edge", "node": "a", "peers": []}]
    epoch = told["epoch"]
    status, told = await _get(a, "/books/events", after=1, epoch=epoch)
    assert (status, told["node"], told["epoch"], told["columns"]["id"]) == (200, "a", epoch, ["two"])

    await a.running.log.database.write(renew_epoch)
    status, told = await _get(a, "/books/events", after=1, epoch=epoch)
    assert (status, told["error"]["code"]) == (409, "epoch_changed")
    renewed = told["error"]["detail"]["epoch"]
    status, told = await _get(a, "/books/events", epoch=renewed)
    assert (status, told["columns"]["epoch"]) == (200, [renewed, renewed])
    assert (await _get(a, "/books"))[1]["instance"] == (await a.rows("SELECT instance FROM log_heads"))[0][0]


async def test_what_makes_no_sense_is_refused_in_words(sites: MakeSites) -> None:
    (a,) = sites("a")
    await a.start()
    for path, query in (
        ("/books/letters", {}),
        ("/books/events", {"after": "-1"}),
        ("/books/events", {"rows": "0"}),
        ("/books/events", {"rows": "20001"}),
        ("/books/events", {"upto": "3"}),
        ("/books", {"after": "3"}),
    ):
        status, told = await _get(a, path, **query)
        assert (status, told["error"]["code"]) == (400, "invalid_params"), path


async def test_a_key_must_be_for_reading_and_for_all_groups(sites: MakeSites) -> None:
    (a,) = sites("a")
    await a.start(api_keys="reader-of-all-groups:r,writer-of-all-groups:w,reader-of-one-group:r:edge")
    for path in ("/books", "/books/deliveries"):
        assert (await _get(a, path))[0] == 401
        assert (await _get(a, path, "reader-of-all-groups"))[0] == 200
        assert (await _get(a, path, "writer-of-all-groups"))[0] == 403
        assert (await _get(a, path, "reader-of-one-group"))[0] == 403


async def test_refused_requests_are_in_the_books_when_the_node_has_ended(sites: MakeSites) -> None:
    a, b = sites("x", "b")
    await b.start()
    await b.join(a)
    sender = V2Sender(b.port)
    wrong = V2Sender(b.port, ring=KeyRing.shared("another secret of this length...."))
    strange = V2Sender(b.port, node="nobody", ring=wrong.ring)
    for by in (wrong, wrong, strange):
        reply = await asyncio.to_thread(by.send, by.batch(line("forged")))
        assert reply.status == 401
    reply = await asyncio.to_thread(sender.send, sender.batch(line("good"), line("ours", node="b")))
    assert reply.status == 200
    await b.stop()
    await b.start()
    found = {(row["peer"], row["key_id"], row["reason"]): row["count"] for row in await _rows(b, "refusals")}
    assert found == {
        ("x", "shared", "bad_signature"): 2,
        ("?", "shared", "bad_signature"): 1,
        ("x", "shared", "own_source"): 1,
    }


async def test_a_running_node_writes_refusals_down_by_itself(sites: MakeSites, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusal_counter, "LOOK_SECONDS", 0.05)
    (b,) = sites("b")
    await b.start()
    await b.join()
    sender = V2Sender(b.port, ring=KeyRing.shared("another secret of this length...."))
    await asyncio.to_thread(sender.send, sender.batch(line("forged")))

    async def written() -> bool:
        return bool(await _rows(b, "refusals"))

    await until(written, "the refusal to be written")
