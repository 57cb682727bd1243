"""Looking up known ids costs no more memory than the drafts that contain them."""

from __future__ import annotations

from eventd.log.core.append import Candidate, read_known
from eventd.log.core.eventlog import EventLog
from eventd.log.core.values import Draft, Outcome
from eventd.log.delivery.repairs import read_placed
from eventd.runtime.clock import SECOND
from eventd.store.engine.statements import execute
from eventd.testing import NOW, draft


async def test_small_drafts_under_the_ids_of_large_events_do_not_bring_those_into_memory(log: EventLog) -> None:
    topic = await log.topic("group:g")
    await log.append(topic, [draft(f"e{n}", payload={"k": "v" * 5000}) for n in range(3)])

    def kept(drafts: list[Draft]) -> list[str | None]:
        asked = [Candidate(each.event_id, each.path, each.body, each.expires_at, "") for each in drafts]
        known = log.database.read_now(read_known, topic, asked)
        return [known[draft.event_id].body for draft in drafts]

    small, same = [draft(f"e{n}") for n in range(3)], draft("e1", payload={"k": "v" * 5000})
    assert kept(small) == ["", "", ""]
    assert list((await log.append(topic, small)).outcomes) == [Outcome.CONFLICT] * 3
    assert kept([same]) == [same.body]
    assert list((await log.append(topic, [same])).outcomes) == [Outcome.DUPLICATE]


async def test_the_same_content_is_known_again_however_its_times_are_written(log: EventLog) -> None:
    """With a fraction of a second in both times, or in none, is the most that one content can differ in size."""
    topic = await log.topic("group:g")
    whole = NOW - NOW % SECOND
    await log.append(
        topic, [draft("e1", observed=whole, expires=whole), draft("e2", observed=whole + 1, expires=whole + 1)]
    )
    again = [
        draft("e1", observed=whole + 1, expires=whole + 1),
        draft("e2", observed=whole, expires=whole),
    ]
    assert len(again[0].body) - len(again[1].body) == 14
    assert list((await log.append(topic, again)).outcomes) == [Outcome.REFRESH, Outcome.DUPLICATE]


async def test_an_id_whose_record_is_lost_is_stored_again_and_known_from_then_on(log: EventLog) -> None:
    """Damage, or a hand in the tables: the id alone must neither turn the event away nor end the transaction."""
    topic = await log.topic("group:g")
    for each in ("e1", "e2", "e3"):
        await log.append(topic, [draft(each)])
    await log.database.write(lambda conn: execute(conn, "DELETE FROM blocks WHERE position = ?", (2,)))
    again = await log.append(topic, [draft("e1"), draft("e2"), draft("e4"), draft("e2")])
    assert list(again.outcomes) == [Outcome.DUPLICATE, Outcome.NEW, Outcome.NEW, Outcome.DUPLICATE]
    assert list(again.positions) == [1, 4, 5, 4]
    assert log.database.read_now(read_placed, topic, ["e1", "e2", "e3", "e4"]) == {"e1": 1, "e2": 4, "e3": 3, "e4": 5}
    assert list((await log.append(topic, [draft("e2")])).outcomes) == [Outcome.DUPLICATE]


async def test_an_id_whose_record_is_lost_is_not_known(log: EventLog) -> None:
    topic, other = await log.topic("group:g"), await log.topic("group:other")
    await log.append(topic, [draft("e1"), draft("e2"), draft("e3")])
    await log.append(other, [draft("e4")])
    await log.append(topic, [draft("e5")])
    await log.database.write(lambda conn: execute(conn, "DELETE FROM blocks WHERE position = 5"))
    placed = log.database.read_now(read_placed, topic, [f"e{number}" for number in range(1, 7)])
    assert placed == {"e1": 1, "e2": 2, "e3": 3}
