"""The slots in which the sums of two sides differ.

If the numbers and the sums of fingerprints agree on every side, every event of the slot is where it should be, and no
row has to be read. Otherwise, stage 3 compares the rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import numpy as np

from eventd.audit.arrays.columns import NEVER, Columns, Mask, Numbers, grouped
from eventd.audit.segments.cells import Measure
from eventd.audit.segments.row_marks import PAIR

if TYPE_CHECKING:
    import pyarrow as pa

_SUMS: Final = ("n", "total", "content")
"""The sums of a slot's cells: number of events, hashes of their outlines, hashes of their contents."""
_UNSENT: Final = (Measure.SLOT_REFUSED, Measure.SLOT_IN_PATH, Measure.SLOT_EXPIRED)
_BY_SENDER: Final = {
    "due": ((Measure.DUE,), _SUMS),
    "sent": ((Measure.SENT,), _SUMS[:2]),
    "aside": (_UNSENT, _SUMS[:2]),
    "in_path": ((Measure.SLOT_IN_PATH,), _SUMS[:2]),
    "relayed": ((Measure.RELAYED,), _SUMS[:2]),
    "held": ((Measure.HELD,), _SUMS),
}
"""The measures that are summed for each sender, and which of their sums, by the beginning of the columns' names."""


def uneven_slots(slots: pa.Table, reach: Mapping[str, int]) -> pa.Table:
    """Return the slots (group, source, peer, time) in which two sides differ, or deliveries form a loop.

    A loop: deliveries to the source itself, or by several senders. Slots in which a sender gives a reason for not
    sending events that the sums do not confirm are among those returned, too.
    """
    import pyarrow as pa

    by_sender = _sums_by_sender(slots)
    # The node of held events is the peer; the node of all others is a sender.
    sender = Columns(by_sender)
    sent, aside = sender.numbers("sent_n") > 0, sender.numbers("aside_n") > 0
    own = sender.words("node").equal(sender.words("source"))
    flags = {
        "broken": ~_agree(sender, ("due",), ("sent", "aside")) | _expired_early(sender),
        "senders": sent,
        "partly": sent & aside,
        **_masked(sender, "own", own),
        **_masked(sender, "whole", ~aside),
        **_unconfirmed(sender, own),
    }
    for name, column in flags.items():
        by_sender = by_sender.append_column(name, pa.array(column.astype(np.int64)))
    more = [*flags, "sent_n", "sent_total", *(f"held_{name}" for name in _SUMS)]
    least = [(name, "min") for name in ("sent_low", "held_low", "in_path_low")]
    pairs = grouped(by_sender, (*PAIR, "time"), [*((name, "sum") for name in more), *least])
    return pairs.filter(_differs(Columns(pairs), reach)).select([*PAIR, "time"])


def _sums_by_sender(slots: pa.Table) -> pa.Table:
    """Return the sums of the cells by pair, slot and node, as columns named by measure and sum.

    `NAME_low` is the earliest time of the deliveries or held events, `expiry` the latest expiry of a due event.
    """
    import pyarrow as pa

    cells = Columns(slots)
    what, low = cells.numbers("what"), cells.numbers("low")
    summed, ranged = [], []
    for name, (measures, sums) in _BY_SENDER.items():
        mine = np.isin(what, measures)
        for made in sums:
            slots = slots.append_column(f"{name}_{made}", pa.array(np.where(mine, cells.numbers(made), 0)))
            summed.append((f"{name}_{made}", "sum"))
    earliest = {"sent": Measure.SENT, "held": Measure.HELD, "in_path": Measure.SLOT_IN_PATH}
    for name, measure in (earliest | {"expired": Measure.SLOT_EXPIRED}).items():
        slots = slots.append_column(f"{name}_low", pa.array(low, mask=what != measure))
        ranged.append((f"{name}_low", "min"))
    slots = slots.append_column("expiry", pa.array(cells.numbers("high"), mask=what != Measure.DUE))
    return grouped(slots, (*PAIR, "time", "node"), [*summed, *ranged, ("expiry", "max")])


def _masked(senders: Columns, name: str, rows: Mask) -> dict[str, Numbers]:
    """Return the sums of the due events of the senders `rows`, 0 for others, as columns that begin with `name`."""
    return {f"{name}_{made}": np.where(rows, senders.numbers(f"due_{made}"), 0) for made in _SUMS}


def _expired_early(senders: Columns) -> Mask:
    """Return a mask of the senders that gave up an event as expired at a time when some event of the slot had not
    expired.

    Sums do not show whether it was the same event.
    """
    first = senders.numbers("expired_low")
    found: Mask = (first != NEVER) & (senders.numbers("expiry") > first)
    return found


def _unconfirmed(senders: Columns, own: Mask) -> dict[str, Numbers | Mask]:
    """Return columns on the senders that did not send events because of their path, which they cannot prove alone.

    `feigned`: an event of the sender's own has no path. `claims`: the peer's deliveries to the sender are not these
    events, so that the peer's ledger of events has to show that it had them; `claimed_*` are the sums of all events
    that the peer then has by the ledger of the sender.
    """
    in_path = senders.numbers("in_path_n") > 0
    claims = in_path & ~_agree(senders, ("in_path",), ("relayed",))
    claimed = {
        f"claimed_{made}": np.where(claims, senders.numbers(f"sent_{made}") + senders.numbers(f"in_path_{made}"), 0)
        for made in _SUMS[:2]
    }
    return {"feigned": in_path & own, "claims": claims, **claimed}


def _agree(table: Columns, one: tuple[str, ...], other: tuple[str, ...]) -> Mask:
    """Return a mask of the rows in which `one` and `other` have equal numbers of events and sums of outlines.

    Each side names the measures that are added up; sums wrap around.
    """
    same = np.ones(table.rows, bool)
    for made in ("n", "total"):
        left = sum((table.numbers(f"{name}_{made}") for name in one), np.zeros(table.rows, np.int64))
        right = sum((table.numbers(f"{name}_{made}") for name in other), np.zeros(table.rows, np.int64))
        same &= left == right
    return same


def _differs(pairs: Columns, reach: Mapping[str, int]) -> Mask:
    source, peer = pairs.words("source"), pairs.words("peer")
    sent = pairs.numbers("sent_n") > 0
    loops = (pairs.numbers("senders") > 1) | (sent & source.equal(peer))
    peer_reach = np.array([reach.get(name, 0) for name in peer.values], np.int64)[peer.codes]
    source_reach = np.array([reach.get(name, 0) for name in source.values], np.int64)[source.codes]
    # Deliveries after the end of the peer's ledgers are proven by receipts alone; held events that were recorded after
    # the end of the source's ledgers are no discrepancy.
    beyond = (~sent | (pairs.numbers("sent_low") > peer_reach)) & (
        (pairs.numbers("held_n") == 0) | (pairs.numbers("held_low") > source_reach)
    )
    has_ledgers = peer.where(lambda name: name in reach)
    # Of a slot that the peer holds in part, only its rows show which deliveries are known by the sender's claim alone.
    partly = sent & (pairs.numbers("held_n") > 0)
    lost: Mask = has_ledgers & ~_agree(pairs, ("sent",), ("held",)) & (~beyond | partly)
    reached = pairs.numbers("in_path_low") <= peer_reach
    broken = (pairs.numbers("broken") > 0) | (pairs.numbers("feigned") > 0)
    return broken | loops | lost | (has_ledgers & (_altered(pairs, beyond) | (reached & _unheld(pairs))))


def _unheld(pairs: Columns) -> Mask:
    """Return a mask of the rows in which it is not known that the peer holds the events which, as senders claim, came
    through it.

    It is known if each sender with such claims had sent, or left out for that reason, exactly the events that the peer
    holds: then the sum over these senders is the peer's sum times their number.
    """
    claims = pairs.numbers("claims")
    same = np.ones(pairs.rows, bool)
    for made in _SUMS[:2]:
        same &= pairs.numbers(f"claimed_{made}") == claims * pairs.numbers(f"held_{made}")
    found: Mask = (claims > 0) & ~same
    return found


def _altered(pairs: Columns, beyond: Mask) -> Mask:
    """Return a mask of the rows in which sender and peer have the same events, but with different contents.

    Rows of deliveries do not have all of an event's content. So the contents of the due events are compared with those
    of the held ones: of the source, if these are the same events, or else of all senders that sent all due events. If
    senders sent some of the due events only, which is not known from sums, the rows have to be compared.
    """
    held = pairs.numbers("held_n") > 0
    by_own, by_whole = (_agree(pairs, (name,), ("held",)) for name in ("own", "whole"))
    content = np.where(by_own, pairs.numbers("own_content"), pairs.numbers("whole_content"))
    known = by_own | by_whole
    unknown = ~known & (pairs.numbers("partly") > 0) & ~beyond
    found: Mask = held & ((known & (content != pairs.numbers("held_content"))) | unknown)
    return found
