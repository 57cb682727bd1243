"""Each kind of reader has connections of its own: it does not wait for the long reads of requests."""

from __future__ import annotations

import asyncio
import threading

from eventd.log.core.eventlog import EventLog
from eventd.log.core.wire_page import PeerFilter
from eventd.log.delivery.selection import Selection
from eventd.store.engine.database import READERS, Database
from eventd.testing import draft


async def test_requests_that_read_for_long_hold_up_no_delivery(log: EventLog, database: Database) -> None:
    topic = await log.topic("group:g")
    await log.append(topic, [draft("e1")])
    log.tail.clear()  # or no reader would be asked
    end = threading.Event()
    long = [asyncio.ensure_future(database.read(lambda _: end.wait(30))) for _ in range(2 * READERS)]
    try:
        async with asyncio.timeout(10):
            page = await log.lines(topic, 0, PeerFilter("b", Selection()), limit=10, max_bytes=1 << 20)
            head = await log.look_around()
    finally:
        end.set()
        await asyncio.gather(*long)
    assert (page.count, head.last) == (1, 1)
