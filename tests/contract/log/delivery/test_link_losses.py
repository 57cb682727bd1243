"""The gaps of a link in its ledger: the newest are counted, and those of links are none of callbacks."""

from __future__ import annotations

import pytest

from eventd.log.core.topic_row import ensure_topic
from eventd.log.cursors.steps import insert_batch
from eventd.log.delivery import acknowledgements
from eventd.log.delivery.acknowledgements import NO_LOSSES, LinkLosses, count_link_losses, read_recent_gaps
from eventd.store.engine.database import Connection, Database
from eventd.store.engine.statements import execute
from eventd.testing import NOW
from tests.support.stored_batches import stored_batch

_NO_TOPIC = 0


async def test_the_newest_gaps_of_a_link_are_counted(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acknowledgements, "MOST_GAPS", 2)

    def write(conn: Connection) -> None:
        for number, upto in enumerate((100, 103, 107)):
            gap = {"status": 0, "protocol": "gap", "receipt": "", "acked_at": NOW + number}
            insert_batch(conn, stored_batch("peer:g/b", upto - 2 * number - 1, upto, 0, **gap))
        insert_batch(conn, stored_batch("peer:g/b", 107, 110))

    await database.write(write)
    assert await database.read(count_link_losses, "peer:g/b", _NO_TOPIC) == LinkLosses(2, 3 + 5, NOW + 2)
    assert await database.read(count_link_losses, "peer:g/c", _NO_TOPIC) == NO_LOSSES
    assert await database.read(read_recent_gaps, 0) == []


async def test_gaps_have_no_more_events_than_retention_has_removed_from_the_topic(database: Database) -> None:
    """Other topics have positions in a gap. An earlier group of the name may have lost more."""

    def write(conn: Connection) -> int:
        topic = ensure_topic(conn, "group:g", NOW)
        execute(conn, "UPDATE topics SET evicted_seq = 2 WHERE id = ?", (topic,))
        for number, upto in ((-1, 50), (1, 100), (2, 1000)):
            gap = {"status": 0, "protocol": "gap", "receipt": "", "acked_at": NOW + number}
            insert_batch(conn, stored_batch("peer:g/b", upto - 40, upto, 0, **gap))
        return topic

    topic = await database.write(write)
    assert await database.read(count_link_losses, "peer:g/b", topic) == LinkLosses(3, 40 + 2, NOW + 2)
