"""Digests of some events of a topic, in steps: summed up, or listed. For comparing what two nodes hold.

A step is a few milliseconds of work in one short snapshot, so that neither readers nor the event loop wait for a
comparison of millions. If all of a block is included, its lines are summed up without being decoded.
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from eventd.log.core.blocks import UNREADABLE, Block, names, unpack_readable
from eventd.log.core.scan import blocks_at, outlines, pick_readable
from eventd.log.core.values import Record
from eventd.log.delivery.evidence import read_proof
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import fetch
from federation.compare import LATE, Grain, add_places, places_of, show_fingerprint
from federation.digest import fingerprint
from federation.event import read_outlines
from federation.selector import Selector

STEP_RECORDS = 1500
"""Approximate number of records in a step, which takes a few milliseconds."""
MOST_PROOFS = 1000
"""Maximum number of batches that `taken_before` searches."""
PORTION = 32
"""How many blocks are read together: usually a step has only a few."""
REST = 0.5
"""Seconds of rest for each second that steps take."""
PER_BLOCK = 5
"""The cost of a block besides its records, in records."""


async def rest(sleep: Callable[[float], Awaitable[object]], spent: float) -> None:
    """Sleep for `REST` times the seconds `spent` on a step, so that other threads get the interpreter."""
    if spent > 0:
        await sleep(spent * REST)


@dataclass(frozen=True, slots=True)
class RecordFilter:
    """The records to include: those with an accepted path that match the selector.

    `not_source`: a source whose events are excluded; `since`: events observed before that minute (counted from 1970)
    are in no bucket. With `own`, only records that entered the log at this node are read.
    """

    takes_path: Callable[[str], bool]
    selector: Selector
    not_source: str = ""
    since: int | None = None
    own: bool = False

    def settles(self, block: Block) -> bool | None:
        """Return True if all records of a block are included, False if none is, None if each must be checked."""
        paths, types, sources = names(block.paths), names(block.types), names(block.sources)
        if paths is not None and not any(map(self.takes_path, paths)):
            return False
        if types is not None and not self.selector.may_match(types):
            return False
        if paths is None or sources is None or self.not_source in sources or not all(map(self.takes_path, paths)):
            return None
        picks = self.selector.subject_prefixes or self.selector.sources
        all_types = not self.selector.types or (types is not None and all(map(self.selector.takes_type, types)))
        return True if all_types and not picks else None

    def takes(self, record: Record) -> bool:
        """Return whether a record is included, regardless of `since` and `own`."""
        return (
            self.takes_path(record.path)
            and self.selector.matches(type=record.tag, subject=record.subject, source=record.node)
            and (not self.not_source or record.node != self.not_source)
        )


class Columns(NamedTuple):
    """The included records of a block, as columns; a record's seq is its position plus the `shift`."""

    positions: Sequence[int]
    bodies: Sequence[str]
    shift: int

    def without(self, left_out: Collection[int]) -> Columns:
        """Return the columns without the positions `left_out`."""
        kept = [(at, body) for at, body in zip(self.positions, self.bodies, strict=True) if at not in left_out]
        return Columns([at for at, _ in kept], [body for _, body in kept], self.shift)


@dataclass(slots=True)
class Exclusions:
    """Positions that some batch left out or the peer refused: ascending, each with its reason."""

    positions: list[int] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)

    def within(self, first: int, last: int) -> Mapping[int, str]:
        """Return the reasons by position, from `first` to `last` inclusive."""
        begin, end = bisect_left(self.positions, first), bisect_right(self.positions, last)
        return dict(zip(self.positions[begin:end], self.reasons[begin:end], strict=True))


NO_EXCLUSIONS = Exclusions()


def read_exclusions(conn: Connection, cursor: str) -> Exclusions:
    """Return the exceptions of all stored batches of a cursor, each with its latest reason.

    A reason is `expired`, `in_path`, or why the peer refused the event; an event that a repair delivered later is
    included, too.
    """
    found: dict[int, str] = {}
    rows = fetch(conn, "SELECT exceptions FROM batches WHERE cursor = ? AND exceptions <> '' ORDER BY id", (cursor,))
    for (exceptions,) in rows:
        found |= {at: str(reason) for at, reason in json.loads(exceptions)}
    places = sorted(found)
    return Exclusions(places, [found[at] for at in places])


class DigestStep(NamedTuple):
    """The position that a step reached, and how many records it included and left out, the latter by reason.

    Records that are in no bucket count as included.
    """

    upto: int
    records: int
    left_out: Mapping[str, int]


def sum_step(
    conn: Connection,
    topic_id: int,
    after: int,
    until: int,
    chosen: RecordFilter,
    grain: Grain,
    totals: dict[int, int],
    left_out: Exclusions = NO_EXCLUSIONS,
) -> DigestStep:
    """Add the fingerprints of the included records of `(after, until]` to `totals`, by bucket, within one step."""
    records, reasons = 0, Counter[str]()
    plan = _plan(conn, topic_id, after, until, chosen)
    for columns in _columns(conn, plan, after, until, chosen):
        kept = _keep(columns, left_out, reasons)
        located = _locate(kept, grain, chosen.since)
        add_places(located.keys, located.fingerprints, totals)
        records += len(located.keys)
    return DigestStep(plan.upto, records, reasons)


class ListedRecord(NamedTuple):
    """A record in one of the requested buckets.

    `number` counts the included records, in any bucket: it shows which of them are adjacent. `key` is the bucket.
    """

    number: int
    position: int
    seq: int
    event_id: str
    key: int
    fingerprint: int


class RecordList(NamedTuple):
    """Records of some buckets, the position that the step reached, and the `number` at which the next step begins."""

    held: Sequence[ListedRecord]
    upto: int
    number: int


def list_step(
    conn: Connection,
    topic_id: int,
    after: int,
    until: int,
    chosen: RecordFilter,
    grain: Grain,
    keys: Collection[int],
    left_out: Exclusions = NO_EXCLUSIONS,
    *,
    number: int = 0,
    late: bool = False,
) -> RecordList:
    """Return the included records of `(after, until]`, as far as one step reads, that are in a bucket of `keys`.

    With `late`, also those that were observed too early to be in any bucket. `number` is that of the first
    included record.
    """
    held: list[ListedRecord] = []
    plan = _plan(conn, topic_id, after, until, chosen)
    for columns in _columns(conn, plan, after, until, chosen):
        located = _locate(_keep(columns, left_out, Counter()), grain, chosen.since)
        for at, key in enumerate(located.keys):
            if key in keys or (late and key < LATE):
                position = located.positions[at]
                seq, event_id = position + columns.shift, located.ids[at]
                held.append(ListedRecord(number + at, position, seq, event_id, key, located.fingerprints[at]))
        number += len(located.keys)
    return RecordList(held, plan.upto, number)


class _RecordColumns(NamedTuple):
    """Included records, as columns: positions, ids, the keys of their buckets, and fingerprints."""

    positions: Sequence[int]
    ids: Sequence[str]
    keys: Sequence[int]
    fingerprints: Sequence[int]


def _locate(columns: Columns, grain: Grain, since: int | None) -> _RecordColumns:
    """Return the buckets of the records. A record whose line is damaged is lost: it is in no sum and in no list."""
    try:
        outlines = read_outlines(columns.bodies)
        places = places_of(columns.bodies, grain, since)
        return _RecordColumns(columns.positions, [each.id for each in outlines], *places)
    except UNREADABLE:
        return _locate_singly(columns, grain, since)


def _locate_singly(columns: Columns, grain: Grain, since: int | None) -> _RecordColumns:
    found: list[tuple[int, str, int, int]] = []
    for position, body in zip(columns.positions, columns.bodies, strict=True):
        with suppress(*UNREADABLE):
            [outline] = read_outlines([body])
            [key], [number] = places_of([body], grain, since)
            found.append((position, outline.id, key, number))
    return _RecordColumns(*map(list, zip(*found, strict=True))) if found else _RecordColumns([], [], [], [])


def _keep(columns: Columns, left_out: Exclusions, reasons: Counter[str]) -> Columns:
    if not columns.positions:
        return columns
    out = left_out.within(columns.positions[0], columns.positions[-1])
    if not out:
        return columns
    kept = columns.without(out)
    reasons.update(out[at] for at in columns.positions if at in out)
    return kept


class _Plan(NamedTuple):
    """The blocks of a step that may have included records, by first position; True if all of a block are included.

    The step reads up to the position `upto`.
    """

    whole: Mapping[int, bool]
    upto: int


def _plan(conn: Connection, topic_id: int, after: int, until: int, chosen: RecordFilter) -> _Plan:
    whole: dict[int, bool] = {}
    cost = 0
    for block in outlines(conn, topic_id, after, until, own=chosen.own, portion=PORTION):
        meant = chosen.settles(block)
        cost += PER_BLOCK if meant is False else PER_BLOCK + block.records * (1 if meant else 2)
        if meant is not False:
            whole[block.position] = bool(meant)
        if cost >= STEP_RECORDS:
            return _Plan(whole, min(block.last, until))
    return _Plan(whole, until)


def _columns(conn: Connection, plan: _Plan, after: int, until: int, chosen: RecordFilter) -> Iterator[Columns]:
    for block, _ in blocks_at(conn, [*plan.whole]):
        part = block.within(after, until)
        if part is None:
            continue
        if plan.whole[block.position]:
            yield _whole(part)
        else:
            taken = [record for record in unpack_readable(part) if chosen.takes(record)]
            shift = part.seq - part.position
            yield Columns([record.position for record in taken], [record.body for record in taken], shift)


def _whole(part: Block) -> Columns:
    """Return all records of a block; if lines are missing, or have no path, only those that can be read."""
    shift = part.seq - part.position
    with suppress(*UNREADABLE):
        bodies = part.bodies()
        if len(bodies) == part.records:
            return Columns(range(part.position, part.last + 1), bodies, shift)
    records = unpack_readable(part)
    return Columns([record.position for record in records], [record.body for record in records], shift)


class FingerprintedRecord(NamedTuple):
    """The fingerprint of a stored record's event as hexadecimal digits, and whether a filter takes the record."""

    fingerprint: str
    is_selected: bool


def read_fingerprinted(
    conn: Connection, positions: Iterable[int | None], chosen: RecordFilter | None = None
) -> dict[int | None, FingerprintedRecord]:
    """Return the fingerprints of the records still stored at these positions, by position.

    Also whether `chosen` takes them; None takes all. A peer names hundreds of ids, whose events may have a megabyte
    each: the bodies of one read are dropped before the next.
    """
    wanted = [position for position in positions if position is not None]
    return {
        record.position: FingerprintedRecord(
            show_fingerprint(fingerprint(record.body)), chosen is None or chosen.takes(record)
        )
        for block, places in blocks_at(conn, wanted)
        for record in pick_readable(block, places)
    }


def oldest_kept(conn: Connection, topic_id: int, now: int) -> int | None:
    """Return when the oldest stored record was recorded (microseconds), or `now` if retention has removed all.

    None if retention has not removed any record; also if records after those that it removed are lost, because then the
    time would hide their loss.
    """
    found = fetch(conn, "SELECT evicted_seq, next_seq FROM topics WHERE id = ?", (topic_id,))
    if not found or not found[0][0]:
        return None
    evicted, next_seq = found[0]
    sql = "SELECT seq, recorded_at FROM blocks WHERE topic_id = ? ORDER BY seq LIMIT 1"
    first, recorded_at = next(iter(fetch(conn, sql, (topic_id,))), (next_seq, now))
    return int(recorded_at) if first <= evicted + 1 else None


def taken_before(conn: Connection, cursor: str, time: int, leeway: int) -> int:
    """Return the position up to which a peer had received everything at a `time` by its clock; 0 if unknown.

    `leeway` is how far the two clocks may be apart. Times in microseconds.
    """
    rows = fetch(
        conn,
        "SELECT upto, receipt FROM batches WHERE cursor = ? AND picked = '' AND status = 200 AND acked_at <= ?"
        " ORDER BY upto DESC LIMIT ?",
        (cursor, time + leeway, MOST_PROOFS),
    )
    proofs = ((int(upto), read_proof(receipt)) for upto, receipt in rows)
    return next((upto for upto, proof in proofs if proof is not None and proof.recorded_at < time), 0)
