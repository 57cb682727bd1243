"""An id that was seen before is a duplicate, a refresh or a conflict; and how long ids are remembered."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from itertools import count
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eventd.log.core.eventlog import EventLog
from eventd.log.core.listing import EventQuery, list_latest
from eventd.log.core.topic_row import TopicRow, read_topic
from eventd.log.core.values import Draft, Outcome
from eventd.log.retention.evict import EvictionLimits, RowRetention, delete_old_rows, evict
from eventd.runtime.clock import SECOND
from eventd.store.engine.database import Database
from eventd.store.engine.statements import fetch
from eventd.testing import NOW, ManualClock, draft
from federation.event import content_of
from tests.support.reading import read_records
from tests.support.stored import read_stored

NEW, REFRESH, DUPLICATE, CONFLICT = Outcome
HOUR = 3600 * SECOND
KEPT_IDS = 24 * HOUR
BOOKS = RowRetention(ids=KEPT_IDS, batches=HOUR, dead_letters=HOUR, receipts=HOUR)


async def fates(log: EventLog, topic: int, *drafts: Draft) -> list[tuple[Outcome, int]]:
    appended = await log.append(topic, drafts)
    return list(zip(appended.outcomes, appended.positions, strict=True))


async def evict_all(database: Database, topic: int, now: int = NOW) -> None:
    await database.write(evict, topic, EvictionLimits(max_records=0, keep_undelivered=False), now=now)


async def test_the_same_fact_again_is_a_duplicate_of_its_latest_record(log: EventLog) -> None:
    topic = await log.topic("group:g")
    await fates(log, topic, draft("a", expires=NOW + 1), draft("b"))
    assert await fates(log, topic, draft("a", expires=NOW + 2)) == [(REFRESH, 3)]
    assert await fates(log, topic, draft("a", expires=NOW + 2), draft("b")) == [(DUPLICATE, 3), (DUPLICATE, 2)]


async def test_an_id_is_kept_as_it_is_among_many(log: EventLog) -> None:
    odd = ["a\\b", "\\N", "\\.", "a\tb", "a\nb", "a\rb", 'a"b', "a'b", "é\U0001f600", "[1]", "null", "plain"]
    topic = await log.topic("group:g")
    drafts = [draft(each) for each in (*odd, *(f"evt-{number}" for number in range(40)))]
    assert await fates(log, topic, *drafts) == [(NEW, position) for position in range(1, 53)]
    assert await fates(log, topic, *drafts) == [(DUPLICATE, position) for position in range(1, 53)]
    rows = await log.database.read(fetch, "SELECT event_id FROM event_ids WHERE position <= 12 ORDER BY position")
    assert [each for (each,) in rows] == odd


async def test_only_a_later_expiry_is_a_refresh_and_none_is_later_than_any(log: EventLog) -> None:
    for first, second, outcome in (
        (NOW, NOW + 1, REFRESH),
        (NOW, None, REFRESH),
        (NOW, NOW, DUPLICATE),
        (NOW, NOW - 1, DUPLICATE),
        (None, None, DUPLICATE),
        (None, NOW, DUPLICATE),
    ):
        topic = await log.topic(f"group:{first}-{second}")
        ((_, at),) = await fates(log, topic, draft("a", expires=first))
        assert await fates(log, topic, draft("a", expires=second)) == [(outcome, at + (outcome is REFRESH))]
        [latest] = (await log.database.read(list_latest, EventQuery(topic_id=topic))).records
        assert latest.expires_at == (second if outcome is REFRESH else first)


async def test_a_refresh_is_a_record_of_its_own_and_the_listing_shows_only_it(log: EventLog) -> None:
    topic = await log.topic("group:g")
    await fates(log, topic, draft("a", expires=NOW), draft("b"), draft("a", expires=NOW + 5))
    records = (await read_records(log, topic, 0)).items
    assert [(r.event_id, r.seq, r.expires_at) for r in records] == [("a", 1, NOW), ("b", 2, None), ("a", 3, NOW + 5)]
    listed = (await log.database.read(list_latest, EventQuery(topic_id=topic))).records
    assert [(r.event_id, r.position) for r in listed] == [("b", 2), ("a", 3)]


async def test_the_time_of_observation_is_not_content(log: EventLog) -> None:
    topic = await log.topic("group:g")
    await fates(log, topic, draft("a", observed=NOW))
    assert await fates(log, topic, draft("a", observed=NOW + 7)) == [(DUPLICATE, 1)]


async def test_an_id_with_another_content_or_source_is_a_conflict_without_effect(log: EventLog) -> None:
    topic = await log.topic("group:g")
    await fates(log, topic, draft("a", expires=NOW))
    for other in (
        draft("a", payload={"k": "2"}),
        draft("a", type="u"),
        draft("a", subject="s"),
        draft("a", node="b", expires=NOW),
        draft("a", node="b", expires=None),
    ):
        assert await fates(log, topic, other) == [(CONFLICT, 1)], other
    assert [r.body for r in (await read_records(log, topic, 0)).items] == [draft("a", expires=NOW).body]
    assert await fates(log, topic, draft("a", expires=NOW + 1)) == [(REFRESH, 2)], "the first owner is not disturbed"


async def test_repeats_within_one_unit_are_judged_in_order(log: EventLog) -> None:
    topic = await log.topic("group:g")
    assert await fates(
        log,
        topic,
        draft("a", expires=NOW),
        draft("a", expires=NOW),
        draft("b"),
        draft("a", expires=NOW + 1),
        draft("a", node="b"),
        draft("a"),
        draft("a", expires=NOW + 9),
    ) == [(NEW, 1), (DUPLICATE, 1), (NEW, 2), (REFRESH, 3), (CONFLICT, 3), (REFRESH, 4), (DUPLICATE, 4)]


async def test_repeats_across_units_of_one_transaction_are_judged_in_order(log: EventLog) -> None:
    topic = await log.topic("group:g")
    units = await asyncio.gather(
        fates(log, topic, draft("a", expires=NOW), draft("b")),
        fates(log, topic, draft("c"), draft("a", expires=NOW)),
        fates(log, topic, draft("a", expires=NOW + 1)),
        fates(log, topic, draft("a", payload={"k": "v"}), draft("d")),
    )
    assert units == [
        [(NEW, 1), (NEW, 2)],
        [(NEW, 3), (DUPLICATE, 1)],
        [(REFRESH, 4)],
        [(CONFLICT, 4), (NEW, 5)],
    ]


async def test_an_id_outlives_its_record(log: EventLog, database: Database) -> None:
    topic = await log.topic("group:g")
    await fates(log, topic, draft("a", expires=NOW), draft("b"), draft("c"))
    await evict_all(database, topic)
    assert await fates(log, topic, draft("a", expires=NOW), draft("b", node="b")) == [(DUPLICATE, 1), (CONFLICT, 2)]
    assert (await read_records(log, topic, 3)).items == []
    assert await fates(log, topic, draft("a", expires=NOW + 1)) == [(REFRESH, 4)]
    books = await database.read(read_topic, "group:g")
    assert (books.ids, books.bytes) == (1, len(draft("a", expires=NOW + 1).body))
    assert [r.position for r in (await database.read(list_latest, EventQuery(topic_id=topic))).records] == [4]


async def test_an_id_that_came_back_is_not_forgotten_with_those_that_did_not(log: EventLog, database: Database) -> None:
    topic = await log.topic("group:g")
    await fates(log, topic, draft("a", expires=NOW), draft("b"))
    await evict_all(database, topic)
    await fates(log, topic, draft("a"))
    await database.write(delete_old_rows, BOOKS, now=NOW + KEPT_IDS + 1)
    assert await fates(log, topic, draft("a"), draft("b")) == [(DUPLICATE, 3), (NEW, 4)]


@pytest.mark.parametrize(("later", "outcome"), [(KEPT_IDS, DUPLICATE), (KEPT_IDS + 1, NEW)])
async def test_an_id_is_new_again_once_it_was_forgotten(
    log: EventLog, database: Database, later: int, outcome: Outcome
) -> None:
    topic = await log.topic("group:g")
    await fates(log, topic, draft("a"))
    await evict_all(database, topic)
    await database.write(delete_old_rows, BOOKS, now=NOW + later)
    assert await fates(log, topic, draft("a")) == [(outcome, 2 if outcome is NEW else 1)]


async def test_the_id_of_an_evicted_record_stays_with_its_refresh(log: EventLog, database: Database) -> None:
    """The older record goes, the refresh is still there: the id is not gone."""
    topic = await log.topic("group:g")
    await fates(log, topic, draft("a", expires=NOW), draft("a", expires=NOW + 1))
    await database.write(evict, topic, EvictionLimits(max_records=1), now=NOW)
    assert await database.read(fetch, "SELECT gone_at FROM event_ids") == [(None,)]
    assert (await database.read(read_topic, "group:g")).ids == 1


# --- known ids against a model ------------------------------------------------------------------------------------

drafts = st.builds(
    lambda event_id, node, payload, expires: draft(
        event_id, node=node, payload=payload, expires=None if expires is None else NOW + expires * HOUR
    ),
    st.sampled_from("abcd"),
    st.sampled_from("xy"),
    st.sampled_from([{}, {"k": "ü"}]),
    st.sampled_from([1, 2, 3, None]),
)
units = st.lists(drafts, min_size=1, max_size=4)


class AppendUnits(NamedTuple):
    units: list[list[Draft]]


class Evict(NamedTuple):
    keep: int


class Forget(NamedTuple):
    hours: int


steps = st.lists(
    st.one_of(
        st.builds(AppendUnits, st.lists(units, min_size=1, max_size=3)),
        st.builds(Evict, st.integers(0, 6)),
        st.builds(Forget, st.integers(1, 30)),
    ),
    max_size=8,
)


@dataclass(frozen=True)
class Known:
    node: str
    content: object
    expires: int | None
    gone_at: int | None


@dataclass
class Model:
    """What a topic should hold, in the plainest words."""

    known: dict[str, Known] = field(default_factory=dict)
    stored: list[tuple[int, Draft]] = field(default_factory=list)
    given: int = 0

    def judge(self, fact: Draft) -> Outcome:
        known = self.known.get(fact.event_id)
        if known is None:
            outcome = NEW
        elif (known.node, known.content) != (fact.node, content_of(fact.body)):
            return CONFLICT
        elif known.expires is not None and (fact.expires_at is None or fact.expires_at > known.expires):
            outcome = REFRESH
        else:
            return DUPLICATE
        self.given += 1
        self.stored.append((self.given, fact))
        self.known[fact.event_id] = Known(fact.node, content_of(fact.body), fact.expires_at, None)
        return outcome

    def evict(self, keep: int, now: int) -> None:
        cut = max(0, self.given - keep)
        self.stored = [(seq, fact) for seq, fact in self.stored if seq > cut]
        left = {fact.event_id for _, fact in self.stored}
        for event_id, known in self.known.items():
            if event_id not in left and known.gone_at is None:
                self.known[event_id] = replace(known, gone_at=now)

    def forget(self, now: int) -> None:
        self.known = {k: v for k, v in self.known.items() if v.gone_at is None or v.gone_at >= now - KEPT_IDS}


async def check(database: Database, name: str, model: Model) -> None:
    topic: TopicRow = await database.read(read_topic, name)
    records = await database.read(read_stored, topic.id)
    assert [(record.seq, record.event_id) for record in records] == [(seq, fact.event_id) for seq, fact in model.stored]
    assert topic.next_seq == model.given + 1
    assert topic.bytes == sum(record.size for record in records)
    assert topic.ids == len({record.event_id for record in records})
    ids = await database.read(fetch, "SELECT event_id, gone_at FROM event_ids WHERE topic_id = ?", (topic.id,))
    assert dict(ids) == {event_id: known.gone_at for event_id, known in model.known.items()}


names = count(1)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(script=steps)
async def test_the_books_equal_what_is_stored_after_any_history(
    database: Database, log: EventLog, clock: ManualClock, script: list[AppendUnits | Evict | Forget]
) -> None:
    model, name = Model(), f"group:{next(names)}"
    topic = await log.topic(name)
    for step in script:
        match step:
            case AppendUnits(several):
                appended = await asyncio.gather(*(log.append(topic, unit) for unit in several))
                assert [list(a.outcomes) for a in appended] == [[model.judge(d) for d in unit] for unit in several]
            case Evict(keep):
                limits = EvictionLimits(max_records=keep, keep_undelivered=False)
                await database.write(evict, topic, limits, now=clock.now())
                model.evict(keep, clock.now())
            case Forget(hours):
                clock.advance(hours * 3600)
                await database.write(delete_old_rows, BOOKS, now=clock.now())
                model.forget(clock.now())
        await check(database, name, model)
