"""The cached end of the log agrees with the database, or is empty."""

from __future__ import annotations

import pytest

from eventd.log.core import tail
from eventd.log.core.eventlog import EventLog
from eventd.log.core.head import renew_epoch
from eventd.log.core.wire_page import PeerFilter, WirePage, read_wire_page
from eventd.log.delivery.selection import Selection
from eventd.log.retention.evict import EvictionLimits, evict
from eventd.runtime.clock import SystemClock
from eventd.store.engine.database import Database
from eventd.testing import NOW, draft
from federation.selector import Selector

ALL = Selection().wanted_by("b")
RELAYED = Selection(relay=True).wanted_by("b")
FEW = Selection(Selector.of(types=["up"]), relay=True).wanted_by("b")


async def both(log: EventLog, topic: int, after: int, wanted: PeerFilter, **bounds: int) -> tuple[WirePage, WirePage]:
    """The page as the log gives it, and as the database does."""
    bounds = {"limit": 100, "max_bytes": 1 << 20, **bounds}
    asked = await log.lines(topic, after, wanted, at_tail=True, **bounds)  # type: ignore[arg-type]
    stored = await log.database.read(
        read_wire_page, topic, after, wanted, until=None, now=log.clock.now(), **bounds  # type: ignore[arg-type]
    )  # fmt: skip
    return asked, stored


async def test_a_page_of_the_tail_is_the_page_of_the_database(log: EventLog) -> None:
    one, two = await log.topic("group:one"), await log.topic("group:two")
    await log.append(one, [draft("a"), draft("b", type="up")])
    await log.append(two, [draft("x")])
    await log.append(one, [draft("c", path="n", type="up"), draft("d", path="b"), draft("e", expires=NOW - 1)])
    await log.append(one, [draft("f", node="b", type="up"), draft("a")])
    for topic in (one, two):
        for after in range(8):
            for wanted in (ALL, RELAYED, FEW):
                for limit in (1, 2, 100):
                    asked, stored = await both(log, topic, after, wanted, limit=limit)
                    assert asked == stored, (topic, after, wanted, limit)
    assert log.tail.beyond(one, 0, own=True) is not None, "all of this was in memory"


async def test_who_has_read_all_is_told_so_without_asking(log: EventLog, monkeypatch: pytest.MonkeyPatch) -> None:
    topic, other = await log.topic("group:g"), await log.topic("group:other")
    await log.append(topic, [draft("a")])
    await log.append(other, [draft("b")])
    pages = [await both(log, topic, 2, ALL), await both(log, topic, 1, ALL)]
    assert all(asked == stored for asked, stored in pages)
    monkeypatch.setattr(log.database, "read_for_delivery", None)
    for after in (1, 2):
        page = await log.lines(topic, after, ALL, limit=10, max_bytes=1000, at_tail=True)
        assert (page.count, page.upto, page.full, page.gaps) == (0, 2, False, [])


async def test_what_another_process_appended_comes_from_the_database(log: EventLog, database: Database) -> None:
    topic = await log.topic("group:g")
    await log.append(topic, [draft("a")])
    other = await EventLog.open(Database(str(database.url.render_as_string(hide_password=False))), SystemClock())
    try:
        await other.append(topic, [draft("b")])
        asked, _ = await both(log, topic, 0, ALL)
        assert (asked.count, asked.upto) == (1, 1), "what is in memory ends at what this process wrote"
        asked, _ = await both(log, topic, 1, ALL)
        assert (asked.count, asked.upto) == (0, 1), "nothing told it of more yet"
        log.wakeups.foreign(2)
        asked, stored = await both(log, topic, 1, ALL)
        assert asked == stored, "it has been woken, and looks"
        assert asked.count == 1
        await log.append(topic, [draft("c")])
        for after, ids in ((0, ["a", "b", "c"]), (1, ["b", "c"]), (2, ["c"])):
            asked, stored = await both(log, topic, after, ALL)
            assert asked == stored
            assert [line.split('"id":"')[1][0] for line in asked.body.decode().splitlines()] == ids
    finally:
        await other.close()
        other.database.close()


async def test_the_tail_is_small_and_whoever_is_behind_it_reads_on(
    log: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail, "TAIL_BYTES", 1000)
    topic = await log.topic("group:g")
    for n in range(20):
        await log.append(topic, [draft(f"{n}", payload={"k": "v" * 100})])
    held = [after for after in range(20) if log.tail.beyond(topic, after, own=True)]
    assert held == [*range(held[0], 20)]
    assert 2 <= len(held) <= 4
    for after in range(20):
        asked, stored = await both(log, topic, after, ALL)
        assert asked == stored
    await log.append(topic, [draft("large", payload={"k": "v" * 2000})])
    assert [after for after in range(21) if log.tail.beyond(topic, after, own=True)] == []
    await log.append(topic, [draft("next")])
    assert [after for after in range(22) if log.tail.beyond(topic, after, own=True)] == [21]


async def test_what_retention_took_is_no_gap_for_who_had_it_in_memory(log: EventLog) -> None:
    topic = await log.topic("group:g")
    await log.append(topic, [draft("a"), draft("b")])
    await log.database.write(evict, topic, EvictionLimits(max_records=0), now=NOW)
    asked, _ = await both(log, topic, 1, ALL)
    assert (asked.count, asked.gaps, asked.lost_position, asked.upto) == (1, [], 0, 2)


async def test_a_new_history_begins_with_an_empty_tail(log: EventLog) -> None:
    topic = await log.topic("group:g")
    await log.append(topic, [draft("a")])
    epoch = await log.database.write(renew_epoch)  # by another process
    await log.append(topic, [draft("b")])
    asked, stored = await both(log, topic, 1, ALL)
    assert asked == stored
    assert asked.head.epoch == epoch
