"""Concurrent applies: each is checked against the result of the others, and none waits for ever."""

from __future__ import annotations

import asyncio

import pytest

from eventd.egress.cursors import link_name
from eventd.errors import EventdError
from eventd.log.core.eventlog import EventLog
from eventd.log.cursors.cursors import read_cursors
from eventd.store.engine.database import Database
from eventd.testing import ManualClock, draft
from tests.contract.egress.conftest import BOTH_DATABASES
from tests.support.group_ledger import GROUP, PEER, GroupLedger


@pytest.fixture
async def books(log: EventLog, clock: ManualClock) -> GroupLedger:
    return GroupLedger(log, clock)


@BOTH_DATABASES
async def test_a_new_peer_is_held_for_from_the_moment_it_is_declared(books: GroupLedger, log: EventLog) -> None:
    await books.declare()
    await books.publish(draft("e1"))
    await books.declare("b")
    (cursor,) = await log.database.read(read_cursors)
    assert (cursor.name, cursor.position) == (link_name("g", "b"), 0)
    assert await books.states() == {"e1": "pending"}
    await books.call("resources.delete", kind="ep", name="b")
    assert await log.database.read(read_cursors) == []


@BOTH_DATABASES
async def test_a_dry_run_and_a_diff_change_nothing(books: GroupLedger, log: EventLog) -> None:
    sources = [{"name": "x", "text": f"{GROUP % ('g', '')}---{PEER % ('b', 'g', 'b', '')}"}]
    answer = await books.call("resources.apply", sources=sources, dry_run=True)
    assert [change["action"] for change in answer["changes"]] == ["created", "created"]
    answer = await books.call("resources.diff", sources=sources)
    assert all(change["diff"].startswith("--- stored/") for change in answer["changes"])
    assert (await books.call("resources.list"))["resources"] == []
    assert await log.database.read(read_cursors) == []


@BOTH_DATABASES
async def test_a_dry_run_names_the_stored_types_that_a_narrower_filter_leaves_out(books: GroupLedger) -> None:
    await books.declare("b")
    await books.publish(draft("e1", type="dns.a"), draft("e2", type="flow"), draft("e3", type="dns.b"))
    sources = [{"name": "x", "text": PEER % ("b", "g", "b", "types: [dns.*]")}]
    for operation in ("resources.diff", "resources.apply"):
        given = {"dry_run": True} if operation == "resources.apply" else {}
        (change,) = (await books.call(operation, sources=sources, **given))["changes"]
        assert (change["narrows"], change["stops"]) == (["types dns.*"], ["flow"])


@BOTH_DATABASES
async def test_declarations_and_publishers_get_along(books: GroupLedger, log: EventLog, database: Database) -> None:
    """Two processes declare in opposite orders while events come in; on Postgres this is how a deadlock would look."""
    await books.declare()
    other = Database(database.url.render_as_string(hide_password=False))
    try:
        second = GroupLedger(await EventLog.open(other, books.clock), books.clock)
        peers = [PEER % (name, "g", name, "") for name in "bcdef"]

        async def apply(who: GroupLedger, texts: list[str], digit: str) -> None:
            for round in range(6):
                text = "---".join(texts).replace("127.0.0.1:1", f"127.0.0.1:{round + 1}{digit}")
                await who.call("resources.apply", sources=[{"name": "x", "text": text}])

        async def publish() -> None:
            for number in range(40):
                await books.publish(draft(f"e{number}"))

        await asyncio.gather(apply(books, peers, "1"), apply(second, peers[::-1], "2"), publish())
        await second.log.close()
    finally:
        other.close()
    assert len((await books.call("resources.list", kind="ep"))["resources"]) == 5
    assert len(await books.states()) == 40


@BOTH_DATABASES
async def test_of_two_that_contradict_each_other_one_is_refused(books: GroupLedger, database: Database) -> None:
    """One deletes the group while the other adds a peer to it: never both."""
    other = Database(database.url.render_as_string(hide_password=False))
    try:
        second = GroupLedger(await EventLog.open(other, books.clock), books.clock)
        for _ in range(5):
            await books.declare()
            text = PEER % ("b", "g", "b", "")
            results = await asyncio.gather(
                books.call("resources.delete", kind="eg", name="g"),
                second.call("resources.apply", sources=[{"name": "x", "text": text}]),
                return_exceptions=True,
            )
            assert sum(isinstance(result, EventdError) for result in results) == 1, results
            sources = [{"name": "x", "text": f"{GROUP % ('g', '')}---{text}"}]
            await books.call("resources.delete_sources", sources=sources, ignore_not_found=True)
        await second.log.close()
    finally:
        other.close()
