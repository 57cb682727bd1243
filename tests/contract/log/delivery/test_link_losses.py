"""The gaps of a link in its ledger: the newest are counted, and those of links are none of callbacks."""

from __future__ import annotations

import pytest

from eventd.log.cursors.steps import insert_batch
from eventd.log.delivery import acknowledgements
from eventd.log.delivery.acknowledgements import NO_LOSSES, LinkLosses, count_link_losses, read_recent_gaps
from eventd.store.engine.database import Connection, Database
from eventd.testing import NOW
from tests.support.stored_batches import stored_batch


async def test_the_newest_gaps_of_a_link_are_counted(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acknowledgements, "MOST_GAPS", 2)

    def write(conn: Connection) -> None:
        for number, upto in enumerate((100, 103, 107)):
            gap = {"status": 0, "protocol": "gap", "receipt": "", "acked_at": NOW + number}
            insert_batch(conn, stored_batch("peer:g/b", upto - 2 * number - 1, upto, 0, **gap))
        insert_batch(conn, stored_batch("peer:g/b", 107, 110))

    await database.write(write)
    assert await database.read(count_link_losses, "peer:g/b") == LinkLosses(2, 3 + 5, NOW + 2)
    assert await database.read(count_link_losses, "peer:g/c") == NO_LOSSES
    assert await database.read(read_recent_gaps, 0) == []
