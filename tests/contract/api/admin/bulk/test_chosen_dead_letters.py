"""Dead letters that are chosen one by one, of several owners together: retried, dropped, and whose key may choose."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from eventd.api.keys.api_key import ApiKey
from eventd.errors import Forbidden, Invalid, NotFound
from eventd.log.core.eventlog import EventLog
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import bulk_insert
from eventd.testing import NOW, ManualClock, draft
from tests.support.fresh import on_sqlite
from tests.support.group_ledger import GroupLedger

COLUMNS = ("cursor", "position", "topic_id", "event_id", "reason", "detail", "attempts", "parked_at")


@pytest.fixture
async def books(log: EventLog, clock: ManualClock) -> GroupLedger:
    """The group g with two events, each a dead letter of the peers b and c, and one dead letter of group h."""
    found = GroupLedger(log, clock)
    await found.declare("b", "c")
    await found.declare("d", group="h")
    positions = await found.publish(draft("e1"), draft("e2"))
    for peer in "bc":
        await found.settle(peer, positions[-1], parked={at: "too_large" for at in positions})
    await park(found, "peer:h/d", "h", 900)
    return found


async def park(books: GroupLedger, cursor: str, group: str, position: int) -> None:
    topic = await books.log.topic(f"group:{group}")
    row = (cursor, position, topic, f"{cursor}-1", "loop", "", 1, NOW)

    def write(conn: Connection) -> None:
        bulk_insert(conn, "dead_letters", COLUMNS, [row])

    await books.log.database.write(write)


async def letters(books: GroupLedger) -> dict[str, int]:
    """Return the ids of the dead letters, by owner and event."""
    found = (await books.call("dead_letters.all"))["deadLetters"]
    return {f"{one['owner']} {one['eventId']}": one["id"] for one in found}


@on_sqlite
async def test_dead_letters_of_several_peers_are_sent_again_and_those_that_cannot_be_stay(books: GroupLedger) -> None:
    ids = await letters(books)
    chosen = [ids["b e1"], ids["c e2"], ids["d peer:h/d-1"]]
    answer = await books.call("dead_letters.retry_chosen", ids=chosen)
    assert (answer["retried"], answer["kept"]) == (2, 1)
    assert [(one["outcome"], one["count"]) for one in answer["results"]] == [("kept", 1), ("retried", 2)]
    assert [len(await books.repairs(peer)) for peer in "bc"] == [1, 1]
    assert (await letters(books)).keys() == {"b e2", "c e1", "d peer:h/d-1"}


async def test_dead_letters_of_several_peers_are_dropped(books: GroupLedger) -> None:
    ids = await letters(books)
    answer = await books.call("dead_letters.drop_chosen", ids=[ids["b e1"], ids["d peer:h/d-1"]])
    assert answer["dropped"] == 2
    assert (await letters(books)).keys() == {"b e2", "c e1", "c e2"}


@on_sqlite
async def test_with_an_unknown_or_unsuitable_id_nothing_is_done(books: GroupLedger) -> None:
    ids = await letters(books)
    with pytest.raises(NotFound, match="there is no dead letter 999999"):
        await books.call("dead_letters.drop_chosen", ids=[ids["b e1"], 999999])
    await park(books, "router:orders->audit", "g", 901)
    others = await letters(books)
    with pytest.raises(Invalid, match="is of a router"):
        await books.call(
            "dead_letters.drop_chosen", ids=[*ids.values(), others["orders->audit router:orders->audit-1"]]
        )
    assert len(await letters(books)) == 6


@on_sqlite
async def test_a_key_for_some_groups_chooses_dead_letters_of_these_only(books: GroupLedger) -> None:
    ids = await letters(books)
    key = ApiKey(b"k", frozenset({"admin", "delete"}), ("g",), name="k")

    async def drop(*chosen: int) -> Any:
        books.services = replace(books.services, key=key)
        try:
            return await books.call("dead_letters.drop_chosen", ids=[*chosen])
        finally:
            books.services = replace(books.services, key=None)

    with pytest.raises(Forbidden):
        await drop(ids["b e1"], ids["d peer:h/d-1"])
    assert await drop(ids["b e1"]) == {
        "dropped": 1,
        "results": [{"outcome": "dropped", "reason": "too_large", "count": 1}],
    }
    assert len(await letters(books)) == 4
