"""Stage 3, one segment: the rows of the slots that are not even, as marks that say who claims what of which event."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import IntFlag
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from eventd.audit.engine.cells import EVENT_COLUMNS
from eventd.audit.engine.columns import NEVER, Columns, Mask, Numbers
from eventd.audit.engine.links import Link, Owing, needs_subjects
from eventd.lake.layout import MINUTE
from eventd.lake.schema import Book
from eventd.lake.writer import Segment

if TYPE_CHECKING:
    import pyarrow as pa

EVENT_ROWS: Final = (*EVENT_COLUMNS, "epoch", "seq", "id")
DELIVERY_ROWS: Final = (
    *("node", "epoch", "group", "peer", "position", "seq", "id", "source", "type", "outcome", "event_at"),
    *("attempt_at", "done_at", "peer_recorded_at", "fingerprint"),
)
EVENT_KEYS: Final = ("group", "source", "event_at")
DELIVERY_KEYS: Final = ("group", "source", "peer", "event_at")
"""What is read to know which rows have to be looked at."""


class Role(IntFlag):
    """What a book says of an event and a peer; a row may say several things."""

    ORIGIN = 1  # its source stated it
    DUE = 2  # a sender had it for the peer, and is past it
    AHEAD = 4  # a sender has it for the peer, and is not there yet
    SENT = 8  # a sender delivered it
    EXPIRED = 16
    IN_PATH = 32
    REFUSED = 64
    HELD = 128  # the peer holds it


_ORIGIN, _DUE, _AHEAD, _HELD = (np.int64(role) for role in (Role.ORIGIN, Role.DUE, Role.AHEAD, Role.HELD))
_OUTCOMES: Final = {
    "delivered": Role.SENT,
    "expired": Role.EXPIRED,
    "in_path": Role.IN_PATH,
    "refused": Role.REFUSED,
}


class Line(NamedTuple):
    """The way of events from a source to a peer."""

    group: str
    source: str
    peer: str


Uneven = Mapping[Line, Numbers]
"""The slots of each line that have to be looked at, in order."""


def concerns(uneven: Uneven, segment: Segment, links: Sequence[Link]) -> bool:
    """Whether a segment may hold rows of these slots. `links` are those of its node."""
    manifest = segment.manifest
    if manifest.slots is None or segment.place.book not in (Book.EVENTS, Book.DELIVERIES):
        return False
    served = {(link.group, link.peer) for link in links}
    for line, slots in uneven.items():
        if segment.place.book is Book.EVENTS:
            near = manifest.node in (line.source, line.peer) or (line.group, line.peer) in served
        else:
            near = True  # a delivery that should not be may be in the books of anybody
        at = int(np.searchsorted(slots, manifest.slots[0]))
        if near and at < len(slots) and slots[at] <= manifest.slots[1]:
            return True
    return False


def event_rows(links: Sequence[Link]) -> tuple[str, ...]:
    """What has to be read of `events`."""
    return (*EVENT_ROWS, "subject") if needs_subjects(links) else EVENT_ROWS


def candidates(table: Columns, uneven: Uneven) -> Numbers:
    """The places of the rows that lie in a slot of their line; of any line of their source where they name no peer."""
    names = [name for name in Line._fields if table.has(name)]
    words = [table.words(name) for name in names]
    known = [{text: code for code, text in enumerate(column.values)} for column in words]
    slot = table.numbers("event_at") // MINUTE
    first, span = int(slot.min()), int(slot.max() - slot.min()) + 1
    wanted = np.zeros((*(column.size for column in words), span), bool)
    for line, slots in uneven.items():
        codes = [place.get(getattr(line, name), -1) for place, name in zip(known, names, strict=True)]
        near = slots[(slots >= first) & (slots < first + span)]
        if min(codes) >= 0 and len(near):
            at: tuple[Any, ...] = (*codes, near - first)
            wanted[at] = True
    places: tuple[Any, ...] = (*(column.codes for column in words), slot - first)
    return np.flatnonzero(wanted[places])


def _inside(slot: Numbers, slots: Numbers) -> Mask:
    """The rows in one of the slots, which are in order."""
    at = np.searchsorted(slots, slot).clip(0, len(slots) - 1)
    found: Mask = slots[at] == slot
    return found


def mark_events(table: Columns, links: Sequence[Link], uneven: Uneven, since: int = NEVER) -> Iterator[pa.Table]:
    """The marks of rows of `events` of a node with these links; the rows are candidates.

    Of what was recorded before `since` only counts what it says of now: that it was stated, is held, or still waits.
    """
    if not table.rows:
        return
    own, recorded = table.whether("own"), table.numbers("recorded_at")
    slot, owing = table.numbers("event_at") // MINUTE, Owing(table)
    node, group, source = (table.words(name) for name in ("node", "group", "source"))
    used = {(group.values[one], source.values[other]) for one, other in {*zip(group.codes, source.codes, strict=True)}}
    stated = {source.values[code] for code in np.unique(source.codes[own])}
    served = {(link.group, link.peer): link for link in links}
    for line, wanted in uneven.items():
        link = served.get((line.group, line.peer))
        passed_on = link is not None and link.relays
        if (line.group, line.source) not in used or not (
            line.source in stated or line.peer in node.values or passed_on
        ):
            continue
        role = own * _ORIGIN | (~own & node.where(line.peer.__eq__)) * _HELD
        if link is not None:
            due, ahead = owing.by(link)
            role |= (due & (recorded >= since)) * _DUE | ahead * _AHEAD
        inside = source.where(line.source.__eq__) & group.where(line.group.__eq__) & _inside(slot, wanted)
        places = np.flatnonzero(inside & (role > 0))
        if len(places):
            ends = {"group": _always(line.group, len(places)), "source": _always(line.source, len(places))}
            yield _marks(table, role, places, {**ends, "peer": _always(line.peer, len(places))}, recorded)


def mark_deliveries(table: Columns, since: int = NEVER) -> Iterator[pa.Table]:
    """The marks of rows of `deliveries`, which are candidates; those settled before `since` are left out."""
    outcome = table.words("outcome")
    role = np.array([_OUTCOMES.get(value, Role.REFUSED) for value in outcome.values], np.int64)[outcome.codes]
    places = np.flatnonzero(table.numbers("done_at") >= since)
    if len(places):
        ends = {name: table.taken(name, places) for name in Line._fields}
        yield _marks(table, role, places, ends, table.numbers("attempt_at"))


def _always(text: str, rows: int) -> pa.Array:
    """A column of words with one text."""
    import pyarrow as pa

    return pa.DictionaryArray.from_arrays(np.zeros(rows, np.int32), pa.array([text], pa.string()))


def _marks(table: Columns, role: Numbers, places: Numbers, ends: Mapping[str, pa.Array], at: Numbers) -> pa.Table:
    """Some rows as marks. `at` is when each was recorded or first sent."""
    import pyarrow as pa

    def number(name: str) -> pa.Array:
        return pa.array(table.numbers(name)[places])

    sent = table.has("done_at")
    arrived = table.numbers("peer_recorded_at")[places] if sent else np.full(len(places), NEVER)
    return pa.table(
        {
            "role": pa.array(role[places].astype(np.int16)),
            **{name: table.taken(name, places) for name in ("node", "epoch", "type", "id")},
            **ends,
            "slot": pa.array(table.numbers("event_at")[places] // MINUTE),
            **{name: number(name) for name in ("fingerprint", "seq", "position")},
            "at": pa.array(at[places]),
            "done": number("done_at") if sent else pa.array(at[places]),
            "arrived": pa.array(arrived, mask=arrived == NEVER),
        }
    )
