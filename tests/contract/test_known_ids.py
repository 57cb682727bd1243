"""Looking up known ids costs no more memory than the drafts that name them."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from eventd.clock import SECOND
from eventd.log import append
from eventd.log.eventlog import EventLog
from eventd.log.values import Outcome
from eventd.testing import NOW, draft


async def test_small_drafts_under_the_ids_of_large_events_do_not_bring_those_into_memory(
    log: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = await log.topic("group:g")
    await log.append(topic, [draft(f"e{n}", payload={"k": "v" * 5000}) for n in range(3)])
    read, bodies = append.fetch_in, []

    def reading(conn: sa.Connection, sql: str, *args: object) -> list[tuple[object, ...]]:
        found = read(conn, sql, *args)  # type: ignore[arg-type]
        bodies.extend(found if sql.startswith("SELECT position, body") else [])
        return found

    monkeypatch.setattr(append, "fetch_in", reading)
    small = await log.append(topic, [draft(f"e{n}") for n in range(3)])
    assert list(small.outcomes) == [Outcome.CONFLICT] * 3
    assert bodies == []
    same = await log.append(topic, [draft("e1", payload={"k": "v" * 5000})])
    assert list(same.outcomes) == [Outcome.DUPLICATE]
    assert [position for position, _ in bodies] == [2]


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
