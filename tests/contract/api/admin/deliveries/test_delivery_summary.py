"""The summary of deliveries equals the sums over their list, and reads no single events of a plain log."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence

import pytest

from eventd.api.admin.deliveries import deliveries
from eventd.api.admin.deliveries.links import read_outbound
from eventd.egress.cursors import link_name
from eventd.log.core.eventlog import EventLog
from eventd.log.core.listing import refreshed_span
from eventd.log.core.values import Draft
from eventd.log.cursors.cursors import read_cursor
from eventd.log.delivery.backlog import read_stale
from eventd.log.delivery.selection import Selection
from eventd.log.delivery.states import read_picked
from eventd.log.retention.evict import RowRetention, delete_old_rows
from eventd.runtime.clock import SECOND
from eventd.store.engine.database import Connection, Database
from eventd.testing import NOW, ManualClock, draft
from federation.selector import Selector
from tests.support.fresh import on_sqlite
from tests.support.group_ledger import GroupLedger

STATES = ("delivered", "pending", "failed", "expired", "refused", "in_path", "unknown")
TYPES = ("x", "y", "z")


@pytest.fixture
async def books(log: EventLog, clock: ManualClock) -> GroupLedger:
    """Group g of node a with two peers: b takes everything, c only some types."""
    found = GroupLedger(log, clock)
    await found.declare("b", c="types: [x, y]")
    return found


async def summed(books: GroupLedger, peer: str, types: Sequence[str] = ()) -> dict[str, int]:
    told = await books.call("deliveries.summary", group="g", peer=peer, type=list(types), include_expired=True)
    [row] = told["summary"]
    row["in_path"] = row["inPath"]
    return {state: row[state] for state in STATES if row[state]}


async def listed(books: GroupLedger, peer: str, types: Sequence[str] = ()) -> dict[str, int]:
    return dict(Counter((await books.states(peer, type=list(types))).values()))


@on_sqlite
async def test_a_plain_log_is_added_up_without_a_look_at_its_records(
    books: GroupLedger, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        await books.publish(*(draft(f"e{number}-{at}", type="x") for at in range(100)))
    clock.advance(2)
    await books.settle("b", 150, attempts=2)
    await books.settle("b", 250)
    monkeypatch.setattr(deliveries, "unpack", lambda block: pytest.fail("taken apart"))
    # Of the third block a part is delivered and a part is not: that alone takes a look.
    with pytest.raises(pytest.fail.Exception):
        await summed(books, "b")
    await books.settle("b", 300)
    [row] = (await books.call("deliveries.summary", group="g", peer="b"))["summary"]
    assert (row["events"], row["delivered"], row["maxLagSeconds"]) == (300, 300, 2.0)
    assert await summed(books, "c") == {"pending": 300}
    assert await summed(books, "c", ["z"]) == {}
    await books.fail("c", 200)
    assert await summed(books, "c") == {"failed": 200, "pending": 100}


async def test_it_says_what_the_list_says(
    books: GroupLedger, clock: ManualClock, chance: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice = chance
    monkeypatch.setattr(deliveries, "SPAN", dice.choice([1, 20, 1000]))
    monkeypatch.setattr(deliveries, "LOOKED_AT", dice.choice([1, 10, 1000]))
    for number in range(30):
        await happen(books, clock, dice, number)
        for peer in ("b", "c"):
            types = dice.sample(TYPES, dice.choice([0, 0, 1, 2]))
            assert await summed(books, peer, types) == await listed(books, peer, types), (number, peer, types)


async def happen(books: GroupLedger, clock: ManualClock, dice: random.Random, number: int) -> None:
    """One thing that a node does, or that is done to it."""
    clock.advance(dice.choice([0, 1, 5]))
    peer = dice.choice("bc")
    cursor = await books.log.database.read(read_cursor, link_name("g", peer))
    head = (await books.log.look_around()).last
    what = dice.choice(["publish", "publish", "publish", "settle", "settle", "fail", "forget", "declare"])
    if what == "publish":
        await books.publish(*some_drafts(dice, number))
    elif what == "settle" and head > cursor.position:
        upto = dice.randint(cursor.position + 1, head)
        out = [at for at in range(cursor.position + 1, upto + 1) if dice.random() < dice.choice([0, 0, 0.3])]
        reasons = [(at, dice.choice(["expired", "in_path", "refused"])) for at in out]
        await books.settle(peer, upto, exceptions=reasons, idle=dice.random() < 0.1)
    elif what == "fail" and head > cursor.position:
        await books.fail(peer, dice.randint(cursor.position, head))
    elif what == "forget":
        limits = RowRetention(ids=SECOND, batches=dice.choice([3, 20]) * SECOND, dead_letters=SECOND, receipts=SECOND)
        await books.log.database.write(delete_old_rows, limits, now=clock.now())
    elif what == "declare" and dice.random() < 0.3:
        chosen = dice.choice(["[x, y]", "[x]", "[y, z], relay: true", "[], relay: true"])
        await books.declare("b", c=f"types: {chosen}")


def some_drafts(dice: random.Random, number: int) -> list[Draft]:
    """Own ones and ones of others, of one type or several, with an end or without, new or known ones."""
    types = dice.choice([["x"], ["x", "y"], ["z"], [*TYPES]])
    path = dice.choice(["", "", "", "d", "b", "d,b"])
    ends = dice.random() < 0.3
    return [
        draft(
            f"e{number}-{at}" if dice.random() < 0.9 else f"shared-{path}-{at}",
            node=path.partition(",")[0] or "a",
            type="x" if ends and at == 0 else dice.choice(types),
            expires=NOW + dice.randint(1, 200) * SECOND if ends else None,
            path=path,
        )
        for at in range(dice.randint(1, 6))
    ]


# --- what is asked for apart is looked up, and not searched for -----------------------------------------------------


def steps(database: Database, ask: Callable[[Connection], object]) -> int:
    """How much work SQLite has with a question: instructions of its virtual machine."""
    count = 0

    def one_more() -> None:
        nonlocal count
        count += 1

    def asked(conn: Connection) -> None:
        ask(conn)  # once to have it compiled
        conn.driver.set_progress_handler(one_more, 1)
        ask(conn)
        conn.driver.set_progress_handler(None, 1)

    database.read_now(asked)
    return count


@on_sqlite
async def test_what_is_rare_costs_the_same_in_a_long_log(books: GroupLedger, database: Database) -> None:
    """Refreshed ids and batches of repairs are found by an index of their own, however many others there are."""
    name = link_name("g", "b")
    wanted = Selection(Selector()).wanted_by("b")
    before: dict[str, int] = {}
    for portion in range(2):
        size = 20 if portion == 0 else 400
        await books.publish(*(draft(f"e{portion}-{at}") for at in range(size)))
        for _ in range(size // 10):
            await books.settle("b", (await books.log.database.read(read_cursor, name)).position + 10)
        cursor = await books.log.database.read(read_cursor, name)
        work = {
            "read_stale": steps(
                database,
                lambda conn: read_stale(conn, 1, wanted, after=cursor.position, now=NOW, cursor=name),  # noqa: B023
            ),
            "read_picked": steps(database, lambda conn: read_picked(conn, name)),
            "refreshed_span": steps(database, lambda conn: refreshed_span(conn, 1)),
        }
        assert work == (before or work)
        before = work


@on_sqlite
async def test_what_waits_for_many_peers_is_read_once(books: GroupLedger, database: Database) -> None:
    """Peers that have been away for long do not each have the log gone through."""
    for number in range(100):
        await books.publish(draft(f"e{number}"))
    few = steps(database, lambda conn: read_outbound(conn, "g", "", NOW))
    await books.declare("b", *(f"p{number}" for number in range(20)), c="types: [x, y]")
    many = steps(database, lambda conn: read_outbound(conn, "g", "", NOW))
    found = await database.read(read_outbound, "g", "", NOW)
    assert [link["lagEvents"] for link in found] == [100, 0, *[100] * 20]
    assert many < 2 * few
