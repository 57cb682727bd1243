"""Stage 3, one segment: converts the rows of uneven slots to marks: node, event, and the role of the row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import IntFlag
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from eventd.audit.arrays.columns import NEVER, Columns, Numbers, constant
from eventd.audit.arrays.counts import is_among, key_of
from eventd.audit.arrays.row_hash import OUTLINE, contents, ids_hash, outlines
from eventd.audit.segments.event_cells import EVENT_COLUMNS
from eventd.audit.segments.link_rows import LinkRow, RowSelector
from eventd.lake.layout import MINUTE
from eventd.lake.schema import Ledger
from eventd.lake.writer import Segment

if TYPE_CHECKING:
    import pyarrow as pa

EVENT_ROWS: Final = (*EVENT_COLUMNS, "epoch", "seq")
DELIVERY_ROWS: Final = (
    *("node", "epoch", "group", "peer", "position", "seq", "source", "outcome", "attempt_at", "done_at"),
    *("peer_recorded_at", "batch_id", "receipt_digest", "key_id", "repair", "selector_version", *OUTLINE),
)
EVENT_KEYS: Final = ("group", "source", "event_at")
DELIVERY_KEYS: Final = ("group", "source", "peer", "event_at")
"""The columns that show which rows are in an uneven slot."""


class Role(IntFlag):
    """What a ledger row states about an event and a peer; a row may have several roles."""

    ORIGIN = 1  # recorded at its source
    DUE = 2  # a sender had it for the peer, and has passed it
    AHEAD = 4  # a sender has it for the peer, and has not reached it
    SENT = 8  # a sender delivered it
    EXPIRED = 16
    IN_PATH = 32
    REFUSED = 64
    HELD = 128  # the peer holds it
    RESTORED = 256  # as AHEAD, in a new epoch of the sender; cells count its row of the previous epoch instead


_ORIGIN, _DUE, _AHEAD, _HELD, _RESTORED = (
    np.int64(role) for role in (Role.ORIGIN, Role.DUE, Role.AHEAD, Role.HELD, Role.RESTORED)
)
_OUTCOMES: Final = {
    "delivered": Role.SENT,
    "expired": Role.EXPIRED,
    "in_path": Role.IN_PATH,
    "refused": Role.REFUSED,
}


class PairKey(NamedTuple):
    """A source of events and a peer that receives them, in one group."""

    group: str
    source: str
    peer: str


PAIR: Final = PairKey._fields
"""The names of the columns that identify a pair."""

UnevenSlots = Mapping[PairKey, Numbers]
"""The uneven slots (minutes) of each pair, distinct and ascending."""


def concerns(uneven: UnevenSlots, segment: Segment, links: Sequence[LinkRow]) -> bool:
    """Return whether a segment may hold rows of uneven slots; `links` are those of its node."""
    manifest = segment.manifest
    if manifest.slots is None or segment.place.book not in (Ledger.EVENTS, Ledger.DELIVERIES):
        return False
    served = {(link.group, link.peer) for link in links}
    for pair, slots in uneven.items():
        if segment.place.book is Ledger.EVENTS:
            near = manifest.node in (pair.source, pair.peer) or (pair.group, pair.peer) in served
        else:
            near = True  # a wrong delivery may be in the ledgers of any node
        at = int(np.searchsorted(slots, manifest.slots[0]))
        if near and at < len(slots) and slots[at] <= manifest.slots[1]:
            return True
    return False


def candidates(table: Columns, uneven: UnevenSlots) -> Numbers:
    """Return the indexes of the rows in an uneven slot of their pair.

    Rows of `events` name no peer: for these, an uneven slot of any pair with their group and source counts.
    """
    names = [name for name in PAIR if table.has(name)]
    words = [table.words(name) for name in names]
    known = [{text: code for code, text in enumerate(column.values)} for column in words]
    present = []
    for pair, slots in uneven.items():
        codes = [place.get(getattr(pair, name), -1) for place, name in zip(known, names, strict=True)]
        if min(codes) >= 0 and len(slots):
            present.append((codes, slots))
    if not present:
        return np.zeros(0, np.int64)
    every = np.unique(np.concatenate([slots for _, slots in present]))

    def keys(codes: Sequence[npt.NDArray[np.integer]], slot: Numbers) -> Numbers:
        ends = [(code, column.size) for code, column in zip(codes, words, strict=True)]
        return key_of(*ends, (np.searchsorted(every, slot), len(every) + 1)).values

    wanted = np.concatenate([keys([np.full(len(slots), one) for one in codes], slots) for codes, slots in present])
    slot = table.numbers("event_at") // MINUTE
    rows = np.flatnonzero(is_among(slot, every))
    return rows[is_among(keys([column.codes[rows] for column in words], slot[rows]), np.unique(wanted))]


def mark_events(
    table: Columns, links: Sequence[LinkRow], uneven: UnevenSlots, since: int = NEVER
) -> Iterator[pa.Table]:
    """Yield the marks of rows of `events` of a node with these links, a table for each pair; the rows are candidates.

    Rows recorded before `since` (microseconds) are never DUE; they are RESTORED where other rows would be AHEAD.
    """
    if not table.rows:
        return
    own, recorded = table.booleans("own"), table.numbers("recorded_at")
    kept = recorded >= since
    slot, selector = table.numbers("event_at") // MINUTE, RowSelector(table)
    node, group, source = (table.words(name) for name in ("node", "group", "source"))
    used = {(group.values[one], source.values[other]) for one, other in {*zip(group.codes, source.codes, strict=True)}}
    sources = {source.values[code] for code in np.unique(source.codes[own])}
    served = {(link.group, link.peer): link for link in links}
    for pair, wanted in uneven.items():
        link = served.get((pair.group, pair.peer)) if pair.source != pair.peer else None
        relays = link is not None and link.relays
        if (pair.group, pair.source) not in used or not (pair.source in sources or pair.peer in node.values or relays):
            continue
        role = own * _ORIGIN | (~own & node.where(pair.peer.__eq__)) * _HELD
        if link is not None:
            due, ahead = selector.select(link)
            role |= (due & kept) * _DUE | (ahead & kept) * _AHEAD | (ahead & ~kept) * _RESTORED
        inside = source.where(pair.source.__eq__) & group.where(pair.group.__eq__) & is_among(slot, wanted)
        places = np.flatnonzero(inside & (role > 0))
        if len(places):
            ends = {name: constant(text, len(places)).to_arrow() for name, text in pair._asdict().items()}
            yield _marks(table, role, places, ends, recorded)


def mark_deliveries(table: Columns, since: int = NEVER) -> Iterator[pa.Table]:
    """Yield at most one table: the marks of these rows of `deliveries`, without those done before `since` (µs)."""
    outcome = table.words("outcome")
    role = np.array([_OUTCOMES.get(value, Role.REFUSED) for value in outcome.values], np.int64)[outcome.codes]
    places = np.flatnonzero(table.numbers("done_at") >= since)
    if len(places):
        ends = {name: table.taken(name, places) for name in PAIR}
        yield _marks(table, role, places, ends, table.numbers("attempt_at"))


def _marks(table: Columns, role: Numbers, places: Numbers, ends: Mapping[str, pa.Array], at: Numbers) -> pa.Table:
    """Return the rows at the indexes `places` as marks. `at`: when each row of the table was recorded or first sent."""
    import pyarrow as pa

    def number(name: str) -> pa.Array:
        return pa.array(table.numbers(name)[places])

    sent = table.has("done_at")
    arrived = table.numbers("peer_recorded_at")[places] if sent else np.full(len(places), NEVER)
    outline = outlines(table, b"")
    content = np.zeros(table.rows, np.int64) if sent else contents(table, outline, b"")
    return pa.table(
        {
            "role": pa.array(role[places].astype(np.int16)),
            **{name: table.taken(name, places) for name in ("node", "epoch", "type", "id")},
            **ends,
            "slot": pa.array(table.numbers("event_at")[places] // MINUTE),
            **{name: number(name) for name in ("fingerprint", "seq", "position", "event_at", "bytes")},
            "at": pa.array(at[places]),
            "done": number("done_at") if sent else pa.array(at[places]),
            "arrived": pa.array(arrived, mask=arrived == NEVER),
            "event": pa.array(ids_hash(table)[places]),
            "outline": pa.array(outline[places]),
            "content": pa.array(content[places]),
            **(_of_delivery(table, places) if sent else _of_event(table, places)),
        }
    )


def _of_event(table: Columns, places: Numbers) -> dict[str, pa.Array]:
    """Return the columns of marks that rows of deliveries do not have, and empty columns for those that only
    deliveries have."""
    import pyarrow as pa

    rows = len(places)
    return {
        "subject": table.taken("subject", places),
        "expires_at": pa.array(table.numbers("expires_at")[places]),
        "digest": table.taken("digest", places),
        **{name: constant("", rows).to_arrow() for name in _OF_DELIVERIES},
        "repair": pa.array(np.zeros(rows, bool)),
        "version": pa.array(np.zeros(rows, np.int64)),
    }


def _of_delivery(table: Columns, places: Numbers) -> dict[str, pa.Array]:
    """Return the columns of marks that only rows of deliveries have, and empty columns for those that they do not
    have."""
    import pyarrow as pa

    rows = len(places)
    return {
        "subject": pa.array([""] * rows, pa.string()),
        "expires_at": pa.array(np.full(rows, NEVER)),
        "digest": pa.nulls(rows, pa.binary(32)),
        **{name: table.taken(name, places) for name in _OF_DELIVERIES},
        "repair": pa.array(table.booleans("repair")[places]),
        "version": pa.array(table.numbers("selector_version")[places]),
    }


_OF_DELIVERIES: Final = ("batch_id", "receipt_digest", "key_id")
