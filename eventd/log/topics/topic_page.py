"""A page of a topic by seqs, for readers of topics: records as JSON texts, and a tombstone for missed records.

Records that have exceeded their time to live are left out, and reported as lost, even if they are still stored. Skipped
silently are deleted records, finished jobs, expired events and, with `dedupe_node`, what the reader's nodes wrote.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from eventd.log.core.blocks import Block, names
from eventd.log.core.head import read_head
from eventd.log.core.live_records import first_live
from eventd.log.core.losses import TTL, Loss, read_losses, reason_of
from eventd.log.core.pages import LOOKED_AT, PASSED_OVER
from eventd.log.core.records import View, content_size, encoded, node_text, render
from eventd.log.core.scan import scan_seqs
from eventd.log.core.tail import RecentBlocks
from eventd.log.core.topic_row import TopicRow, find_topic, find_topic_by_id
from eventd.log.core.values import Head
from eventd.log.topics.errors import TopicNotFound
from eventd.log.topics.limits import read_expired
from eventd.log.topics.projection import records_of_events, texts_of
from eventd.store.engine.database import Connection
from eventd.store.rows.leases import acked_seqs

RECREATED = "recreated"
"""The reason of a tombstone for seqs of another topic of this name, or of another epoch."""
_ACKED_AT_ONCE = 2000
"""The number of seqs after a queue's block that the query for its finished jobs also covers, for the next blocks."""

ALL_BUT_TAGS = View()


@dataclass(frozen=True, slots=True)
class TopicQuery:
    """A query: at most `limit` records after the seq `from_seq`, about `max_bytes` of data and meta.

    `topic` is a name or an id; `now` in microseconds. Records that one of the `nodes` wrote are excluded if the topic
    has `dedupe_node`. `epoch`: the epoch (see `epoch_of`) of `from_seq`; empty if unknown. `apart`: the page ends
    before lost records, unless it begins with them; otherwise one page may have records from before and after them.
    """

    topic: str | int
    now: int
    from_seq: int = 0
    limit: int = 256
    max_bytes: int = 1 << 20
    nodes: frozenset[str] = frozenset()
    view: View = ALL_BUT_TAGS
    epoch: str = ""
    apart: bool = False


@dataclass(frozen=True, slots=True)
class Tombstone:
    """What a reader missed: `lost` records of the seqs `gap_from` to `gap_to`. The reader continues at `earliest_seq`.

    `reason`: cap, ttl, source_trim, mixed, or recreated: the reader's seqs are of another topic or epoch. The range is
    then the whole topic, and `lost` the number of its seqs (at least 1), although the reader gets it from the start.
    """

    gap_from: int
    gap_to: int
    reason: str
    lost: int
    earliest_seq: int
    head_seq: int


@dataclass(frozen=True, slots=True)
class TopicPage:
    """`records` are JSON texts, `seqs` their seqs. Everything up to `next_from_seq` was read, `scanned` seqs in all.

    `tombstone` describes the records lost between the query's `from_seq` and `next_from_seq`; None: none were. `epoch`
    is that of these seqs. `dedupe_node`: whether the topic excludes records that the reader's own nodes wrote.
    `goes_on`: the topic neither removes nor leases records by itself, so the next page can be made from memory.
    """

    topic_id: int
    name: str
    epoch: str
    records: Sequence[str]
    seqs: Sequence[int]
    next_from_seq: int
    head_seq: int
    earliest_seq: int
    tombstone: Tombstone | None
    scanned: int
    dedupe_node: bool
    of_group: bool
    goes_on: bool
    head: Head

    @property
    def caught_up(self) -> bool:
        return self.next_from_seq == self.head_seq

    @property
    def lag(self) -> int:
        """Return how many seqs the topic has after the page."""
        return self.head_seq - self.next_from_seq


def epoch_of(epoch: str, topic_id: int) -> str:
    """Return the epoch of a topic's seqs: it changes with the log's epoch, and when another topic gets the name."""
    return f"{epoch}:{topic_id}"


def read_topic_page(conn: Connection, ask: TopicQuery) -> TopicPage:
    """Return the next page of a topic. Raises `TopicNotFound`."""
    head = read_head(conn)
    line = find_topic(conn, ask.topic) if isinstance(ask.topic, str) else find_topic_by_id(conn, ask.topic)
    if line is None:
        raise TopicNotFound(str(ask.topic))
    epoch = epoch_of(head.epoch, line.id)
    recreated = ask.from_seq > line.head_seq or ask.epoch not in ("", epoch)
    start = 0 if recreated else ask.from_seq
    floor = _read_floor(conn, line, start, ask.now)
    missing = _read_missing(conn, line, start, floor)
    end = _page_end(missing, start, floor, line.head_seq, apart=ask.apart or recreated)
    after = max(start, floor.seq)
    page = _PageBuilder(ask, ask.nodes if line.config.dedupe_node else frozenset(), after, end.stop)
    if page.upto < page.stop:
        _fill(conn, line, page)
    tombstone = end.tombstone(line.head_seq, page.upto)
    if recreated:
        tombstone = Tombstone(1, line.head_seq, RECREATED, max(1, line.head_seq), floor.earliest_seq, line.head_seq)
    return TopicPage(
        topic_id=line.id,
        name=line.name,
        epoch=epoch,
        records=page.texts,
        seqs=page.seqs,
        next_from_seq=page.upto,
        head_seq=line.head_seq,
        earliest_seq=floor.earliest_seq,
        tombstone=tombstone,
        scanned=page.upto - after,
        dedupe_node=line.config.dedupe_node,
        of_group=line.of_group,
        goes_on=not line.is_queue and not line.config.limited,
        head=head,
    )


def continue_topic_page(last: TopicPage, recent: RecentBlocks, ask: TopicQuery) -> TopicPage | None:
    """Return the page after `last` from memory; None if the database must be read, as when `last` had not caught up.

    It excludes no nodes: `ask.nodes` is ignored.
    """
    if not (last.goes_on and last.caught_up) or recent.head.epoch != last.head.epoch:
        return None
    seq = last.head_seq
    for block in recent.blocks:
        if block.seq != seq + 1:  # some seqs were skipped: these records are lost
            return None
        seq = block.last_seq
    page = _PageBuilder(ask, frozenset(), last.head_seq, seq)
    for block in recent.blocks:
        made = records_of_events(block, ask.now) if last.of_group else block
        page.take(made, (), may_be_empty=last.of_group)
        if page.is_full:
            return None
    return replace(
        last,
        records=page.texts,
        seqs=page.seqs,
        next_from_seq=seq,
        head_seq=seq,
        tombstone=None,
        scanned=seq - last.head_seq,
        head=recent.head,
    )


# --- losses -------------------------------------------------------------------------------------------------------


class _Floor(NamedTuple):
    """The `seq` up to which no record is read: all are removed, or have exceeded their time to live.

    `lost`: the latter, as far as they are still stored and after the reader's seq. `earliest_seq`: the first seq after
    `seq` that has a record.
    """

    seq: int
    earliest_seq: int
    lost: Sequence[Loss]


def _read_floor(conn: Connection, line: TopicRow, start: int, now: int) -> _Floor:
    if line.due_at is None or line.due_at > now:
        return _Floor(line.evicted_seq, line.earliest_seq, ())
    aged = read_expired(conn, line, now)
    lost = [Loss(max(first, start + 1), last, TTL) for first, last in aged.ranges if last > start]
    return _Floor(aged.upto, first_live(conn, line, aged.upto), lost)


class _LossRun(NamedTuple):
    """Losses in order, with no record between them that a reader could get."""

    losses: list[Loss]

    @property
    def first(self) -> int:
        return self.losses[0].first

    @property
    def last(self) -> int:
        return self.losses[-1].last


def _read_missing(conn: Connection, line: TopicRow, start: int, floor: _Floor) -> list[_LossRun]:
    """Return the losses after the seq `start`, in order: all up to the floor as one run, then those among records."""
    known = read_losses(conn, line.id, start, line.head_seq) if start < line.head_seq else []
    missing: list[_LossRun] = []
    for loss in sorted([*known, *floor.lost]):
        if missing and (loss.first <= floor.seq or loss.first == missing[-1].last + 1):
            missing[-1].losses.append(loss)
        else:
            missing.append(_LossRun([loss]))
    return missing


class _PageEnd(NamedTuple):
    """The seq at which a page ends at the latest, and the one run of losses, if any, that it can report.

    It reports the run, as one tombstone, only if it reaches the end of the run.
    """

    stop: int
    missing: _LossRun | None

    def tombstone(self, head_seq: int, upto: int) -> Tombstone | None:
        if self.missing is None or upto < self.missing.last:
            return None
        lost = self.missing.losses
        gap_from, gap_to = self.missing.first, self.missing.last
        return Tombstone(gap_from, gap_to, reason_of(lost), sum(x.records for x in lost), gap_to + 1, head_seq)


def _page_end(missing: list[_LossRun], start: int, floor: _Floor, head_seq: int, *, apart: bool) -> _PageEnd:
    """Return where a page ends: before the second run of losses, if there is one, or at the head.

    With `apart`, it also ends before the first run, if records precede it.
    """
    ahead = iter(missing)
    first = next(ahead, None)
    if first is not None and apart and first.first > max(start, floor.seq) + 1:
        return _PageEnd(first.first - 1, None)
    second = next(ahead, None)
    return _PageEnd(head_seq if second is None else second.first - 1, first)


# --- records ------------------------------------------------------------------------------------------------------


def _fill(conn: Connection, line: TopicRow, page: _PageBuilder) -> None:
    """Add the wanted records of the next blocks, until the page is full or at its end."""
    done, known_upto = frozenset[int](), 0
    is_queue, of_group, may_be_empty = line.is_queue, line.of_group, line.deleted > 0 or line.of_group
    for block in scan_seqs(conn, line.id, page.upto, page.stop):
        if is_queue and block.last_seq > known_upto:
            known_upto = block.last_seq + _ACKED_AT_ONCE
            done = acked_seqs(conn, line.id, block.seq, known_upto)
        page.take(records_of_events(block, page.ask.now) if of_group else block, done, may_be_empty=may_be_empty)
        if page.is_full:
            return
    page.upto = page.stop


@dataclass(slots=True)
class _PageBuilder:
    """Builds a page of the seqs in `(upto, stop]`, without records that one of the `nodes` wrote."""

    ask: TopicQuery
    nodes: frozenset[str]
    upto: int
    stop: int
    texts: list[str] = field(default_factory=list)
    seqs: list[int] = field(default_factory=list)
    size: int = 0
    looked: int = 0
    is_full: bool = False
    hidden: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        self.hidden = frozenset(map(encoded, self.nodes))

    def take(self, block: Block, done: Collection[int], *, may_be_empty: bool) -> None:
        """Add the wanted records of the block, until the page is full.

        `done`: seqs that are left out; `may_be_empty`: the block may have empty lines.
        """
        if block.records == 1:
            self._take_one(block, done)
        else:
            self._take_some(block, done, may_be_empty)
        if not self.is_full:
            self.upto = min(block.last_seq, self.stop)
            self.is_full = len(self.seqs) == self.ask.limit or self.looked >= LOOKED_AT

    def _take_one(self, block: Block, done: Collection[int]) -> None:
        [body] = block.bodies()
        if not body or block.seq in done or (self.hidden and node_text(body) in self.hidden):
            self.looked += 1
        elif self.seqs and self.size + block.bytes > self.ask.max_bytes:
            self.is_full = True
        else:
            self.texts.append(render(block.seq, block.recorded_at // 1000, body, self.ask.view))
            self.seqs.append(block.seq)
            self.size += block.bytes

    def _take_some(self, block: Block, done: Collection[int], may_be_empty: bool) -> None:
        sources = names(block.sources)
        if self.nodes and sources is not None and sources <= self.nodes and "" not in sources:
            self.looked += PASSED_OVER
            return
        hides = bool(self.nodes) and (sources is None or not sources.isdisjoint(self.nodes))
        first, last = max(block.seq, self.upto + 1), min(block.last_seq, self.stop)
        room = self.ask.limit - len(self.seqs)
        whole = not (hides or done or (may_be_empty and block.has_empty))
        until = min(last, first + room - 1) if whole else last
        bodies = block.bodies(first - block.seq, until + 1 - block.seq)
        seqs: Sequence[int] = range(first, until + 1)
        if not whole:
            self.looked += len(bodies)
            pairs = [pair for pair in zip(seqs, bodies, strict=True) if self._wants(*pair, done)]
            seqs, bodies = [seq for seq, _ in pairs], [body for _, body in pairs]
        fitting = min(room, self._fitting(block, bodies))
        self.is_full = fitting < len(bodies) or until < last
        self.texts += texts_of(block, seqs[:fitting], bodies[:fitting], self.ask.view)
        self.seqs += seqs[:fitting]
        if self.is_full and self.seqs:
            self.upto = self.seqs[-1]

    def _wants(self, seq: int, body: str, done: Collection[int]) -> bool:
        """Return whether the line has a record that is neither a finished job nor written by an excluded node."""
        if not body or seq in done:
            return False
        return not self.hidden or node_text(body) not in self.hidden

    def _fitting(self, block: Block, bodies: Sequence[str]) -> int:
        """Return how many of the bodies fit, at least one if the page is empty.

        Adds their bytes to `size`, or those of the whole block if it fits.
        """
        if self.size + block.bytes <= self.ask.max_bytes:
            self.size += block.bytes
            return len(bodies)
        for count, body in enumerate(bodies):
            size = content_size(body)
            if (self.seqs or count) and self.size + size > self.ask.max_bytes:
                return count
            self.size += size
        return len(bodies)
