"""The destinations of routers within one transaction: the room that they have, and the records that they know."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from eventd.log.core.commit import Transaction
from eventd.log.core.topic_config import TopicConfig
from eventd.log.core.topic_row import COLUMNS, TopicRow
from eventd.log.routers.source import CopyFailure, CopyPage
from eventd.log.topics.limits import apply_ttl, due_at
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import fetch, fetch_in
from eventd.store.ids.known import read_ids_of


@dataclass(slots=True)
class RouterDestination:
    """A destination, and the numbers of records and bytes, and the ids, that this transaction adds to it."""

    line: TopicRow
    config: TopicConfig
    records: int = 0
    bytes: int = 0
    ids: set[str] = field(default_factory=set)

    @property
    def takes_all(self) -> bool:
        """Return whether the destination never refuses a write because of its caps."""
        return self.config.discard != "reject"

    def room(self, sizes: Sequence[int]) -> int:
        """Return how many of the next records, given by their sizes, fit."""
        if self.takes_all:
            return len(sizes)
        config, held, size = self.config, self.line.live + self.records, self.line.bytes + self.bytes
        count = max(0, config.cap_records - held) if config.cap_records else len(sizes)
        return min(count, fitting(sizes, config.cap_bytes - size if config.cap_bytes else None))

    @property
    def most_bytes(self) -> int | None:
        """Return the size in bytes above which a record can never fit; None: any size fits."""
        return None if self.takes_all else self.config.cap_bytes or None

    @property
    def is_over(self) -> bool:
        """Return whether it exceeds its caps."""
        config, held, size = self.config, self.line.live + self.records, self.line.bytes + self.bytes
        return 0 < config.cap_records < held or 0 < config.cap_bytes < size

    def written_at(self, now: int) -> int:
        """Return the time of new records: not before that of the newest one."""
        return max(now, self.line.written_at or 0)

    def times(self, now: int) -> tuple[int, int | None]:
        """Return the time of the new records, and when they will exceed the topic's time to live; None without one."""
        written, ttl_ms = self.written_at(now), self.config.ttl_ms
        return written, due_at(written, ttl_ms) if ttl_ms else None

    def find_unfit(self, conn: Connection, copies: CopyPage) -> Sequence[CopyFailure]:
        """Return the failures of the page, except those of records whose ids the group's topic knows already."""
        failures = copies.failures
        known = self._known(conn, [one.id for one in failures]) if copies.keeps and failures else frozenset()
        return [one for one in failures if one.id not in known]

    def find_repeats(self, conn: Connection, copies: CopyPage) -> frozenset[int]:
        """Return the indexes of copies to leave out: the destination has or had a record with their id, or an earlier
        copy has it."""
        ids = copies.drafts.event_ids
        known = self._known(conn, ids) | self.ids
        first = {event_id: index for index, event_id in reversed([*enumerate(ids)])}
        repeats = {index for index, event_id in enumerate(ids) if event_id in known or first[event_id] != index}
        return frozenset(repeats | self._written_here(conn, copies))

    def _known(self, conn: Connection, ids: Sequence[str]) -> frozenset[str]:
        """Return which of these ids the destination knows; it still knows the id of a removed record."""
        return frozenset(read_ids_of(conn, self.line.id, ids))

    def _written_here(self, conn: Connection, copies: CopyPage) -> set[int]:
        """Return the indexes of the copies of records that were first written to this topic.

        A copy is not included if the topic has not reached that seq, or has a record of another time there: it was
        restored from a backup, and lost the record with the id.
        """
        made = copies.made_here.get(self.line.instance, {})
        claims = {at: known for at, known in made.items() if known.seq <= self.line.head_seq}
        if not claims:
            return set()
        seqs = sorted(known.seq for known in claims.values())
        sql = (
            "SELECT seq, records, recorded_at FROM blocks WHERE topic_id = ? AND seq <= ? AND seq > ? - 1000"
            " ORDER BY seq"
        )
        times = {
            seq: recorded_at // 1000
            for start, records, recorded_at in fetch(conn, sql, (self.line.id, seqs[-1], seqs[0]))
            for seq in range(start, start + records)
        }
        return {at for at, known in claims.items() if times.get(known.seq, known.millis) == known.millis}


def fitting(sizes: Sequence[int], room: int | None) -> int:
    """Return how many of the first sizes are at most `room` together; `room` None: all."""
    if room is None:
        return len(sizes)
    return next((index for index, total in enumerate(accumulate(sizes)) if total > room), len(sizes))


def read_destinations(tx: Transaction, ids: Iterable[int]) -> dict[int, RouterDestination]:
    """Return the destinations by topic id; first remove expired records of those that refuse writes over their caps."""
    sql = f"SELECT {COLUMNS} FROM topics WHERE id {{in}}"
    lines = [TopicRow(*row) for row in fetch_in(tx.conn, sql, (), sorted({*ids}))]
    # Only a topic that refuses writes over its limits needs its room now; the others apply their limits afterwards.
    lines = [apply_ttl(tx.conn, line, tx.now) if line.config.discard == "reject" else line for line in lines]
    return {line.id: RouterDestination(line, line.config) for line in lines}
