"""Answers peers that ask what this node holds of their events.

A question for sums or ids may cover millions of records. It is processed in steps of a few milliseconds with pauses
between them, for about a second at most; the answer then says how far it got. Neither the loop nor deliveries wait.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from msgspec import UNSET

from eventd.ingress.returning import ReturnedPage
from eventd.log.core.eventlog import EventLog
from eventd.log.core.head import read_head
from eventd.log.delivery.digests import (
    STEP_RECORDS,
    RecordFilter,
    list_step,
    oldest_kept,
    read_fingerprinted,
    rest,
    sum_step,
)
from eventd.log.delivery.repairs import read_placed
from eventd.store.engine.database import Connection
from eventd.store.rows.links import StoredMark, read_last_gaps, read_mark
from federation.compare import (
    MOST_BUCKETS,
    MOST_LISTED,
    Ids,
    IdsQuery,
    KnownEvents,
    KnownQuery,
    ListedEvent,
    PathFilter,
    Question,
    RecordScope,
    Reply,
    ReportedGap,
    State,
    StateQuery,
    Sums,
    SumsQuery,
    encode_reply,
    read_question,
    show_fingerprint,
    show_sums,
)
from federation.errors import OtherHistory, TooManyQueries
from federation.event import from_micros
from federation.ranges import Mark
from federation.returned import EventsQuery, ReturnedEvents

PAGE_SECONDS = 1.0
"""Seconds for which a question is processed; the answer then covers the part that was reached."""
PARALLEL_QUESTIONS = 2
"""Maximum number of questions that are processed at the same time; each of them is from a different node."""
STEP_IDS = 250
"""Number of ids that are looked up in one step: a few milliseconds if their records lie near each other."""
MOST_GAPS = 100
"""How many of the latest gaps of a link are reported."""
MOST_TEXT = 1 << 20
"""Approximate limit of the characters of ids in one answer."""


class Questions:
    """Answers the questions of peers about one group's topic."""

    def __init__(self, topic_id: int, log: EventLog) -> None:
        self._topic_id = topic_id
        self._log = log
        self._at_work: set[str] = set()

    async def answer(self, node: str, body: bytes) -> bytes:
        """Return the encoded answer to a question of `node`. Raises `Malformed`, `OtherHistory`, `TooManyQueries`."""
        question = read_question(body)
        if node in self._at_work or len(self._at_work) >= PARALLEL_QUESTIONS:
            raise TooManyQueries("other queries are being answered: retry in a moment")
        self._at_work.add(node)
        try:
            return encode_reply(await self._reply(node, question))
        finally:
            self._at_work.discard(node)

    async def _reply(self, node: str, question: Question) -> Reply:
        read = self._log.database.read
        if isinstance(question, StateQuery):
            return await read(_state, self._topic_id, node, self._log.clock.now())
        if isinstance(question, KnownQuery):
            return await self._known(node, question)
        if isinstance(question, EventsQuery):
            return await self._events(node, question)
        await read(_require_history, question.history, question.upto)
        chosen = chosen_by(node, question.what)
        if isinstance(question, SumsQuery):
            return await self._sums(question, chosen)
        return await self._ids(question, chosen)

    async def _known(self, node: str, question: KnownQuery) -> KnownEvents:
        """Look up the ids in steps: each reads the records of its ids, which may lie in as many blocks."""
        clock, found = self._log.clock, KnownEvents()
        chosen = None if question.what is None else chosen_by(node, question.what)
        for start in range(0, len(question.ids), STEP_IDS):
            begun = clock.monotonic()
            found = await self._log.database.read(_look_up, self._topic_id, question, chosen, start, found)
            await rest(clock.sleep, clock.monotonic() - begun)
        return found

    async def _events(self, node: str, question: EventsQuery) -> ReturnedEvents:
        """Return events that `node` lost, as many as fit into an answer and can be read in time."""
        clock, page = self._log.clock, ReturnedPage(self._topic_id, node, question)
        end = clock.monotonic() + PAGE_SECONDS
        while not page.is_done:
            begun = clock.monotonic()
            await self._log.database.read(page.step)
            spent = clock.monotonic() - begun
            if begun + spent >= end:
                break
            await rest(clock.sleep, spent)
        return page.answer()

    async def _sums(self, question: SumsQuery, chosen: RecordFilter) -> Sums:
        totals: dict[int, int] = {}

        async def work(after: int) -> int:
            found = await self._log.database.read(
                sum_step, self._topic_id, after, question.upto, chosen, question.grain, totals
            )
            return found.upto

        upto = await self._run_steps(question, work, lambda: len(totals) > MOST_BUCKETS - STEP_RECORDS)
        return show_sums(totals, question.grain, upto)

    async def _ids(self, question: IdsQuery, chosen: RecordFilter) -> Ids:
        keys = frozenset(map(question.grain.key, question.buckets))
        events: list[ListedEvent] = []
        size = 0

        async def work(after: int) -> int:
            nonlocal size
            found = await self._log.database.read(
                list_step, self._topic_id, after, question.upto, chosen, question.grain, keys
            )
            events.extend(ListedEvent(held.event_id, show_fingerprint(held.fingerprint)) for held in found.held)
            size += sum(len(held.event_id) for held in found.held)
            return found.upto

        upto = await self._run_steps(
            question, work, lambda: len(events) > MOST_LISTED - STEP_RECORDS or size > MOST_TEXT
        )
        return Ids(tuple(events), upto)

    async def _run_steps(
        self, question: SumsQuery | IdsQuery, work: Callable[[int], Awaitable[int]], is_full: Callable[[], bool]
    ) -> int | None:
        """Process step after step until the question is answered, time is up, or the answer is full.

        Returns the position of this node's log that was reached; None if the whole question is answered.
        """
        clock, after = self._log.clock, question.after
        end = clock.monotonic() + PAGE_SECONDS
        while after < question.upto:
            begun = clock.monotonic()
            after = await work(after)
            spent = clock.monotonic() - begun
            if is_full() or begun + spent >= end:
                break
            await rest(clock.sleep, spent)
        return after if after < question.upto else None


def chosen_by(node: str, what: RecordScope) -> RecordFilter:
    """Return the filter that selects the records a node's question is about."""
    return RecordFilter(PathFilter(node, what.own).takes, what.selector, since=what.since)


def _state(conn: Connection, topic_id: int, node: str, now: int) -> State:
    head, mark = read_head(conn), read_mark(conn, topic_id, node)
    since = oldest_kept(conn, topic_id, now)
    gaps = read_last_gaps(conn, topic_id, node, MOST_GAPS)
    return State(
        history=head.epoch,
        upto=head.last,
        mark=None if mark is None else _mark(mark),
        since=None if since is None else from_micros(since),
        gaps=tuple(
            ReportedGap(
                epoch=gap.epoch,
                after=gap.after,
                upto=gap.upto,
                reason=gap.reason,
                recorded_at=from_micros(gap.recorded_at),
            )
            for gap in gaps
        ),
    )


def _mark(mark: StoredMark) -> Mark:
    return Mark(epoch=mark.epoch, incarnation=mark.incarnation, upto=mark.upto, base=mark.base)


def _look_up(
    conn: Connection, topic_id: int, question: KnownQuery, chosen: RecordFilter | None, start: int, before: KnownEvents
) -> KnownEvents:
    """Return `before` with the answer about the next `STEP_IDS` ids, from the index `start` on."""
    ids = question.ids[start : start + STEP_IDS]
    places = read_placed(conn, topic_id, ids)
    expected = question.fingerprints[start : start + STEP_IDS]
    stored = read_fingerprinted(conn, places.values(), chosen) if expected else {}
    unknown, gone, other = [*before.unknown], [*before.gone], [*before.other]
    by_another_path = [*(before.by_another_path or ())]
    for at, each in enumerate(ids):
        position = places.get(each)
        if position is None:
            (gone if each in places else unknown).append(start + at)
        elif (latest := stored.get(position)) is None:
            continue
        elif latest.fingerprint != expected[at]:
            other.append(start + at)
        elif not latest.is_selected:
            by_another_path.append(start + at)
    paths = UNSET if chosen is None else tuple(by_another_path)
    return KnownEvents(tuple(unknown), tuple(gone), tuple(other), paths)


def _require_history(conn: Connection, history: str, upto: int) -> None:
    head = read_head(conn)
    if head.epoch != history or upto > head.last:
        raise OtherHistory("the question's positions do not belong to the current epoch of the answering log")
