"""Unproven events of other nodes, by the node that brought them: a relay can withhold what proves them."""

from __future__ import annotations

from itertools import islice
from typing import Final, NamedTuple

from eventd.log.core.blocks import unpack_readable
from eventd.log.core.listing import place_at
from eventd.log.core.scan import scan_back
from eventd.log.core.values import Record
from eventd.log.witnesses.event_states import EventHistory, admitting_node, pick_in_state
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import fetch
from federation.loops import decode_path

MOST_LOOKED: Final = 2_000
"""How many of the newest records are looked at: each one is compared with a hash."""


class UnprovenEvents(NamedTuple):
    """How many events that `sender` brought are unproven, and the newest of them with the node that admitted it."""

    sender: str
    events: int
    event_id: str
    node: str


def read_unproven(conn: Connection, topic_id: int, group: str, since: int) -> list[UnprovenEvents]:
    """Return the unproven events among the newest that were stored from `since` on, an entry for each sender."""
    newest = "SELECT position + records FROM blocks WHERE topic_id = ? ORDER BY position DESC LIMIT 1"
    end = next((end for (end,) in fetch(conn, newest, (topic_id,))), 0)
    blocks = scan_back(conn, topic_id, place_at(conn, topic_id, since, end) - 1, end)
    looked = islice((one for block in blocks for one in reversed(unpack_readable(block))), MOST_LOOKED)
    recent = [one for one in looked if one.recorded_at >= since]
    found: dict[str, list[Record]] = {}
    for record in pick_in_state(conn, topic_id, group, recent, EventHistory.UNPROVEN):
        found.setdefault(decode_path(record.path)[-1], []).append(record)
    return [
        UnprovenEvents(sender, len(records), records[0].event_id, admitting_node(records[0]))
        for sender, records in sorted(found.items())
    ]
