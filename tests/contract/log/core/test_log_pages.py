"""Pages of the log: which records a reader gets, how far the page reaches, and which losses it reports."""

from __future__ import annotations

from eventd.log.core.eventlog import EventLog
from eventd.log.core.listing import EventQuery, list_latest
from eventd.log.core.scan import read_at
from eventd.log.core.values import Gap
from eventd.log.core.wire_page import WirePage
from eventd.log.delivery.selection import Selection
from eventd.log.retention.evict import EvictionLimits, evict
from eventd.store.engine.database import Database
from eventd.testing import NOW, draft


async def fill(log: EventLog, topic: int, count: int, *, name: str = "e", size: int = 0) -> None:
    await log.append(topic, [draft(f"{name}{n}", payload={"k": "x" * size}) for n in range(1, count + 1)])


async def evict_to(database: Database, topic: int, keep: int) -> None:
    await database.write(evict, topic, EvictionLimits(max_records=keep, keep_undelivered=False), now=NOW)


async def read(log: EventLog, topic: int, after: int, *, own: bool = False, **bounds: int) -> WirePage:
    """A page as it goes to a peer that is to get everything; or all that entered here."""
    wanted = Selection(relay=not own).wanted_by("nobody")
    return await log.lines(topic, after, wanted, **{"limit": 1000, "max_bytes": 1 << 20} | bounds)


def positions(page: WirePage) -> list[int]:
    return [int(line.split("\t")[0]) for line in page.body.decode().splitlines()]


async def test_an_empty_log_gives_an_empty_page(log: EventLog) -> None:
    page = await read(log, await log.topic("group:g"), 0)
    assert (page.count, page.gaps, page.upto, page.full, page.lost_position) == (0, [], 0, False, 0)
    assert (page.head.last, len(page.head.epoch) > 8) == (0, True)


async def test_pages_follow_each_other_without_overlap(log: EventLog) -> None:
    topic = await log.topic("group:g")
    await fill(log, topic, 10)
    met: list[list[int]] = []
    after, full = 0, True
    while full:
        page = await read(log, topic, after, limit=4)
        met.append(positions(page))
        after, full = page.upto, page.full
    assert met == [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10]]
    assert after == 10


async def test_a_page_that_ends_exactly_at_the_head_says_that_more_may_wait(log: EventLog) -> None:
    topic = await log.topic("group:g")
    await fill(log, topic, 4)
    assert (await read(log, topic, 0, limit=4)).full
    page = await read(log, topic, 4, limit=4)
    assert (positions(page), page.upto, page.full) == ([], 4, False)


async def test_upto_is_what_was_scanned_not_what_matched(log: EventLog) -> None:
    """The other topic's records lie behind this one's last: a reader has passed them."""
    topic, other = await log.topic("group:g"), await log.topic("group:other")
    await fill(log, topic, 2)
    await fill(log, other, 5)
    page = await read(log, topic, 0)
    assert (positions(page), page.upto) == ([1, 2], 7)
    page = await read(log, topic, 0, limit=2)
    assert (positions(page), page.upto, page.full) == ([1, 2], 2, True), "beyond a full page nothing was looked at"
    page = await read(log, other, 0, limit=10)
    assert (positions(page), page.upto) == ([3, 4, 5, 6, 7], 7)


async def test_a_scan_ends_where_it_is_told(log: EventLog) -> None:
    topic, other = await log.topic("group:g"), await log.topic("group:other")
    await fill(log, topic, 3)
    await fill(log, other, 3)
    await fill(log, topic, 3, name="f")
    page = await read(log, topic, 1, until=5)
    assert (positions(page), page.upto, page.full, page.head.last) == ([2, 3], 5, False, 9)
    page = await read(log, topic, 5, until=5)
    assert (positions(page), page.upto) == ([], 5)
    page = await read(log, topic, 7, until=5)
    assert (positions(page), page.upto) == ([], 7), "a reader never goes back"
    page = await read(log, topic, 0, until=100)
    assert page.upto == 9, "what does not exist yet was not scanned"


async def test_a_page_holds_about_the_bytes_it_may_and_at_least_one_record(log: EventLog) -> None:
    topic = await log.topic("group:g")
    await fill(log, topic, 4, size=1000)
    await fill(log, topic, 1, name="huge", size=1 << 20)
    await fill(log, topic, 4, name="last", size=1000)
    size = len(draft("last1", payload={"k": "x" * 1000}).body)
    met: list[list[int]] = []
    after, full = 0, True
    while full:
        page = await read(log, topic, after, max_bytes=2 * size)
        met.append(positions(page))
        after, full = page.upto, page.full
    assert met == [[1, 2], [3, 4], [5], [6, 7], [8, 9]]
    assert after == 9


async def test_the_budget_counts_bytes_not_characters(log: EventLog) -> None:
    topic = await log.topic("group:g")
    await log.append(topic, [draft(f"{n}", payload={"k": "ü" * 1000}) for n in range(4)])
    page = await read(log, topic, 0, max_bytes=4500)
    assert positions(page) == [1, 2]


async def test_of_records_that_came_from_other_nodes_a_page_of_own_ones_is_free(log: EventLog) -> None:
    topic = await log.topic("group:g")
    await log.append(topic, [draft("own"), draft("own2")])
    await log.append(topic, [draft("foreign", node="b", path="b", payload={"k": "x" * 5000})])
    await log.append(topic, [draft("own3"), draft("own4")])
    page = await read(log, topic, 0, own=True)
    assert (positions(page), page.upto) == ([1, 2, 4, 5], 5)
    page = await read(log, topic, 0, own=True, limit=3)
    assert (positions(page), page.upto, page.full) == ([1, 2, 4], 4, True)
    page = await read(log, topic, 2, own=True, until=3)
    assert (positions(page), page.upto) == ([], 3)
    page = await read(log, topic, 0, own=True, max_bytes=4000)
    assert positions(page) == [1, 2, 4, 5], "what is left out costs nothing of the budget"


async def test_whoever_is_behind_the_evicted_line_gets_a_gap_first(log: EventLog, database: Database) -> None:
    topic = await log.topic("group:g")
    await fill(log, await log.topic("group:other"), 2)
    await fill(log, topic, 6)
    await evict_to(database, topic, 2)
    page = await read(log, topic, 0)
    assert page.gaps == [Gap(topic, after=0, upto=6, upto_seq=4)]
    assert positions(page) == [7, 8]
    assert (await read(log, topic, 5)).gaps == [Gap(topic, after=5, upto=6, upto_seq=4)]
    assert (await read(log, topic, 6)).gaps == [], "who had read up to the line has missed nothing"
    assert (await read(log, topic, 7)).gaps == []


async def test_a_topic_that_was_emptied_still_tells_of_its_gap(log: EventLog, database: Database) -> None:
    topic = await log.topic("group:g")
    await fill(log, topic, 3)
    await evict_to(database, topic, 0)
    page = await read(log, topic, 1)
    assert (page.count, page.gaps, page.upto) == (0, [Gap(topic, 1, 3, 3)], 3)


async def test_the_gap_and_the_records_are_of_one_moment(log: EventLog, database: Database) -> None:
    """Retention between the two questions of a read would show a hole without its gap."""
    topic = await log.topic("group:g")
    await fill(log, topic, 400)
    keeps = iter(range(390, -1, -10))
    after, seen, missed = 0, 0, 0
    while after < 400:
        eviction = database.start_write(
            lambda conn: evict(conn, topic, EvictionLimits(max_records=next(keeps, 0)), now=NOW)
        )
        page = await read(log, topic, after, limit=7)
        eviction.result()
        if page.gaps:
            missed += page.gaps[0].upto - after
            assert positions(page)[:1] in ([], [page.gaps[0].upto + 1])
        elif page.count:
            assert positions(page)[0] == after + 1
        seen += page.count
        after = page.upto
    assert seen + missed == 400


async def test_records_are_found_by_their_positions(log: EventLog, database: Database) -> None:
    topic = await log.topic("group:g")
    await fill(log, topic, 5)
    await evict_to(database, topic, 4)
    found = await database.read(read_at, [9, 4, 1, 2])
    assert [record.event_id for record in found] == ["e2", "e4"]
    assert await database.read(read_at, []) == []
    assert len(await database.read(read_at, list(range(1, 2001)))) == 4


# --- listing ------------------------------------------------------------------------------------------------------

LISTINGS: list[tuple[dict[str, object], list[str]]] = [
    ({}, ["b", "c", "d", "a", "e"]),
    ({"types": ["up", "x"]}, ["c", "d", "a", "e"]),
    ({"types": ["none"]}, []),
    ({"event_id": "a"}, ["a"]),
    ({"subject_prefix": "bgp"}, ["b", "c", "a"]),
    ({"subject_prefix": "bgp%"}, ["c"]),
    ({"subject_prefix": "bgp_"}, []),
    ({"subject_prefix": "är"}, ["e"]),
    ({"source": "n"}, ["c"]),
    ({"since": NOW + 3}, ["c", "d", "a", "e"]),
    ({"until": NOW + 3}, ["b", "c"]),
    ({"since": NOW + 3, "until": NOW + 4}, ["c", "d"]),
    ({"now": NOW + 10}, ["b", "c", "d", "a", "e"]),
    ({"now": NOW + 11}, ["b", "c", "a", "e"]),
    ({"now": NOW + 91}, ["b", "c", "e"]),
    ({"after": 3}, ["d", "a", "e"]),
    ({"before": 4}, ["b", "c"]),
    ({"after": 2, "before": 6}, ["c", "d", "a"]),
    ({"limit": 2}, ["b", "c"]),
    ({"limit": 2, "newest": True}, ["e", "a"]),
    ({"limit": 2, "newest": True, "before": 5}, ["d", "c"]),
]


async def test_a_listing_answers_the_question(log: EventLog) -> None:
    topic = await log.topic("group:g")
    await log.append(
        topic,
        [
            draft("a", type="up", subject="bgp/1", observed=NOW + 1, expires=NOW + 50),
            draft("b", type="down", subject="bgp/2", observed=NOW + 2),
            draft("c", type="up", subject="bgp%", node="n", observed=NOW + 3),
            draft("d", type="x", subject="", observed=NOW + 4, expires=NOW + 10),
            draft("a", type="up", subject="bgp/1", observed=NOW + 5, expires=NOW + 90),
            draft("e", type="up", subject="ärger/1", observed=NOW + 6),
        ],
    )
    await log.append(await log.topic("group:other"), [draft("other", type="up", subject="bgp/1")])
    for question, expected in LISTINGS:
        ask = EventQuery(topic_id=topic, **question)  # type: ignore[arg-type]
        found = await log.database.read(list_latest, ask)
        assert [record.event_id for record in found.records] == expected, question
