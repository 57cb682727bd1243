"""Looking up known ids costs no more memory than the drafts that name them."""

from __future__ import annotations

from eventd.clock import SECOND
from eventd.log.append import Candidate, read_known
from eventd.log.eventlog import EventLog
from eventd.log.values import Draft, Outcome
from eventd.testing import NOW, draft


async def test_small_drafts_under_the_ids_of_large_events_do_not_bring_those_into_memory(log: EventLog) -> None:
    topic = await log.topic("group:g")
    await log.append(topic, [draft(f"e{n}", payload={"k": "v" * 5000}) for n in range(3)])

    def kept(drafts: list[Draft]) -> list[str | None]:
        asked = [Candidate(each.event_id, each.path, each.body, each.expires_at) for each in drafts]
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
