"""For any log in any division into blocks, every reader finds the same records as a scan of each record."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eventd.log.core import blocks, listing, matching_page, scan, wire_page
from eventd.log.core.eventlog import EventLog
from eventd.log.core.listing import EventQuery, list_latest
from eventd.log.core.matching_page import read_matching
from eventd.log.core.scan import read_at
from eventd.log.core.topic_row import read_group_topics
from eventd.log.core.values import Draft, Outcome, Record
from eventd.log.core.wire_page import PeerFilter, read_wire_page
from eventd.log.cursors.cursors import create_cursor
from eventd.log.delivery import backlog
from eventd.log.delivery.backlog import Backlog, read_backlog, read_backlogs, read_stale, survey
from eventd.log.delivery.repairs import numbered_between, recorded_between
from eventd.log.delivery.selection import Selection
from eventd.log.retention import evict as retention
from eventd.log.retention.evict import EvictionLimits, evict
from eventd.store.engine.statements import execute
from eventd.testing import NOW, ManualClock, draft
from federation.event import decode_canonical, is_alive, micros
from federation.lines import size_of
from federation.loops import encode_path
from federation.selector import Selector
from tests.support.reading import AnyRecord
from tests.support.stored import read_stored

SIZES: Sequence[tuple[Any, str, Sequence[int]]] = (
    (blocks, "BLOCK_RECORDS", (1, 2, 3, 7, 1000)),
    (blocks, "BLOCK_BYTES", (1, 500, 1500, 256 << 10, 256 << 10)),
    (blocks, "MOST_NAMES", (1, 2, 16, 16)),
    (scan, "FIRST_BLOCKS", (1, 2)),
    (scan, "BLOCKS_PER_READ", (1, 2, 3, 256)),
    (scan, "BYTES_PER_READ", (1, 900, 1 << 20)),
    (scan, "POSITIONS_PER_STATEMENT", (1, 2, 250)),
    (listing, "LOOKED_AT", (1, 4, 20, 5000)),
    (listing, "PASSED_OVER", (1, 3)),
    (matching_page, "LOOKED_AT", (1, 4, 20, 5000)),
    (matching_page, "PASSED_OVER", (1, 3)),
    (wire_page, "LOOKED_AT", (1, 4, 20, 5000)),
    (wire_page, "PASSED_OVER", (1, 3)),
    (retention, "CHUNK_BYTES", (1, 900, 16 << 20)),
)
NODES = ("a", "b", "c", "ü,d")
TYPES = ("up", "down", "link.flap")
SUBJECTS = ("", "if", "if/0", 'i"f', "ü/1")
names = count(1)


@dataclass
class Model:
    """A topic as a list of records, and what became of every id."""

    topic: int
    records: list[Record] = field(default_factory=list)
    latest: dict[str, Record] = field(default_factory=dict)
    firsts: dict[str, int] = field(default_factory=dict)
    evicted: int = 0

    @property
    def held(self) -> list[Record]:
        return self.records[self.evicted :]

    def take(self, said: Draft, position: int, now: int) -> tuple[Outcome, int]:
        """What becomes of a draft that would be placed there."""
        known = self.latest.get(said.event_id)
        event = decode_canonical(said.body)
        if known is not None:
            before = decode_canonical(known.body)
            times = {"observed_at": event.observed_at, "expires_at": event.expires_at}
            if {**_fields(before), **times} != _fields(event):
                return Outcome.CONFLICT, known.position
            if known.expires_at is None or (said.expires_at is not None and said.expires_at <= known.expires_at):
                return Outcome.DUPLICATE, known.position
        record = Record(
            position,
            self.topic,
            len(self.records) + 1,
            said.node,
            said.tag,
            event.subject,
            said.event_id,
            micros(event.observed_at),
            said.expires_at,
            now,
            said.path,
            size_of(said.body),
            said.body,
        )
        self.records.append(record)
        self.latest[said.event_id] = record
        self.firsts.setdefault(said.event_id, position)
        return (Outcome.NEW if known is None else Outcome.REFRESH), position


def _fields(event: Any) -> dict[str, Any]:
    return {name: getattr(event, name) for name in event.__struct_fields__}


Kind = tuple[Sequence[str], Sequence[str], Sequence[int | None]]
"""Nodes, encoded paths and expiries that occur together: mostly few, so that a block can tell them."""


def some_kind(dice: random.Random) -> Kind:
    paths = [encode_path(tuple(dice.sample(NODES[1:], dice.choice([0, 0, 1, 2])))) for _ in range(dice.choice([1, 3]))]
    lives = [None, None, NOW - 1, NOW, NOW + 1, NOW + 500_000, NOW + 10**7]
    return dice.sample(NODES, dice.choice([1, 3])), paths, dice.sample(lives, dice.choice([1, 1, 3]))


def some_draft(dice: random.Random, model: Model, kind: Kind) -> Draft:
    """Return mostly a new event; else an old one again, with another lifetime, or another event under its id."""
    nodes, paths, lives = kind
    expires = dice.choice(lives)
    again = model.latest and dice.random() < 0.3
    if again:
        known = dice.choice([*model.latest.values()])
        event = decode_canonical(known.body)
        if dice.random() < 0.9:
            return draft(
                known.event_id,
                node=known.node,
                type=known.tag,
                subject=known.subject,
                payload=event.payload,
                observed=NOW + dice.choice([0, 1]),
                expires=expires,
                path=known.path,
            )
        return draft(known.event_id, subject="another")
    return draft(
        f"e{len(model.firsts)}",
        node=dice.choice(nodes),
        type=dice.choice(TYPES),
        subject=dice.choice(SUBJECTS),
        payload={"k": dice.choice("xü") * dice.choice([1, 1, 300])},
        expires=expires,
        path=dice.choice(paths),
    )


async def publish(log: EventLog, model: Model, dice: random.Random) -> None:
    """A few units in one transaction; what became of each draft is as the model says."""
    units: list[list[Draft]] = []
    expected: list[list[tuple[Outcome, int]]] = []
    position, now = (await log.look_around()).next_position, log.clock.now()
    for _ in range(dice.randint(1, 3)):
        unit: list[Draft] = []
        kind = some_kind(dice)
        expected.append(fates := [])
        for _ in range(dice.randint(1, 6)):
            unit.append(some_draft(dice, model, kind))
            fates.append(model.take(unit[-1], position, now))
            position += fates[-1][0] in (Outcome.NEW, Outcome.REFRESH)
        units.append(unit)
    done = await asyncio.gather(*(log.append(model.topic, unit) for unit in units))
    assert [[*zip(each.outcomes, each.positions, strict=True)] for each in done] == expected


async def prune(log: EventLog, model: Model, dice: random.Random, passed: int | None) -> None:
    """Retention to its end; the model says where that is."""
    now = log.clock.now()
    limits = EvictionLimits(
        dice.choice([None, 0, 1, 5, 20]), dice.choice([None, 0, 1_000_000]), keep_undelivered=dice.random() < 0.5
    )
    end = 0 if limits.max_records is None else len(model.records) - limits.max_records
    if limits.max_age is not None:
        kept = [record.seq for record in model.held if record.recorded_at >= now - limits.max_age]
        end = max(end, kept[0] - 1 if kept else len(model.records))
    waits = [r for r in model.held if not r.path and is_alive(r.expires_at, now) and r.position > (passed or 0)]
    if limits.keep_undelivered and passed is not None and waits:
        end = min(end, waits[0].seq - 1)
    step = await log.database.write(evict, model.topic, limits, now=now, chunk=dice.choice([1, 3, 1000]))
    while step.more:
        assert step.records > 0
        step = await log.database.write(evict, model.topic, limits, now=now, chunk=dice.choice([1, 3, 1000]))
    lost = [record.position for record in waits if model.evicted < record.seq <= end]
    model.evicted = max(end, model.evicted)
    assert step.upto_seq == model.evicted
    [topic] = [topic for topic in await log.database.read(read_group_topics) if topic.id == model.topic]
    assert (topic.evicted_seq, topic.next_seq) == (model.evicted, len(model.records) + 1)
    assert topic.bytes == sum(record.size for record in model.held)
    assert topic.ids == len({record.event_id for record in model.held})
    if lost and passed is not None:
        assert topic.lost_position == lost[-1]


def some_wanted(dice: random.Random, model: Model) -> PeerFilter:
    def selector() -> Selector:
        return Selector.of(
            types=dice.choice([(), (), (), ("up",), ("up", "down"), ("none",), TYPES, ("link.*",), ("*",)]),
            subject_prefixes=dice.choice([(), (), (), (), ("if",), ('i"', "ü"), ("none",)]),
            sources=dice.choice([(), (), (), (), ("a", "b")]),
        )

    places = [record.position for record in model.records]
    picked = frozenset(dice.sample(places, min(len(places), 4))) if dice.random() < 0.2 else frozenset()
    without = Selection(selector(), dice.random() < 0.5) if dice.random() < 0.2 else None
    return Selection(selector(), dice.random() < 0.5, picked, without).wanted_by(dice.choice(NODES[1:]))


def between(model: Model, after: int, until: int) -> list[Record]:
    return [record for record in model.held if after < record.position <= until]


async def check_lines(log: EventLog, model: Model, dice: random.Random, wanted: PeerFilter, after: int) -> None:
    head, now = (await log.look_around()).last, NOW + dice.choice([-1, 0, 1, 2])
    until = dice.choice([None, dice.randint(max(0, after - 2), head)])
    limit, most = dice.choice([1, 2, 5, 50]), dice.choice([1, 700, 1 << 20])
    end = head if until is None else until
    meant = [record for record in between(model, after, end) if wanted.selection.matches(record)]
    text, at, full = "", after, True
    exceptions: list[tuple[int, str]] = []
    while full:
        page = await log.database.read(
            read_wire_page, model.topic, at, wanted, limit=limit, max_bytes=most, until=until, now=now
        )
        found = page.count + len(page.exceptions)
        assert found <= limit
        assert found <= 1 or sum(r.size for r in meant if at < r.position <= page.upto) <= most
        assert page.upto > at or not page.full
        text, exceptions = text + page.body.decode(), [*exceptions, *page.exceptions]
        at, full = page.upto, page.full
    assert at == max(end, after)
    assert exceptions == [(r.position, wanted.hindrance(r, now)) for r in meant if wanted.hindrance(r, now)]
    assert text == "".join(f"{r.position}\t{r.path}\t{r.body}\n" for r in meant if not wanted.hindrance(r, now))


async def check_pages(log: EventLog, model: Model, dice: random.Random, after: int) -> None:
    own, limit, most = dice.random() < 0.5, dice.choice([1, 2, 5, 50]), dice.choice([1, 700, 1 << 20])
    head = (await log.look_around()).last
    until = dice.choice([None, dice.randint(max(0, after - 2), head)])
    found: list[Record] = []
    at, full = after, True
    while full:
        page = await log.database.read(
            read_matching, model.topic, at, AnyRecord(own), limit=limit, max_bytes=most, until=until
        )
        assert len(page.items) <= limit
        assert sum(record.size for record in page.items[:-1]) < most
        assert page.upto > at or not page.full
        found += page.items
        at, full = page.upto, page.full
    end = head if until is None else until
    assert at == max(end, after)
    assert found == [record for record in between(model, after, end) if not (own and record.path)]


async def check_listing(log: EventLog, model: Model, dice: random.Random, after: int) -> None:
    ask = EventQuery(
        model.topic,
        now=dice.choice([None, NOW, NOW + 1]),
        event_id=dice.choice(["", "", "", *model.latest]),
        types=dice.choice([(), (), ("up",), ("none", "link.flap")]),
        subject_prefix=dice.choice(["", "", "if", 'i"', "ü", "none"]),
        source=dice.choice(["", "", "a", "ü,d", "none"]),
        since=dice.choice([None, NOW + 1]),
        after=after,
        before=dice.choice([None, after + 10]),
        newest=dice.random() < 0.5,
        limit=dice.choice([1, 3, 50]),
        max_bytes=dice.choice([1, 900, 8 << 20]),
    )
    latest = [record for record in model.held if model.latest[record.event_id] is record and ask.fits(record)]
    expected = [r for r in latest if r.position > after and (ask.before is None or r.position < ask.before)]
    found: list[Record] = []
    more = True
    while more:
        page = await log.database.read(list_latest, ask)
        assert len(page.records) <= ask.limit
        assert len(page.records) <= 1 or sum(record.size for record in page.records) <= ask.max_bytes
        found += page.records
        further = replace(ask, before=page.seen) if ask.newest else replace(ask, after=page.seen)
        more = page.more
        assert further != ask or not more
        ask = further
    assert found == (expected[::-1] if ask.newest else expected)


async def check_counts(log: EventLog, model: Model, dice: random.Random, wanted: PeerFilter, after: int) -> None:
    now = NOW + dice.choice([-1, 0, 1, 2])
    head = (await log.look_around()).last
    ahead = between(model, after, head)
    waiting = [record for record in ahead if wanted.waits(record, now)]
    lag = await log.database.read(read_backlog, model.topic, wanted, after=after, now=now)
    assert (lag.events, lag.exact) == (len(waiting), True)
    assert lag.oldest == min((record.recorded_at for record in waiting), default=None)
    if expiries := [record.expires_at for record in waiting if record.expires_at is not None]:
        assert lag.expires_first is not None
        assert now <= lag.expires_first <= min(expiries)
    asked = [(wanted, after), *((some_wanted(dice, model), dice.randint(0, head)) for _ in range(3))]
    singly = [await log.database.read(read_backlog, model.topic, peer, after=place, now=now) for peer, place in asked]
    together = await log.database.read(read_backlogs, model.topic, asked, now=now)
    assert together == singly
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backlog, "COUNTED", dice.choice([1, 5]))
        bounded = await log.database.read(read_backlogs, model.topic, asked, now=now)
        alone = await log.database.read(read_backlog, model.topic, wanted, after=after, now=now)
    assert bounded[0].exact or not alone.exact, "other cursors do not lower the bound"
    for (peer, place), about, exact in zip(asked, bounded, singly, strict=True):
        own = [record for record in between(model, place, head) if not (peer.own and record.path)]
        assert about == exact or not about.exact
        assert exact.events <= about.events <= len(own)
        assert exact.oldest is None or (about.oldest is not None and about.oldest <= exact.oldest)
    left_out = {record.position for record in waiting[1::2]}
    rest = await log.database.read(read_backlog, model.topic, wanted, after=after, now=now, but=left_out)
    assert (rest.events, rest.exact) == (len(waiting) - len(left_out), True)
    assert rest.oldest == lag.oldest
    stale = [r for r in waiting if model.latest[r.event_id] is r and model.firsts[r.event_id] <= after]
    assert len(await log.database.read(read_stale, model.topic, wanted, after=after, now=now)) == len(stale)
    upto = dice.randint(after, head + 1)
    seen = between(model, after, upto)
    waiting = [record for record in seen if wanted.waits(record, now)]
    late = [r for r in seen if wanted.selection.matches(r) and wanted.hindrance(r, now) == "expired"]
    times = [record.recorded_at for record in waiting]
    found = Backlog(after)
    while found.upto < upto:
        step = await log.database.read(survey, model.topic, wanted, after=found.upto, upto=upto, now=now)
        assert step.upto > found.upto
        found.add(step)
    assert found == Backlog(
        upto,
        events=len(waiting),
        bytes=sum(record.size for record in waiting),
        oldest=min(times, default=None),
        newest=max(times, default=None),
        expires_first=found.expires_first,
        expired=len(late),
        others=len(seen) - len(waiting) - len(late),
    )


async def check_places(log: EventLog, model: Model, dice: random.Random) -> None:
    assert await log.database.read(read_stored, model.topic) == model.held
    places = [dice.randint(0, model.records[-1].position + 2) for _ in range(6)] if model.records else []
    held = {record.position: record for record in model.held}
    found = [record for record in await log.database.read(read_at, places) if record.topic_id == model.topic]
    assert found == [held[at] for at in sorted({*places}) if at in held]
    first, last = sorted([dice.randint(1, len(model.records) + 2), dice.randint(1, len(model.records) + 2)])
    numbered = [record.position for record in model.held if first <= record.seq <= last]
    after, upto = await log.database.read(numbered_between, model.topic, first, last)
    assert [record.position for record in between(model, after, upto)] == numbered
    since, until = sorted([NOW + dice.randint(-1, 5) * 400_000 for _ in range(2)])
    after, upto = await log.database.read(recorded_between, model.topic, since, until)
    assert [*between(model, after, upto)] == [r for r in model.held if since <= r.recorded_at <= until]


@settings(max_examples=settings.default.max_examples // 2, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 1 << 32))
async def test_every_reader_finds_what_a_look_at_each_record_finds(
    log: EventLog, clock: ManualClock, seed: int
) -> None:
    dice = random.Random(seed)
    clock.set_wall(NOW)
    models = [Model(await log.topic(f"group:{next(names)}")) for _ in range(2)]
    cursor = f"peer:{models[0].topic}"
    passed: int | None = None
    with pytest.MonkeyPatch.context() as patch:
        for module, name, values in SIZES:
            patch.setattr(module, name, dice.choice(values))
        for _ in range(dice.randint(2, 9)):
            clock.advance(dice.choice([0, 0.4]))
            await publish(log, dice.choice([models[0], models[0], models[1]]), dice)
            head = (await log.look_around()).last
            if dice.random() < 0.2:
                if passed is None:
                    await log.database.write(
                        create_cursor, cursor, kind="peer", topic_id=models[0].topic, position=0, now=NOW
                    )
                passed = max(0, head - dice.randint(0, 20))
                await log.database.write(execute, "UPDATE cursors SET position = ? WHERE name = ?", (passed, cursor))
            if dice.random() < 0.3:
                await prune(log, models[0], dice, passed)
        for model in models:
            await check_places(log, model, dice)
            for _ in range(5):
                after = max(0, head - dice.randint(0, 30))
                wanted = some_wanted(dice, model)
                await check_lines(log, model, dice, wanted, after)
                await check_pages(log, model, dice, after)
                await check_listing(log, model, dice, after)
                await check_counts(log, model, dice, wanted, after)


async def test_a_long_backlog_is_counted_by_its_types(log: EventLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backlog, "COUNTED", 3)
    topic = await log.topic("group:g")
    for n in range(20):
        await log.append(topic, [draft(f"{n}", type="odd" if n % 2 else "even", subject=f"s/{n}")])
        await log.append(topic, [draft(f"other{n}", type="odd", path="c")])
    for relay, types, prefixes, expected in (
        (False, (), (), 20),
        (True, (), (), 40),
        (False, ("odd",), (), 10),
        (True, ("odd",), (), 30),
        (True, ("none",), (), 0),
        (True, ("*",), (), 40),
        (True, ("odd.*",), (), 0),
        (False, ("even",), ("s/0",), 9),  # of the first three one, and what may follow
    ):
        wanted = Selection(Selector.of(types=types, subject_prefixes=prefixes), relay).wanted_by("b")
        lag = await log.database.read(read_backlog, topic, wanted, after=0, now=NOW)
        assert (lag.events, lag.oldest, lag.exact) == (expected, NOW if expected else None, False)


async def test_positions_that_are_left_out_of_a_long_backlog_are_left_out_once(
    log: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backlog, "COUNTED", 3)
    topic = await log.topic("group:g")
    for n in range(20):
        await log.append(topic, [draft(f"{n}")])
    wanted = Selection().wanted_by("b")
    for left_out in ((1, 2), (2, 19), (18, 20)):
        lag = await log.database.read(read_backlog, topic, wanted, after=0, now=NOW, but=left_out)
        assert (lag.events, lag.exact) == (18, False), left_out


async def test_what_beginning_to_relay_adds_to_a_long_backlog_is_counted(
    log: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backlog, "COUNTED", 1)
    topic = await log.topic("group:g")
    for n in range(5):
        await log.append(topic, [draft(f"{n}")])
        await log.append(topic, [draft(f"other{n}", path="c")])
    wanted = Selection(relay=True, without=Selection()).wanted_by("b")
    assert (await log.database.read(read_backlog, topic, wanted, after=0, now=NOW)).events == 5
