"""Digests of a topic's events of one source: sums and lists equal those computed from the single records."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Sequence

import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eventd.log.core.eventlog import EventLog
from eventd.log.core.values import Draft, Record
from eventd.log.cursors.steps import DeliveredBatch, insert_batch
from eventd.log.delivery.digests import (
    Exclusions,
    ListedRecord,
    RecordFilter,
    list_step,
    oldest_kept,
    read_exclusions,
    read_fingerprinted,
    sum_step,
    taken_before,
)
from eventd.log.retention.evict import EvictionLimits, evict
from eventd.store.engine.database import Connection
from eventd.testing import NOW, draft
from federation.compare import Grain, PathFilter, minute_of, places_of, show_fingerprint, total_of
from federation.digest import fingerprint
from federation.event import format_time
from federation.peers import SECOND
from federation.selector import Selector
from tests.support.reading import read_records

GRAIN = Grain(1, 4)
MINUTE = NOW // (60 * SECOND)
EVERYTHING = RecordFilter(lambda path: True, Selector())

drafts = st.builds(
    lambda node, path, type, subject, observed: {
        "node": node,
        "path": path,
        "type": type,
        "subject": subject,
        "observed": NOW + observed * SECOND,
    },
    st.sampled_from(["a", "b", "c"]),
    st.sampled_from(["", "a", "b", "a,b", "b,a"]),
    st.sampled_from(["up", "down"]),
    st.sampled_from(["", "s1", "t"]),
    st.integers(-200, 200),
)
chosens = st.builds(
    RecordFilter,
    st.sampled_from([PathFilter("a", True).takes, PathFilter("a", False).takes, lambda path: not path]),
    st.builds(
        lambda types, prefixes: Selector.of(types=types, subject_prefixes=prefixes),
        st.lists(st.sampled_from(["up", "none"]), max_size=1),
        st.lists(st.just("s"), max_size=1),
    ),
    not_source=st.sampled_from(["", "b"]),
    since=st.sampled_from([None, MINUTE]),
)


async def _append(log: EventLog, topic: int, batches: Sequence[Sequence[Draft]]) -> list[Record]:
    for some in batches:
        await log.append(topic, some)
    records: list[Record] = []
    after = 0
    while True:
        page = await read_records(log, topic, after, max_bytes=1 << 30)
        records += page.items
        if not page.full:
            return records
        after = page.upto


def _is_meant(record: Record, chosen: RecordFilter) -> bool:
    return chosen.takes(record) and (chosen.since is None or minute_of(record.body) >= chosen.since)


def _expected(records: Sequence[Record]) -> dict[int, int]:
    found: dict[int, list[int]] = {}
    for record in records:
        [key], _ = places_of([record.body], GRAIN)
        found.setdefault(key, []).append(fingerprint(record.body))
    return {key: total_of(prints) for key, prints in found.items()}


async def _sums(
    log: EventLog, topic: int, chosen: RecordFilter, after: int, until: int, left_out: Exclusions | None = None
) -> dict[int, int]:
    totals: dict[int, int] = {}
    at = after
    while at < until:
        found = await log.database.read(sum_step, topic, at, until, chosen, GRAIN, totals, left_out or Exclusions())
        assert at < found.upto <= until
        at = found.upto
    return totals


async def _list(log: EventLog, topic: int, chosen: RecordFilter, until: int, keys: set[int]) -> list[ListedRecord]:
    found: list[ListedRecord] = []
    at = number = 0
    while at < until:
        part = await log.database.read(list_step, topic, at, until, chosen, GRAIN, keys, number=number)
        found += part.held
        at, number = part.upto, part.number
    return found


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(drafts, min_size=1, max_size=6), min_size=1, max_size=5), chosens, st.data())
async def test_slices_hold_what_the_records_one_by_one_do(
    log: EventLog, batches: list[list[dict[str, str]]], chosen: RecordFilter, data: st.DataObject
) -> None:
    topic = await log.topic(f"group:{await log.database.read(_count_topics)}")
    base = (await log.database.read(_last)) or 0
    named = [
        [draft(f"{topic}-{at}-{number}", **one) for number, one in enumerate(some)]  # type: ignore[arg-type]
        for at, some in enumerate(batches)
    ]
    records = await _append(log, topic, named)
    skipped = data.draw(st.integers(0, len(records)))
    after, until = base + skipped, base + data.draw(st.integers(skipped, len(records)))
    meant = [r for r in records if after < r.position <= until and _is_meant(r, chosen)]
    assert await _sums(log, topic, chosen, after, until) == _expected(meant)
    keys = set(_expected(meant[::2]))
    listed = await _list(log, topic, chosen, base + len(records), keys)
    wanted = [r for r in records if _is_meant(r, chosen) and set(_expected([r])) <= keys]
    assert [(h.position, h.seq, h.event_id) for h in listed] == [(r.position, r.seq, r.event_id) for r in wanted]
    assert [h.fingerprint for h in listed] == [fingerprint(r.body) % 2**64 for r in wanted]


def _count_topics(conn: Connection) -> int:
    return int(conn.sqlalchemy.execute(sa.text("SELECT count(*) FROM topics")).scalar_one())


def _last(conn: Connection) -> int:
    return int(conn.sqlalchemy.execute(sa.text("SELECT next_position - 1 FROM log_heads")).scalar_one())


async def test_neighbours_are_told_by_their_numbers(log: EventLog) -> None:
    topic = await log.topic("group:g")
    records = await _append(log, topic, [[draft(f"e{n}", type="up" if n % 2 else "down")] for n in range(10)])
    chosen = RecordFilter(lambda path: True, Selector.of(types=["up"]))
    listed = await _list(log, topic, chosen, records[-1].position, set(_expected(records)))
    assert [(held.number, held.event_id) for held in listed] == [(n, f"e{2 * n + 1}") for n in range(5)]


async def test_what_was_left_out_is_in_no_sum_and_is_counted_by_its_reason(log: EventLog) -> None:
    topic = await log.topic("group:g")
    records = await _append(log, topic, [[draft(f"e{n}") for n in range(6)]])
    at = [record.position for record in records]
    await log.database.write(_batch, after=0, upto=at[3], exceptions=[(at[1], "expired"), (at[3], "refused")])
    await log.database.write(_batch, after=at[3], upto=at[5], exceptions=[(at[5], "expired")])
    left_out = await log.database.read(read_exclusions, "peer:g/b")
    totals: dict[int, int] = {}
    found = await log.database.read(sum_step, topic, 0, at[5], EVERYTHING, GRAIN, totals, left_out)
    assert totals == _expected([records[0], records[2], records[4]])
    assert (found.records, dict(found.left_out)) == (3, {"expired": 2, "refused": 1})


async def test_fingerprints_are_those_of_the_records_that_are_left(log: EventLog) -> None:
    topic = await log.topic("group:g")
    records = await _append(log, topic, [[draft("e1")], [draft("e2")]])
    printed = await log.database.read(read_fingerprinted, [records[1].position, None, 99])
    digits = show_fingerprint(fingerprint(records[1].body))
    assert {at: each.fingerprint for at, each in printed.items()} == {records[1].position: digits}


async def test_the_bodies_of_fingerprinted_records_are_not_in_memory_at_the_same_time(log: EventLog) -> None:
    topic = await log.topic("group:g")
    large = [[draft(f"e{n}", type="up" if n % 2 else "down", payload={"x": "y" * (1 << 19)})] for n in range(24)]
    records = await _append(log, topic, large)
    places, up = [record.position for record in records], RecordFilter(lambda path: True, Selector.of(types=["up"]))
    tracemalloc.start()
    try:
        found = await log.database.read(read_fingerprinted, places, up)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [found[place].is_selected for place in places] == [False, True] * 12
    assert peak < 8 << 20, "of 12 MiB of bodies"


async def test_the_oldest_record_is_told_once_retention_has_removed_some(log: EventLog) -> None:
    topic = await log.topic("group:g")
    read = log.database.read
    assert await read(oldest_kept, topic, 7) is None
    records = await _append(log, topic, [[draft("e1")], [draft("e2")]])
    assert await read(oldest_kept, topic, 7) is None
    await log.database.write(evict, topic, EvictionLimits(max_records=1), now=NOW)
    assert await read(oldest_kept, topic, 7) == records[1].recorded_at
    await log.database.write(evict, topic, EvictionLimits(max_records=0), now=NOW)
    assert await read(oldest_kept, topic, 7) == 7


async def test_what_a_peer_had_taken_before_a_moment_is_told_by_its_own_receipts(log: EventLog) -> None:
    for number, minute in ((1, 0), (2, 10), (3, 20)):
        await log.database.write(_batch, after=number - 1, upto=number, recorded=NOW + minute * 60 * SECOND)
    moment = NOW + 15 * 60 * SECOND
    assert await log.database.read(taken_before, "peer:g/b", moment, 10**12) == 2
    assert await log.database.read(taken_before, "peer:g/b", NOW, 10**12) == 0
    assert await log.database.read(taken_before, "peer:g/c", moment, 10**12) == 0


def _batch(
    conn: Connection,
    *,
    after: int,
    upto: int,
    exceptions: Sequence[tuple[int, str]] = (),
    recorded: int = NOW,
) -> None:
    receipt = {"accepted": 1, "duplicates": 0, "refused": [], "recordedAt": format_time(recorded), "upto": upto}
    insert_batch(
        conn,
        DeliveredBatch(
            cursor="peer:g/b",
            batch_id=f"b{upto}",
            epoch="e",
            incarnation=0,
            after=after,
            upto=upto,
            events=upto - after,
            bytes=0,
            selector_version=1,
            exceptions=exceptions,
            picked=(),
            attempts=1,
            sent_at=recorded,
            acked_at=recorded,
            status=200,
            protocol="v2",
            key_id="shared",
            receipt=json.dumps({"status": 200, "headers": {}, "body": json.dumps(receipt), "request": ":AAAA:"}),
        ),
    )
