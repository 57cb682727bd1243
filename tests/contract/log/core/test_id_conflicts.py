"""Recorded conflicts of ids, on both databases: counted by kind, and bounded."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eventd.log.core import id_conflicts
from eventd.log.core.eventlog import EventLog
from eventd.log.core.id_conflicts import UNKNOWN, read_conflicts
from eventd.log.core.units import Publish
from eventd.log.core.values import Drafts, IdOwner, Outcome
from eventd.log.retention.evict import RowRetention, delete_old_rows
from eventd.testing import NOW, ManualClock, draft
from federation.digest import digest


async def test_conflicts_are_counted_by_who_has_the_id_and_who_came_second(log: EventLog) -> None:
    topic = await log.topic("group:g")
    await log.append(topic, [draft("e1"), draft("e2")])
    # The stored record is kept in memory to compare it only with a draft of about the same size.
    larger = draft("e2", node="x", subject="s" * 100)
    second = replace(Drafts.of([draft("e1", node="x"), draft("new", node="x"), larger]), key_id="k")
    for times in (1, 2):
        appended = await log.submit(Publish(topic, second))
        assert appended.outcomes.count(Outcome.CONFLICT) == 2
        assert dict(appended.owners) == {
            0: IdOwner("a", "", digest(draft("e1").body).hex()),
            2: IdOwner("a", "", digest(draft("e2").body).hex()),
        }
        [kept] = await log.database.read(read_conflicts, topic)
        assert kept[:6] == ("a", "", "x", "k", 2 * times, "e2")


async def test_sources_without_end_take_no_rows_without_end(
    log: EventLog, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(id_conflicts, "MOST_KINDS", 10)
    monkeypatch.setattr(id_conflicts, "KINDS_PER_TRANSACTION", 5)
    topic = await log.topic("group:g")
    await log.append(topic, [draft("e1")])
    for number in range(20):
        clock.advance(1)
        many = [draft("e1", node=f"x{number}-{each}") for each in range(8)]
        await log.submit(Publish(topic, Drafts.of(many)))
        kept = await log.database.read(read_conflicts, topic)
        assert len(kept) <= 10 + 5 + 1
    assert {"x19-0", UNKNOWN} <= {each.source for each in kept}
    limits = RowRetention(ids=1, batches=1, dead_letters=1, receipts=1)
    await log.database.write(delete_old_rows, limits, now=NOW + 10**12)
    assert await log.database.read(read_conflicts, topic) == []
