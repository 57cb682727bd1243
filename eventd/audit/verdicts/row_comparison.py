"""Stage 3: joins the row marks of uneven slots by event, and judges each event that is not plainly in order.

Marks are made by `row_marks`. A part has every mark of its events.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from eventd.audit.arrays.alterations import LedgerRow
from eventd.audit.arrays.columns import NEVER, Columns, Mask, Numbers, grouped, with_texts
from eventd.audit.arrays.counts import key_of
from eventd.audit.arrays.row_hash import ODD
from eventd.audit.coverage.coverage import Coverage, RefusedRow
from eventd.audit.segments.damaged_segment import name_damage
from eventd.audit.segments.plan import NodeEpoch
from eventd.audit.segments.row_marks import (
    DELIVERY_KEYS,
    DELIVERY_ROWS,
    EVENT_KEYS,
    EVENT_ROWS,
    PAIR,
    PairKey,
    Role,
    UnevenSlots,
    candidates,
    mark_deliveries,
    mark_events,
)
from eventd.audit.segments.segment_jobs import SegmentJob, SegmentJobs
from eventd.audit.segments.spark_tasks import OpenFile, keys_of
from eventd.audit.verdicts.pair_figures import RowComparison
from eventd.audit.verdicts.trail import Trail
from eventd.lake.schema import Ledger
from eventd.lake.segment_file import open_segment
from eventd.lake.storage import FileReader

if TYPE_CHECKING:
    import pyarrow as pa

EVENT: Final = ("group", "source", "peer", "id", "fingerprint")
"""The columns that identify one event and one peer."""
_NAMES: Final = EVENT[:4]
_ROWS_AT_ONCE: Final = 10_000
_COUNTS: Final = ("origin", "due", "ahead", "sent", "expired", "in_path", "refused", "held", "restored")
"""The fields of `Trail` that count the roles, in the order of `Role`."""
_TIMES: Final = (
    *(("sent_at", "min"), ("done_at", "max"), ("arrived_at", "max")),
    *(("held_at", "min"), ("restored_at", "min")),
)
"""The times of `Trail`, and how those of several marks are joined."""
_ENDS: Final = (("expired", "min"), ("in_path", "max"))
"""Outcomes of deliveries, and whether the first or the last of several counts: `Trail` has the time and the node of
that one."""
_ROWS: Final = ("due_row", "delivery_row", "source_row", "peer_row")
"""The fields of `Trail` that are rows."""
_DELIVERY_ROWS: Final = ("sent_row", "unanswered_row", "aside_row")
"""Indexes of marks of deliveries, the most significant one first."""
_PLACES: Final = (
    *(("due_row", "min"), ("sent_row", "max"), ("unanswered_row", "max"), ("aside_row", "max")),
    *(("source_row", "min"), ("peer_row", "min")),
)
"""Indexes of marks, and which of several marks counts: the last one of deliveries, else the first."""


def group_uneven(tables: Sequence[pa.Table]) -> UnevenSlots:
    """Group by pair the slots (minutes) that stage 2 found uneven; those of a pair are distinct and ascending."""
    import pyarrow as pa

    if not tables:
        return {}
    by_pair = pa.concat_tables(tables).group_by([*PAIR]).aggregate([("time", "list")])
    return {
        PairKey(row["group"], row["source"], row["peer"]): np.unique(np.array(row["time_list"], np.int64))
        for row in by_pair.to_pylist()
    }


@dataclass(frozen=True)
class MarkMaker:
    """Makes the marks of segments: of their rows in the slots whose sums differ (uneven ones).

    Called with the files of a task, it yields tables with the marks of their rows in these slots. Raises DamagedSegment
    and LakeUnavailable.
    """

    jobs: SegmentJobs
    uneven: UnevenSlots

    def __call__(self, files: Iterator[OpenFile]) -> Iterator[pa.Table]:
        for path, lake in files:
            job = self.jobs.at(path)
            with name_damage(job.name):
                yield from self._marks(lake, job)

    def _marks(self, lake: FileReader, job: SegmentJob) -> Iterator[pa.Table]:
        file, book = open_segment(lake, job.segment), job.segment.place.book
        keys, rest = (EVENT_KEYS, EVENT_ROWS) if book is Ledger.EVENTS else (DELIVERY_KEYS, DELIVERY_ROWS)
        for at in range(file.row_groups):
            places = candidates(Columns(file.read_group(at, keys)), self.uneven)
            if not len(places):
                continue
            table = Columns(file.read_group(at, rest).take(places))
            if book is Ledger.EVENTS:
                yield from mark_events(table, job.links, self.uneven, job.since)
            else:
                yield from mark_deliveries(table, job.since)


def keys(marks: Columns) -> Numbers:
    """Return one key for each mark, the same for all marks of an event and a peer, to group them by."""
    return keys_of(marks, ("group", "source", "peer"), marks.numbers("event"))


def compare(marks: pa.Table, coverage: Coverage) -> dict[str, pa.Table]:
    """Judge the doubtful events of a part; return the tables of `RowComparison.to_tables`."""
    comparison = RowComparison()
    found = trails(marks, frozenset(coverage.until), coverage.unanswered)
    for same in _records(found.select([*Trail._fields])):
        comparison.add(same, coverage)
    return comparison.to_tables()


def _records(found: pa.Table) -> Iterator[list[Trail]]:
    """Yield the trails of each event at one peer. Few of them are in memory at once, as all events may be doubtful."""
    ordered = found.sort_by([(name, "ascending") for name in _NAMES])
    rows = (row for batch in ordered.to_batches(max_chunksize=_ROWS_AT_ONCE) for row in batch.to_pylist())
    trails = (Trail(**row | {name: LedgerRow.of(row[name]) for name in _ROWS}) for row in rows)
    for _, same in groupby(trails, key=attrgetter(*_NAMES)):
        yield list(same)


def trails(marks: pa.Table, keeping: Collection[str], unanswered: Collection[RefusedRow] = ()) -> pa.Table:
    """Return one row per event and peer that is not plainly in order, with the columns of `Trail`.

    `keeping` are the nodes with ledgers: a delivery to any other node is in order even if it is not known to be held.
    `unanswered`: see `Coverage`.
    """
    import pyarrow as pa

    marks = marks.combine_chunks()
    doubtful = with_texts(marks.filter(_doubtful(Columns(marks), keeping, unanswered))).sort_by("at")
    order = pa.array(np.argsort(Columns(doubtful).numbers("done"), kind="stable"))
    doubtful = doubtful.append_column("end", pa.array(np.argsort(order)))
    by_sender = _by_sender(doubtful, unanswered)
    found = _by_event(by_sender)
    for name, _ in _ENDS:
        rows = order.take(found[f"{name}_end"])
        found = found.append_column(f"{name}_node", doubtful["node"].take(rows))
        found = found.append_column(f"{name}_at", doubtful["done"].take(rows))
    for name in _ROWS:
        rows = doubtful.select([*LedgerRow._fields]).take(found[name]).to_struct_array()
        found = found.set_column(found.schema.get_field_index(name), name, rows)
    ends = [name for name, _ in _ENDS]
    nodes = ("due_node", "due_epoch", "sent_node", "link_node", "link_epoch", *(f"{name}_node" for name in ends))
    filled = {"seq": 0, **dict.fromkeys(nodes, "")}
    times = [*(name for name, _ in _TIMES if name != "arrived_at"), *(f"{name}_at" for name in ends)]
    filled |= dict.fromkeys(("due_at", "due_position", "link_version", *times), 0)
    for name, value in filled.items():
        found = found.set_column(found.schema.get_field_index(name), name, found[name].fill_null(value))
    return found


def _by_sender(marks: pa.Table, unanswered: Collection[RefusedRow]) -> pa.Table:
    import pyarrow as pa

    marks = marks.append_column("row", pa.array(np.arange(marks.num_rows)))
    table = Columns(marks)
    role, at_source = table.numbers("role"), table.words("node").equal(table.words("source"))
    for one, name in zip(Role, _COUNTS, strict=True):
        marks = marks.append_column(name, pa.array((role & one > 0).astype(np.int64)))
    due, sent, repair = role & Role.DUE > 0, role & Role.SENT > 0, table.booleans("repair")
    marks = marks.append_column("asked", pa.array((sent & repair).astype(np.int64)))
    own_in_path = (role & Role.IN_PATH > 0) & at_source
    marks = marks.append_column("own_in_path", pa.array(own_in_path.astype(np.int64)))
    doubted = _unanswered(table, unanswered)
    marks = marks.append_column("unanswered", pa.array(doubted.astype(np.int64)))
    masked = {
        "origin_seq": ("seq", role & Role.ORIGIN > 0),
        "source_seq": ("seq", (due | sent) & at_source),
        "due_at": ("at", due),
        "due_epoch": ("epoch", due),
        "due_position": ("position", due),
        "sent_at": ("at", sent),
        "done_at": ("done", sent),
        "arrived_at": ("arrived", sent),
        "link_epoch": ("epoch", sent & ~repair),
        "link_version": ("version", sent & ~repair),
        "held_at": ("at", role & Role.HELD > 0),
        "restored_at": ("at", role & Role.RESTORED > 0),
        "expired_end": ("end", role & Role.EXPIRED > 0),
        "in_path_end": ("end", role & Role.IN_PATH > 0),
        "due_row": ("row", role & (Role.DUE | Role.AHEAD | Role.RESTORED) > 0),
        "sent_row": ("row", sent),
        "unanswered_row": ("row", doubted),
        "aside_row": ("row", role & (Role.EXPIRED | Role.IN_PATH | Role.REFUSED) > 0),
        "source_row": ("row", role & Role.ORIGIN > 0),
        "peer_row": ("row", role & Role.HELD > 0),
    }
    for name, (column, rows) in masked.items():
        marks = marks.append_column(name, _only(marks[column], rows))
    ends = [(f"{name}_end", which) for name, which in _ENDS]
    made = [
        *(("type", "max"), ("slot", "min")),
        *((name, "sum") for name in (*_COUNTS, "asked", "own_in_path", "unanswered")),
        *(("origin_seq", "max"), ("source_seq", "max")),
        # The marks are in order of time, so the first values belong together.
        *(("due_at", "first"), ("due_epoch", "first"), ("due_position", "first")),
        *(("link_epoch", "first"), ("link_version", "first")),
        *(*_TIMES, *_PLACES, *ends),
    ]
    return grouped(marks, (*EVENT, "node"), made)


def _by_event(senders: pa.Table) -> pa.Table:
    import pyarrow as pa
    from pyarrow import compute

    table = Columns(senders)
    sent = table.numbers("sent")
    unasked = sent - table.numbers("asked")
    senders = senders.append_column("senders", pa.array((unasked > 0).astype(np.int64)))
    senders = senders.append_column("repeated", pa.array(np.maximum(sent - 1, 0)))
    senders = senders.append_column("again", pa.array(np.maximum(unasked - 1, 0)))
    silent = _silent(table)
    senders = senders.append_column("silent", pa.array(silent.astype(np.int64)))
    senders = senders.append_column("silent_row", _only(senders["due_row"], silent))
    senders = senders.append_column("due_node", _only(senders["node"], table.numbers("due") > 0))
    senders = senders.append_column("sent_node", _only(senders["node"], sent > 0))
    senders = senders.append_column("link_node", _only(senders["node"], unasked > 0))
    counts = (*_COUNTS, "senders", "repeated", "asked", "again", "own_in_path", "unanswered", "silent")
    ends = [(f"{name}_end", which) for name, which in _ENDS]
    made = [
        *(("type", "max"), ("slot", "min")),
        *((name, "sum") for name in counts),
        *(("origin_seq", "max"), ("source_seq", "max")),
        *((name, "first") for name in ("due_at", "due_node", "due_epoch", "due_position", "sent_node")),
        *((name, "first") for name in ("link_node", "link_epoch", "link_version")),
        *(*_TIMES, *_PLACES, *ends, ("silent_row", "min")),
    ]
    # Of the senders that had to send an event, the first one without any delivery counts, because it has no reason.
    events = grouped(senders.sort_by([("silent", "descending"), ("due_at", "ascending")]), EVENT, made)
    due_row = compute.coalesce(events["silent_row"], events["due_row"])
    events = events.set_column(events.schema.get_field_index("due_row"), "due_row", due_row)
    events = events.append_column("delivery_row", compute.coalesce(*(events[name] for name in _DELIVERY_ROWS)))
    # The seq at the source, also from the rows that the source has as a sender.
    return events.append_column("seq", compute.coalesce(events["origin_seq"], events["source_seq"]))


def _silent(senders: Columns) -> Mask:
    """Return a mask of the senders whose links have passed an event without delivering it, and have no delivery of it
    ahead."""
    passed = senders.numbers("due") > 0
    for name in ("sent", "expired", "in_path", "refused", "ahead", "restored"):
        passed &= senders.numbers(name) == 0
    return passed


def _only(column: Any, rows: Mask) -> Any:
    """Return the column with null in all rows outside of the mask `rows`."""
    import pyarrow as pa
    from pyarrow import compute

    return compute.if_else(pa.array(rows), column, pa.scalar(None, column.type))


def _doubtful(marks: Columns, keeping: Collection[str], unanswered: Collection[RefusedRow]) -> Mask:
    """Return a mask of the marks of events that are not plainly in order: see `_plain`.

    The marks of one event and peer are counted by role, each in some bits of one number. Marks whose peer is the source
    are always among those returned, as are those of an event with more marks than these bits can count, of one whose
    rows differ, and of one for which a row says why it was not delivered that other rows refute.
    """
    source, peer = marks.words("source"), marks.words("peer")
    pair = key_of(*((column.codes, column.size) for column in (marks.words("group"), source, peer))).values
    record = marks.numbers("event") ^ (marks.numbers("fingerprint") * ODD)
    order = np.lexsort((pair, record))
    pair, event, role = pair[order], record[order], marks.numbers("role")[order]
    starts = np.concatenate(([0], np.flatnonzero((np.diff(event) != 0) | (np.diff(pair) != 0)) + 1))
    counted = _bits_by_role()[role]
    total = np.add.reduceat(counted, starts)
    has_ledgers = peer.where(keeping.__contains__)[order][starts]
    plain = np.where(has_ledgers, np.isin(_without_in_path(total), _plain(1)), np.isin(total, _plain(0)))
    marked = np.diff(starts, append=marks.rows)
    plain &= ~source.equal(peer)[order][starts] & (marked < 1 << _BITS)
    plain &= _even(marks.numbers("outline")[order], starts)
    stored = role & (Role.ORIGIN | Role.HELD) > 0
    content = marks.numbers("content")[order]
    plain &= _even(np.where(stored, content, _LEAST), starts, np.where(stored, content, _MOST))
    plain &= ~np.logical_or.reduceat(_refuted(marks, unanswered)[order], starts)
    # No event expires that has no expiry, or before it.
    expires = np.maximum.reduceat(marks.numbers("expires_at")[order], starts)
    given_up = np.minimum.reduceat(np.where(role & Role.EXPIRED > 0, marks.numbers("done")[order], _MOST), starts)
    plain &= np.where(expires == NEVER, given_up == _MOST, expires <= given_up)
    found = np.zeros(marks.rows, bool)
    found[order] = np.repeat(~plain, marked)
    return found


def _refuted(marks: Columns, unanswered: Collection[RefusedRow]) -> Mask:
    """Return a mask of the marks that cannot be right, whatever other rows say.

    A sender's own event has not come through a peer, and a peer does not refuse an event without an answer.
    """
    own = marks.words("node").equal(marks.words("source"))
    found: Mask = ((marks.numbers("role") & Role.IN_PATH > 0) & own) | _unanswered(marks, unanswered)
    return found


def _unanswered(marks: Columns, unanswered: Collection[RefusedRow]) -> Mask:
    """Return a mask of the marks of the refused events `unanswered`."""
    positions = marks.numbers("position")
    found: Mask = (marks.numbers("role") & Role.REFUSED > 0) & np.isin(positions, [row.position for row in unanswered])
    named = [marks.words(name) for name in ("node", "epoch", "group", "peer")]
    for at in np.flatnonzero(found).tolist():
        node, epoch, group, peer = (words.values[words.codes[at]] for words in named)
        found[at] = RefusedRow(NodeEpoch(node, epoch), group, peer, int(positions[at])) in unanswered
    return found


def _without_in_path(total: Numbers) -> Numbers:
    """Return counts of marks, in the form of `_bits`, without the marks of senders that left out an event because of
    its path if the peer holds it."""
    left_out = (total >> _BITS * _place(Role.IN_PATH)) % (1 << _BITS)
    held = (total >> _BITS * _place(Role.HELD)) % (1 << _BITS)
    found: Numbers = total - np.where(held > 0, left_out, 0) * _bits(Role.DUE | Role.IN_PATH)
    return found


def _even(high: Numbers, starts: Numbers, low: Numbers | None = None) -> Mask:
    """Return a mask of the runs of rows, which begin at `starts`, whose rows have equal values: where there are
    values, `high` equals `low`."""
    most, least = np.maximum.reduceat(high, starts), np.minimum.reduceat(high if low is None else low, starts)
    found: Mask = most <= least
    return found


_LEAST, _MOST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
_BITS: Final = 7
"""Bits for the count of each role; those of all roles fit in 63 bits."""


def _place(role: Role) -> int:
    """Return the place of a role among the counts of `_bits`."""
    return list(Role).index(role)


def _bits(role: Role, count: int = 1) -> int:
    """Return the number for `count` marks of each of these roles."""
    return sum(count << _BITS * at for at, one in enumerate(Role) if one in role)


@cache
def _bits_by_role() -> Numbers:
    """Return `_bits` for one mark of each combination of roles."""
    return np.array([_bits(Role(value)) for value in range(2 * max(Role))], np.int64)


@cache
def _plain(held: int) -> tuple[int, ...]:
    """Return the numbers, as of `_bits`, of events that are plainly in order. `held`: 0 for a peer without ledgers.

    The source has recorded such an event. In addition, one sender delivered it once, and the peer holds it or has no
    ledgers; or the only delivery ended as expired or refused or, if the peer has no ledgers to prove it, in the path;
    or it is pending at one sender; or no sender had it for the peer, or only in an epoch in which cells do not count
    it. A node that was restored records its events again in its new epoch, and holds again what it held: so an event
    may be recorded twice at its source and held twice.
    """
    found = []
    for recorded in (1, 2):
        origin = _bits(Role.ORIGIN, recorded)
        arrived = (1, 2) if held else (0, 1, 2)
        found += [origin + _bits(Role.DUE | Role.SENT) + _bits(Role.HELD, times) for times in arrived]
        asides = (Role.EXPIRED, Role.REFUSED) if held else (Role.EXPIRED, Role.IN_PATH, Role.REFUSED)
        found += [origin + _bits(Role.DUE | aside) for aside in asides]
        found += [origin + _bits(Role.AHEAD), origin + _bits(Role.RESTORED), origin]
    return tuple(found)
