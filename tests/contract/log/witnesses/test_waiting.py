"""Mode `verify`: each event of another node is in exactly one state, and what waits says for what."""

from __future__ import annotations

import pytest

from eventd.log.core.eventlog import EventLog
from eventd.log.core.listing import EventQuery, list_latest
from eventd.log.history.hints import keep_hints
from eventd.log.history.trees import MINUTE
from eventd.log.witnesses import event_states
from eventd.log.witnesses.checking import DAY
from eventd.log.witnesses.event_states import EventHistory, pick_in_state, read_event_states, span_of
from eventd.log.witnesses.keys import LOG, learn_key, note_refused_key, show_key
from eventd.log.witnesses.unproven import UnprovenEvents, read_unproven
from eventd.log.witnesses.waiting import MOST_WAITING, WAITING_ROWS, WaitingTree, count_waiting, read_waiting
from eventd.log.witnesses.witnessed import forget_trees
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import execute, fetch
from eventd.testing import NOW
from federation.history.leaf_hints import LeafPlace
from federation.history.witnessing import KeySource, KnownKey
from tests.contract.log.witnesses.test_checking import LATER, TREE, Checked
from tests.support.growing_tree import FIRST, SECOND, GrowingTree
from tests.support.histories import emit

ORIGIN = f"eventd/g/a/{TREE}"
KEY = FIRST.public_key().public_bytes_raw()
PINS = {("a", LOG): KEY}


@pytest.fixture
async def checked(log: EventLog) -> Checked:
    return Checked(log, await log.topic("group:g"))


async def waiting(checked: Checked, now: int) -> list[WaitingTree]:
    return await checked.log.database.read(read_waiting, checked.topic, "g", PINS, now)


async def states(checked: Checked) -> dict[str, str]:
    def read(conn: Connection) -> dict[str, str]:
        records = list_latest(conn, EventQuery(checked.topic, refuted=True)).records
        found = read_event_states(conn, checked.topic, "g", records)
        return {one.event_id: found[one.position].value for one in records if one.position in found}

    return await checked.log.database.read(read)


async def count(checked: Checked) -> int:
    found = await checked.log.database.read(count_waiting, checked.topic)
    assert found.in_full
    return found.events


async def test_each_event_of_another_node_is_in_one_state(checked: Checked) -> None:
    await emit(checked.log, checked.topic, "own")
    [true, _] = await checked.get("e1", "e2", leaf=1)
    await checked.get("e3")
    await checked.get("e4", "e5", leaf=9)
    assert await count(checked) == 5
    assert set((await states(checked)).values()) == {"waiting"}
    await checked.pull(GrowingTree().grow(true, "x"))
    assert await checked.check(LATER) == (1, 1, 1)
    assert await count(checked) == 2, "with these, all five are counted"
    assert await states(checked) == {
        "e1": "verified",
        "e2": "refuted",
        "e3": "unproven",
        "e4": "waiting",
        "e5": "waiting",
    }
    assert await checked.check(NOW + 2 * DAY) == (0, 0, 2)
    assert await count(checked) == 0
    assert (await states(checked))["e5"] == "unproven"


async def test_an_event_is_not_verified_by_a_tree_that_an_operator_reset(checked: Checked) -> None:
    await checked.pull(GrowingTree().grow(*await checked.get("e1", leaf=1)))
    assert await checked.check() == (1, 0, 0)
    assert await states(checked) == {"e1": "verified"}
    await checked.log.database.write(forget_trees, checked.topic, "a", NOW)
    assert await states(checked) == {"e1": "unproven"}


async def test_events_in_one_state_are_found_between_two_positions(checked: Checked) -> None:
    [true, _] = await checked.get("e1", "e2", leaf=1)
    await checked.get("e3", leaf=9)
    await checked.pull(GrowingTree().grow(true, "x"))
    await checked.check(LATER)

    def read(conn: Connection) -> dict[str, tuple[tuple[int, int] | None, list[str]]]:
        records = list_latest(conn, EventQuery(checked.topic, refuted=True)).records
        return {
            state.value: (
                span_of(conn, checked.topic, state),
                [one.event_id for one in pick_in_state(conn, checked.topic, "g", records, state)],
            )
            for state in EventHistory
        }

    assert await checked.log.database.read(read) == {
        "waiting": ((3, 3), ["e3"]),
        "verified": (None, ["e1"]),
        "unproven": (None, []),
        "refuted": ((2, 2), ["e2"]),
    }


async def test_unproven_events_are_counted_for_the_node_that_brought_them(checked: Checked) -> None:
    await emit(checked.log, checked.topic, "own")
    await checked.pull(GrowingTree().grow(*await checked.get("e1", leaf=1)))
    await checked.get("e2", "e3", path="a,hub")
    await checked.get("e4", path="c,other")
    await checked.get("e5", leaf=9)
    await checked.check()

    def read(conn: Connection) -> list[UnprovenEvents]:
        assert read_unproven(conn, checked.topic, "g", NOW + DAY) == [], "they are older"
        return read_unproven(conn, checked.topic, "g", NOW)

    assert await checked.log.database.read(read) == [
        UnprovenEvents("hub", 2, "e3", "a"),
        UnprovenEvents("other", 1, "e4", "c"),
    ]


async def test_what_waits_names_its_tree_and_the_known_and_the_refused_key(checked: Checked) -> None:
    await checked.get("e1", "e2", leaf=4)
    await checked.check()
    known = show_key(LOG, KEY)
    assert await waiting(checked, NOW + 7) == [WaitingTree("a", ORIGIN, "e1", "hub", 4, 7, 0, 0, known, "pinned", "")]
    other = SECOND.public_key().public_bytes_raw()

    def refuse(conn: Connection) -> None:
        learn_key(conn, checked.topic, "a", LOG, KnownKey(KEY, KeySource.PINNED), PINS, NOW)
        note_refused_key(conn, checked.topic, "a", LOG, other, PINS, NOW)

    await checked.log.database.write(refuse)
    [one] = await waiting(checked, NOW)
    assert one.refused == show_key(LOG, other)
    await checked.witness(GrowingTree().grow("x"))
    [one] = await waiting(checked, NOW)
    assert (one.held, one.tiles) == (2, 0)
    for later, shown in ((NOW, ""), (NOW + MINUTE, show_key(LOG, other))):
        await checked.log.database.write(note_refused_key, checked.topic, "a", LOG, other, PINS, later)
        await checked.log.database.write(execute, "UPDATE history_keys SET refused_at = ?", (later,))
        [one] = await waiting(checked, NOW)
        assert one.refused == shown, "a refusal before the last checkpoint says nothing of what is missing"


async def test_what_arrived_before_the_mode_is_not_checked_where_a_row_of_hints_continues(checked: Checked) -> None:
    bodies = []
    for number, due in enumerate([None, None, NOW], 1):
        await emit(checked.log, checked.topic, f"e{number}", path="a,hub")
        place = [LeafPlace(number, number, TREE)]
        await checked.log.database.write(keep_hints, checked.topic, place, [number], [number], due)
        bodies = await checked.bodies()
    assert await count(checked) == 1
    await checked.pull(GrowingTree().grow(*bodies))
    assert await checked.check() == (1, 0, 0), "the first two arrived before"
    assert await checked.rows() == [(3, None)]


async def test_of_very_many_waiting_events_only_some_are_counted(checked: Checked) -> None:
    await checked.get(*(f"e{number}" for number in range(MOST_WAITING - 1)), leaf=1)
    assert await count(checked) == MOST_WAITING - 1
    await checked.get("one", "more", leaf=2)
    assert await checked.log.database.read(count_waiting, checked.topic) == (MOST_WAITING, False)


async def test_rows_that_wait_for_nothing_are_not_read(checked: Checked) -> None:
    """With a million of them, each read of the few that wait took a third of a second."""
    is_sqlite = checked.log.database.kind == "sqlite"

    def plan(conn: Connection) -> str:
        if not is_sqlite:  # a table without rows is read as a whole
            execute(conn, "SET LOCAL enable_seqscan = off")
        explain = "EXPLAIN QUERY PLAN" if is_sqlite else "EXPLAIN"
        rows = fetch(conn, f"{explain} SELECT position FROM {WAITING_ROWS} ORDER BY position LIMIT 1", (checked.topic,))
        return " ".join(str(row) for row in rows)

    assert "leaf_hints_due" in await checked.log.database.read(plan)


async def test_where_more_wait_than_are_read_they_can_be_anywhere(
    checked: Checked, monkeypatch: pytest.MonkeyPatch
) -> None:
    await checked.get("e1", leaf=1)
    monkeypatch.setattr(event_states, "MOST_WAITING", 2)
    assert await checked.log.database.read(span_of, checked.topic, EventHistory.WAITING) == (1, 1)
    monkeypatch.setattr(event_states, "MOST_WAITING", 1)
    assert await checked.log.database.read(span_of, checked.topic, EventHistory.WAITING) is None
