"""A page as lines for the wire: the text that the database joins equals that of the single records."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eventd.log.core.eventlog import EventLog
from eventd.log.core.values import Draft, Gap, Record
from eventd.log.core.wire_page import PeerFilter, WirePage, read_wire_page
from eventd.log.delivery.selection import Selection
from eventd.log.retention.evict import EvictionLimits, evict
from eventd.testing import NOW, draft
from federation.event import is_alive
from federation.lines import encode_lines
from federation.loops import decode_path, encode_path, may_send
from federation.peers import BATCH_TYPE, RUNS_TYPE
from federation.runs import read_runs, split_runs
from federation.selector import Selector
from tests.support.reading import read_records

NODES = ["b", "bb", "x,y", "ü b"]
SUBJECTS = ["", "bgp", "bgp/1", "bg%", "b_p", "ärger"]
ALL = Selection().wanted_by("b")

drafts = st.builds(
    lambda node, path, type, subject, life: {
        "node": node,
        "path": encode_path(tuple(path)),
        "type": type,
        "subject": subject,
        "expires": None if life is None else NOW + life,
    },
    st.sampled_from(["a", *NODES]),
    st.lists(st.sampled_from(NODES), max_size=3),
    st.sampled_from(["up", "down", "link", "link.up"]),
    st.sampled_from(SUBJECTS),
    st.sampled_from([None, -1, 0, 1]),
)
selectors = st.builds(
    lambda types, prefixes: Selector.of(types=types, subject_prefixes=prefixes),
    st.lists(st.sampled_from(["up", "down", "none", "link.*", "*"]), max_size=2),
    st.lists(st.sampled_from(["b", "bgp", "bg%", "bgp_", "ä"]), max_size=2),
)
earlier = st.none() | st.builds(Selection, selectors, st.booleans())
selections = st.builds(Selection, selectors, st.booleans(), st.frozensets(st.integers(1, 10), max_size=4), earlier)
names = count(1)


def only(type: str) -> PeerFilter:
    return Selection(Selector.of(types=[type])).wanted_by("b")


def expected(records: list[Record], selection: Selection, peer: str, base: int) -> tuple[str, list[tuple[int, str]]]:
    """By the rules, one record after the other."""
    lines, exceptions = "", []
    shifted = Selection(
        selection.selector, selection.relay, frozenset(base + at for at in selection.positions), selection.without
    )
    for record in records:
        if not shifted.matches(record):
            continue
        reason = None if is_alive(record.expires_at, NOW) else "expired"
        reason = reason or may_send(decode_path(record.path), record.node, peer, relay=selection.relay)
        if reason is None:
            lines += f"{record.position}\t{record.path}\t{record.body}\n"
        else:
            exceptions.append((record.position, reason))
    return lines, exceptions


def text_of(page: WirePage) -> str:
    """A page as lines."""
    return page.body.decode() if page.form == BATCH_TYPE else encode_lines(split_runs(page.body))


async def read(log: EventLog, topic: int, after: int, wanted: PeerFilter, **more: int | None) -> WirePage:
    values = {"limit": 1000, "max_bytes": 1 << 20, "until": None, "now": NOW, **more}
    return await log.database.read(read_wire_page, topic, after, wanted, **values)  # type: ignore[arg-type]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    facts=st.lists(drafts, max_size=10),
    selection=selections,
    peer=st.sampled_from(NODES),
    limit=st.integers(1, 11),
    together=st.booleans(),
    runs=st.booleans(),
)
async def test_the_lines_are_those_of_the_records_that_may_go(
    log: EventLog,
    facts: list[dict[str, object]],
    selection: Selection,
    peer: str,
    limit: int,
    together: bool,
    runs: bool,
) -> None:
    topic, base = await log.topic(f"group:{next(names)}"), (await log.look_around()).last
    made: list[Draft] = [draft(f"{n}", **fact) for n, fact in enumerate(facts)]  # type: ignore[arg-type]
    for part in [made] if together else [[one] for one in made]:
        await log.append(topic, part)
    wanted = Selection(
        selection.selector, selection.relay, frozenset(base + at for at in selection.positions), selection.without
    ).wanted_by(peer)
    wanted = replace(wanted, runs=runs)
    text, exceptions, matched = "", [], 0
    after, full = base, True
    while full:
        page = await read(log, topic, after, wanted, limit=limit)
        assert page.count == text_of(page).count("\n")
        assert page.count + len(page.exceptions) <= limit
        assert (page.oldest > 0) == (page.count > 0)
        text += text_of(page)
        exceptions += page.exceptions
        matched += page.count
        after, full = page.upto, page.full
    records = list((await read_records(log, topic, base)).items)
    assert (text, exceptions) == expected(records, selection, peer, base)
    assert after == base + len(facts)


async def test_runs_are_what_is_stored_where_they_are_long_enough(log: EventLog) -> None:
    topic = await log.topic("group:g")
    for first in range(0, 30, 10):
        await log.append(topic, [draft(f"{n}") for n in range(first, first + 10)])
    taking = replace(ALL, runs=True)
    page = await read(log, topic, 4, taking)
    assert page.form == RUNS_TYPE
    [run] = read_runs(page.body)
    assert (run.position, run.last, run.path) == (5, 30, ""), "three blocks, but one run"
    as_lines = await read(log, topic, 4, ALL)
    assert (as_lines.form, as_lines.count) == (BATCH_TYPE, 26)
    assert encode_lines(split_runs(page.body)).encode() == as_lines.body
    for few in (await read(log, topic, 4, taking, limit=3), await read(log, topic, 30, taking)):
        assert few.form == BATCH_TYPE, "a run of few is not worth its head"


async def test_it_tells_of_gaps_and_of_how_far_it_looked_as_a_page_does(log: EventLog) -> None:
    topic, other = await log.topic("group:g"), await log.topic("group:h")
    await log.append(topic, [draft(f"{n}") for n in range(5)])
    await log.append(other, [draft("x")])
    await log.database.write(evict, topic, EvictionLimits(max_records=2), now=NOW)
    for after, until, limit in (
        (0, None, 9),
        (4, None, 1),
        (5, None, 9),
        (0, 4, 9),
        (0, 2, 9),
        (6, None, 9),
        (9, 3, 9),
    ):
        page = await read_records(log, topic, after, until=until, limit=limit)
        lines = await read(log, topic, after, ALL, until=until, limit=limit)
        assert (lines.gaps, lines.upto, lines.full, lines.head, lines.lost_position) == (
            page.gaps, page.upto, page.full, page.head, page.lost_position,
        )  # fmt: skip
        assert lines.count == len(page.items)
    assert (await read(log, topic, 0, ALL)).gaps == [Gap(topic, 0, 3, 3)]


async def test_the_budget_is_of_what_is_wanted(log: EventLog) -> None:
    """Small records that are not wanted lie before large ones that are: the page must not become as many large ones."""
    topic = await log.topic("group:g")
    await log.append(topic, [draft(f"small{n}", type="small") for n in range(50)])
    await log.append(topic, [draft(f"large{n}", type="large", payload={"k": "x" * 10_000}) for n in range(50)])
    met: list[int] = []
    after, full = 0, True
    while full:
        page = await read(log, topic, after, only("large"), limit=50, max_bytes=30_000)
        assert len(page.body) < 31_000
        met.append(page.count)
        after, full = page.upto, page.full
    assert met == [2] * 25


async def test_a_record_larger_than_the_budget_goes_alone(log: EventLog) -> None:
    topic = await log.topic("group:g")
    await log.append(topic, [draft("a"), draft("huge", payload={"k": "x" * 100_000}), draft("c")])
    pages = []
    after, full = 0, True
    while full:
        page = await read(log, topic, after, ALL, max_bytes=1000)
        pages.append(page.count)
        after, full = page.upto, page.full
    assert pages == [1, 1, 1]


async def test_the_order_is_that_of_the_positions(log: EventLog) -> None:
    topic = await log.topic("group:g")
    for start in range(0, 3000, 1000):
        await log.append(topic, [draft(f"{n}", type="even" if n % 2 else "odd") for n in range(start, start + 1000)])
    page = await read(log, topic, 0, only("even"), limit=5000, max_bytes=1 << 30)
    positions = [int(line.split("\t")[0]) for line in page.body.decode().splitlines()]
    assert positions == list(range(2, 3001, 2))
