"""A log of many small blocks and one of few large blocks read the same, a page at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from eventd.log.core import blocks, scan, wire_page
from eventd.log.core.eventlog import EventLog
from eventd.log.core.listing import EventQuery, list_latest
from eventd.log.core.scan import outlines, read_at
from eventd.log.core.scan import scan as scan_blocks
from eventd.log.core.values import Draft
from eventd.log.core.wire_page import WirePage, read_wire_page
from eventd.log.delivery.repairs import numbered_between
from eventd.log.delivery.selection import Selection
from eventd.log.retention.evict import EvictionLimits, evict
from eventd.store.engine.statements import fetch
from eventd.testing import NOW, draft
from federation.selector import Selector
from tests.support.reading import read_records


@pytest.fixture(params=[1, 3, 1000], ids=["single", "small", "large"])
def sizes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records to a block, and few blocks at once, so that every seam is crossed."""
    monkeypatch.setattr(blocks, "BLOCK_RECORDS", request.param)
    monkeypatch.setattr(scan, "FIRST_BLOCKS", 2)
    monkeypatch.setattr(scan, "BLOCKS_PER_READ", 3)
    monkeypatch.setattr(scan, "POSITIONS_PER_STATEMENT", 2)


async def fill(log: EventLog, topic: int, count: int) -> list[Draft]:
    made = [draft(f"{n:03}", type="odd" if n % 2 else "even", subject=f"s/{n % 5}") for n in range(1, count + 1)]
    await log.append(topic, made)
    return made


@pytest.mark.usefixtures("sizes")
async def test_every_stretch_is_scanned_whole(log: EventLog) -> None:
    other = await log.topic("group:other")
    await fill(log, other, 2)
    topic = await log.topic("group:g")
    await fill(log, topic, 20)
    for after, until in ((0, 22), (2, 22), (3, 21), (9, 13), (12, 13), (21, 30), (22, 30), (0, 2), (7, 7)):
        expected = [at for at in range(3, 23) if after < at <= until]
        found = log.database.read_now(lambda conn, a=after, u=until: [*scan_blocks(conn, topic, a, u)])  # type: ignore[misc]
        assert [at for block in found for at in range(block.position, block.last + 1)] == expected
        told = log.database.read_now(lambda conn, a=after, u=until: [*outlines(conn, topic, a, u)])  # type: ignore[misc]
        assert [block.position for block in told] == sorted({block.position for block in told})
        covered = {at for block in told for at in range(block.position, block.last + 1)}
        assert covered >= set(expected)
        assert all(block.last > after and block.position <= until for block in told)


@pytest.mark.usefixtures("sizes")
async def test_a_listing_in_parts_is_the_listing(log: EventLog, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = await log.topic("group:g")
    made = await fill(log, topic, 30)
    monkeypatch.setattr("eventd.log.core.listing.LOOKED_AT", 4)
    monkeypatch.setattr("eventd.log.core.listing.PASSED_OVER", 1)
    for types, prefix, limit in (((), "", 7), (("odd",), "", 3), ((), "s/3", 2), (("none",), "", 5), ((), "s/9", 5)):
        wanted = [d.event_id for d in made if (not types or d.tag in types) and f'"subject":"{prefix}' in d.body]
        ask = EventQuery(topic, types=types, subject_prefix=prefix, limit=limit)
        assert await listed(log, ask) == wanted
        assert await listed(log, replace(ask, newest=True)) == wanted[::-1]


async def listed(log: EventLog, ask: EventQuery) -> list[str]:
    """All answers, page by page, each page with its bounds kept."""
    found: list[str] = []
    more = True
    while more:
        page = await log.database.read(list_latest, ask)
        assert len(page.records) <= ask.limit
        found += [record.event_id for record in page.records]
        more = page.more
        ask = replace(ask, before=page.seen) if ask.newest else replace(ask, after=page.seen)
    return found


async def test_a_listing_is_bounded_in_bytes_but_has_one_record(log: EventLog) -> None:
    topic = await log.topic("group:g")
    await log.append(topic, [draft(f"{n}", payload={"k": "v" * 1000}) for n in range(5)])
    pages = []
    ask = EventQuery(topic, max_bytes=2500)
    for max_bytes in (2500, 10):
        page = await log.database.read(list_latest, EventQuery(topic, max_bytes=max_bytes))
        pages.append((len(page.records), page.more))
    assert pages == [(2, True), (1, True)]
    assert await listed(log, ask) == ["0", "1", "2", "3", "4"]


@pytest.mark.usefixtures("sizes")
async def test_a_narrow_selector_comes_through_a_long_log_in_parts(
    log: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = await log.topic("group:g")
    await fill(log, topic, 40)
    monkeypatch.setattr(wire_page, "LOOKED_AT", 5)
    wanted = Selection(Selector.of(subject_prefixes=["s/4"])).wanted_by("b")
    positions: list[int] = []
    after, full, pages = 0, True, 0
    while full:
        page: WirePage = await log.database.read(
            read_wire_page, topic, after, wanted, limit=100, max_bytes=1 << 20, until=None, now=NOW
        )
        assert page.upto > after or not page.full, "it gets on"
        positions += [int(line.split("\t")[0]) for line in page.body.decode().splitlines()]
        after, full, pages = page.upto, page.full, pages + 1
    assert positions == [4, 9, 14, 19, 24, 29, 34, 39]
    assert after == 40
    assert 1 < pages < 12


@pytest.mark.usefixtures("sizes")
async def test_places_are_found_by_seq_and_by_position(log: EventLog) -> None:
    one, two = await log.topic("group:one"), await log.topic("group:two")
    for start in (0, 3, 6):  # positions 1-3, 7-9, 13-15 are one's seqs 1 to 9
        await log.append(one, [draft(f"one{start + n}") for n in range(3)])
        await log.append(two, [draft(f"two{start + n}") for n in range(3)])
    await log.database.write(evict, one, EvictionLimits(max_records=7), now=NOW)

    async def between(first: int, last: int) -> tuple[int, int]:
        return await log.database.read(numbered_between, one, first, last)

    assert await between(1, 9) == (2, 18)
    assert await between(3, 3) == (2, 6), "what lies between are records of another topic"
    assert await between(4, 5) == (6, 8)
    assert await between(1, 2) == (0, 0), "gone"
    assert await between(10, 12) == (0, 0)
    found = await log.database.read(read_at, [15, 1, 3, 8, 8, 4, 99])
    assert [record.event_id for record in found] == ["one2", "two0", "one4", "one8"]


@pytest.mark.usefixtures("sizes")
async def test_retention_cuts_through_a_block(log: EventLog) -> None:
    for keep in range(9):
        topic = await log.topic(f"group:{keep}")
        made = await fill(log, topic, 8)
        await log.database.write(evict, topic, EvictionLimits(max_records=keep), now=NOW)
        page = await read_records(log, topic, 0)
        assert [record.event_id for record in page.items] == [d.event_id for d in made[8 - keep :]]
        assert [record.seq for record in page.items] == list(range(9 - keep, 9))
        ((size, ids),) = await log.database.read(fetch, "SELECT bytes, ids FROM topics WHERE id = ?", (topic,))
        assert (size, ids) == (sum(record.size for record in page.items), keep)
        again = await log.append(topic, made)
        assert [outcome.name for outcome in again.outcomes] == ["DUPLICATE"] * 8, "what is gone is known by its digest"


async def test_a_block_of_both_kinds_is_two(log: EventLog) -> None:
    topic = await log.topic("group:g")
    await log.append(topic, [draft("a"), draft("b", path="x"), draft("c", path="x"), draft("d")])
    rows: Sequence[tuple[int, int, int]] = await log.database.read(
        fetch, "SELECT position, records, own FROM blocks ORDER BY position"
    )
    assert rows == [(1, 1, 1), (2, 2, 0), (4, 1, 1)]
    assert [record.event_id for record in (await read_records(log, topic, 0, own=True)).items] == ["a", "d"]


async def test_a_backlog_of_lone_events_goes_in_whole_batches(log: EventLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire_page, "LOOKED_AT", 10)
    topic = await log.topic("group:g")
    for n in range(30):
        await log.append(topic, [draft(f"{n}")])
    ask = {"limit": 25, "max_bytes": 1 << 20, "until": None, "now": NOW}
    page = await log.database.read(read_wire_page, topic, 0, Selection().wanted_by("b"), **ask)
    assert (page.count, page.upto, page.full) == (25, 25, True)


async def test_a_page_of_large_records_stops_earlier(log: EventLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire_page, "LOOKED_AT", 20)
    monkeypatch.setattr("eventd.log.core.listing.LOOKED_AT", 20)
    topic = await log.topic("group:g")
    for n in range(30):
        await log.append(topic, [draft(f"{n}", subject="s", payload={"k": "x" * 10_240})])
    wanted = Selection(Selector.of(subject_prefixes=["s/"])).wanted_by("b")
    page = await log.database.read(read_wire_page, topic, 0, wanted, limit=100, max_bytes=1 << 20, until=None, now=NOW)
    assert (page.count, page.upto, page.full) == (0, 2, True)
    listing = await log.database.read(list_latest, EventQuery(topic, subject_prefix="s", until=0))
    assert (listing.records, listing.more, listing.seen) == ([], True, 2)


async def test_long_paths_make_short_blocks(log: EventLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 4000)
    topic = await log.topic("group:g")
    await log.append(topic, [draft(f"{n}", path="n" * 1000 if n % 2 else "m") for n in range(20)])
    held = await log.database.read(lambda conn: [*scan_blocks(conn, topic, 0, 20)])
    assert sum(block.records for block in held) == 20
    assert all(block.records <= 4 and len(block.text) < 8000 for block in held)
