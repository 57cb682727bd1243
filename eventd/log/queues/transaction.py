"""The changes of one transaction to a queue: claimed jobs, finished jobs, and jobs that become dead letters.

All units of a transaction on one queue share one `QueueTransaction`, so that counters are written, and finished jobs
compacted, once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from eventd.log.core.blocks import Block
from eventd.log.core.commit import Transaction
from eventd.log.core.head import shrink
from eventd.log.core.records import content_size, read_body, write_body
from eventd.log.core.scan import scan_seqs
from eventd.log.core.topic_config import TopicConfig
from eventd.log.core.topic_row import TopicRow, find_topic, find_topic_by_id, insert_topic
from eventd.log.core.values import NOTHING, Drafts
from eventd.log.queues.compaction import compact
from eventd.log.topics.errors import NotAQueue, RecordTooLarge, Throttled, TopicFull, TopicNotFound
from eventd.log.topics.limits import apply_ttl
from eventd.log.topics.topics import ROUTEMASTER, Ceilings, count_topics, is_reserved
from eventd.log.topics.write import apply_limits_once, require_fit
from eventd.runtime.clock import SECOND, Moment
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import execute, fetch, insert_row
from eventd.store.rows.leases import (
    JobCounts,
    Lease,
    LeaseCounts,
    add_moves,
    count_jobs,
    end_leases,
    forget_jobs,
    free,
    mark_done,
    read_free,
)

FOUND_BYTES = 16 << 20
"""Bytes of data and meta that one claim returns, approximately: the next claim gets the rest."""
MOST_LETTERS = 1000
"""Maximum number of jobs that become dead letters in one claim."""
LETTER_FROM = "$dead_letter_from"
LETTER_STAMPS = (LETTER_FROM, "$dead_letter_deliveries", "$dead_letter_src_seq")
"""The members of the meta of a dead letter: its queue, how often it was claimed, and its seq there."""
LETTER_META = "$dead_letter_meta"
"""The member that holds the meta of a dead letter that was not an object."""
HOLD_SECONDS = 5
"""How long a job that the topic of dead letters refused waits in the queue until that topic is tried again."""
_KEPT_BLOCKS = 8
_EVERYWHERE = 1 << 62
_PORTION = 16
"""Minimum number of returned jobs that are read together, since some of them may become dead letters."""


class AvailableJob(NamedTuple):
    """A job that can be claimed, and how often it was claimed before (`deliveries`)."""

    seq: int
    deliveries: int
    size: int
    recorded_at: int
    body: str


def read_queue(conn: Connection, queue: str | int) -> TopicRow:
    """Return a queue, by its name or its id. Raises `TopicNotFound` and `NotAQueue`."""
    line = find_topic(conn, queue) if isinstance(queue, str) else find_topic_by_id(conn, queue)
    if line is None:
        raise TopicNotFound(str(queue))
    if not line.is_queue:
        raise NotAQueue(line.name)
    return line


class QueueTransaction:
    """The changes of one transaction to one queue.

    `held` and `delayed`: by how much the numbers of leased and of delayed jobs change.
    """

    def __init__(self, tx: Transaction, line: TopicRow) -> None:
        self.conn = tx.conn
        self.line = line
        self.topic_id = line.id
        self.at = Moment(tx.now, tx.steady)
        self.dead_lettered = 0
        self._claimed_seq = _read_claimed(tx.conn, line.id)
        self._claimed_before = self._claimed_seq
        self.held, self.delayed = end_leases(tx.conn, line.id, tx.steady)
        self._done: list[int] = []
        self._records = _Records(tx.conn, line.id)
        self._counts: JobCounts | None = None

    @classmethod
    def open(cls, tx: Transaction, line: TopicRow) -> QueueTransaction:
        """Return the transaction's changes to a queue; the first call removes expired records and ends overdue leases.

        Each unit that opens them must call `settle` in its `finish`.
        """
        found: QueueTransaction | None = tx.shared.get(("queue", line.id))
        if found is None:
            line = apply_ttl(tx.conn, line, tx.now)
            found = tx.shared["queue", line.id] = cls(tx, line)
        elif (found.line.evicted_seq, found.line.deleted) != (line.evicted_seq, line.deleted):
            found._records.clear()  # another unit has removed some
        found.line = line
        return found

    def find(self, most: int, dead: DeadLetters) -> list[AvailableJob]:
        """Return the next jobs to claim, at most `most` and about `FOUND_BYTES`; the caller writes the leases.

        Returned jobs come first, then those that were never claimed, each by seq. Jobs that were claimed too often are
        added to `dead` instead, if the queue has a topic of dead letters.
        """
        limit = self.line.config.max_deliveries if self.line.config.dead_letter else 0
        found: list[AvailableJob] = []
        size = 0
        for job in self._candidates(max(most, _PORTION)) if most else ():
            if limit and job.deliveries >= limit:
                if not dead.add(job):
                    continue  # there are many: the next claim takes them
            else:
                found.append(job)
                size += job.size
            if len(found) == most or size >= FOUND_BYTES:
                break
        return found

    def _candidates(self, portion: int) -> Iterator[AvailableJob]:
        after = 0
        while leases := read_free(self.conn, self.topic_id, after, portion):
            after = leases[-1].seq
            for lease in leases:
                record = self._records.read(lease.seq)
                if record is None:
                    forget_jobs(self.conn, self.topic_id, [lease.seq])
                else:
                    yield AvailableJob(lease.seq, lease.deliveries, lease.size, *record)
        self._claimed_seq = max(self._claimed_seq, self.line.evicted_seq)
        while self._claimed_seq < self.line.head_seq:
            seq = self._records.first_from(self._claimed_seq + 1)
            self._claimed_seq = self.line.head_seq if seq is None else seq
            record = self._records.read(self._claimed_seq)
            if record is not None:
                yield AvailableJob(self._claimed_seq, 0, content_size(record[1]), *record)

    def remove(self, leases: Sequence[Lease]) -> None:
        """Count finished jobs as deleted in the topic's row, and subtract their bytes; `settle` compacts blocks."""
        size = sum(lease.size for lease in leases)
        sql = "UPDATE topics SET deleted = deleted + ?, bytes = bytes - ? WHERE id = ?"
        execute(self.conn, sql, (len(leases), size, self.topic_id))
        shrink(self.conn, size)
        self.line = self.line._replace(deleted=self.line.deleted + len(leases), bytes=self.line.bytes - size)
        self._done += [lease.seq for lease in leases]

    def settle(self) -> JobCounts:
        """Write the counters and compact blocks of finished jobs, at the first call; return the counts of the queue."""
        if self._counts is None:
            if self._done:
                compact(self.conn, self.topic_id, sorted(self._done), self.at.wall)
            add_moves(self.conn, self.topic_id, LeaseCounts(self.held, self.delayed))
            if self._claimed_seq != self._claimed_before or self.dead_lettered:
                execute(
                    self.conn,
                    "UPDATE queues SET claimed_seq = ?, dead_lettered = dead_lettered + ? WHERE topic_id = ?",
                    (self._claimed_seq, self.dead_lettered, self.topic_id),
                )
            sql = "SELECT next_seq - 1 - evicted_seq - deleted FROM topics WHERE id = ?"
            live = fetch(self.conn, sql, (self.topic_id,))[0][0]
            self._counts = count_jobs(self.conn, self.topic_id, live, self.at.steady)
        return self._counts


def _read_claimed(conn: Connection, topic_id: int) -> int:
    """Return the seq up to which all jobs were claimed or removed; create the queue's row if it is missing."""
    sql = "SELECT claimed_seq FROM queues WHERE topic_id = ?"
    if not (rows := fetch(conn, sql, (topic_id,))):
        fresh = {"topic_id": topic_id, "claimed_seq": 0, "held": 0, "delayed": 0, "dead_lettered": 0}
        insert_row(conn, "queues", fresh)
        return 0
    return int(rows[0][0])


class _Records:
    """The records of a queue, read by block: adjacent ones are usually needed together."""

    def __init__(self, conn: Connection, topic_id: int) -> None:
        self._conn = conn
        self._topic_id = topic_id
        self._blocks: dict[int, tuple[Block, list[str]]] = {}
        self._latest: tuple[Block, list[str]] | None = None

    def clear(self) -> None:
        """Clear the cache of blocks."""
        self._blocks.clear()
        self._latest = None

    def read(self, seq: int) -> tuple[int, str] | None:
        """Return when a record was recorded (microseconds), and its body; None if it is removed."""
        found = self._holding(seq)
        if found is None or found[0].seq > seq:
            return None
        body = found[1][seq - found[0].seq]
        return (found[0].recorded_at, body) if body else None

    def first_from(self, seq: int) -> int | None:
        """Return the first seq from this one on that a block contains; None if there is none."""
        found = self._holding(seq)
        return None if found is None else max(seq, found[0].seq)

    def _holding(self, seq: int) -> tuple[Block, list[str]] | None:
        """Return the block of a seq, or else the first block after it, with its bodies; None if there is none."""
        latest = self._latest
        if latest is None or not latest[0].seq <= seq <= latest[0].last_seq:
            latest = self._latest = self._fetch(seq)
        return latest

    def _fetch(self, seq: int) -> tuple[Block, list[str]] | None:
        known = (pair for pair in self._blocks.values() if pair[0].seq <= seq <= pair[0].last_seq)
        if (pair := next(known, None)) is not None:
            return pair
        block = next(scan_seqs(self._conn, self._topic_id, seq - 1, _EVERYWHERE), None)
        if block is None:
            return None
        if len(self._blocks) == _KEPT_BLOCKS:
            self._blocks.pop(next(iter(self._blocks)))
        made = self._blocks[block.seq] = (block, block.bodies())
        return made


class DeadLetters:
    """Jobs that were claimed too often, on their way to the queue's topic of dead letters."""

    def __init__(self, ceilings: Ceilings) -> None:
        self._ceilings = ceilings
        self._dest: TopicRow | None = None
        self._jobs: list[AvailableJob] = []

    @property
    def topic_id(self) -> int | None:
        """Return the id of the topic that takes the dead letters; None before `admit`, and if none are written."""
        return None if self._dest is None else self._dest.id

    def add(self, job: AvailableJob) -> bool:
        """Add a job that is to become a dead letter; return False, and add nothing, if there are `MOST_LETTERS`."""
        if len(self._jobs) == MOST_LETTERS:
            return False
        self._jobs.append(job)
        return True

    def admit(self, tx: Transaction, queue: QueueTransaction, random: Callable[[int], bytes]) -> Drafts:
        """Remove the jobs from the queue, and return their drafts for the topic of dead letters, created if missing.

        If that topic refuses them, or cannot be created, the jobs stay in the queue for another `HOLD_SECONDS`.
        """
        if not self._jobs:
            return NOTHING
        name = queue.line.config.dead_letter or ""
        dest = None if name == ROUTEMASTER else find_topic(tx.conn, name)
        if dest is None and not is_reserved(name) and _may_make_topic(tx.conn, self._ceilings):
            dest = insert_topic(tx.conn, name, TopicConfig(), now=tx.now, random=random(8))
        drafts = _letters(queue.line.name, self._jobs)
        seqs = [job.seq for job in self._jobs]
        if dest is None or dest.id == queue.topic_id or not self._takes(tx, dest, drafts):
            hold = HOLD_SECONDS * SECOND
            free(tx.conn, queue.topic_id, seqs, tx.steady + hold, hold)
            queue.delayed += len(seqs)
            return NOTHING
        mark_done(tx.conn, queue.topic_id, seqs)
        queue.remove([Lease(job.seq, "", "", None, job.deliveries, job.size) for job in self._jobs])
        queue.dead_lettered += len(seqs)
        if "fsync" in (dest.durability, queue.line.durability):
            tx.must_flush = True
        self._dest = dest
        return drafts

    def finish(self, tx: Transaction) -> None:
        """Apply the limits of the topic that the dead letters were written to, if any were."""
        if self._dest is not None:
            apply_limits_once(tx, self._dest)

    def _takes(self, tx: Transaction, dest: TopicRow, drafts: Drafts) -> bool:
        """Return whether a topic takes these records, and reserve their room; a group's topic takes none."""
        if dest.of_group:
            return False
        try:
            require_fit(tx, dest, drafts, self._ceilings.bytes, freed=sum(job.size for job in self._jobs))
        except (TopicFull, RecordTooLarge, Throttled):
            return False
        return True


def _may_make_topic(conn: Connection, ceilings: Ceilings) -> bool:
    return not 0 < ceilings.topics <= count_topics(conn)


def _letters(queue: str, jobs: Sequence[AvailableJob]) -> Drafts:
    bodies: list[str] = []
    tags: set[str] = set()
    nodes: set[str] = set()
    for job in jobs:
        stored = read_body(job.body)
        bodies.append(write_body(stored.node, stored.tag, stored.data, _stamped(stored.meta, queue, job)))
        tags.update([stored.tag] if stored.tag is not None else [])
        nodes.add(stored.node or "")  # empty: the record has no node
    return Drafts(
        paths=[""] * len(bodies),
        bodies=bodies,
        types=frozenset(tags),
        sources=frozenset(nodes),
        sizes=[*map(content_size, bodies)],
    )


def _stamped(meta: str | None, queue: str, job: AvailableJob) -> str:
    """Return the meta of a dead letter as a JSON text: that of the job, with its queue, seq and deliveries."""
    try:
        given = {} if meta is None else msgspec.json.decode(meta, type=dict[str, msgspec.Raw])
    except msgspec.ValidationError:
        given = {LETTER_META: msgspec.Raw((meta or "").encode())}
    source, deliveries, seq = LETTER_STAMPS
    stamps = {source: queue, deliveries: str(job.deliveries), seq: str(job.seq)}
    return msgspec.json.encode({**given, **stamps}).decode()
