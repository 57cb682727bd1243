"""The types of stored events that a peer gets no more once its filter is narrowed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from eventd.groups.lookup import read_group_topic
from eventd.log.core.listing import EventQuery, list_latest
from eventd.log.delivery.selection import Selection
from eventd.resources.apply import Change
from eventd.resources.kinds.event_peer import EventPeerSpec
from eventd.resources.reading.documents import Identity
from eventd.store.engine.database import Connection
from federation.selector import Selector

_LOOKED_AT: Final = 500
"""Maximum number of the newest events of a group that are looked at."""
_MOST_TYPES: Final = 20


def read_stopped_types(conn: Connection, changes: Iterable[Change], now: int) -> dict[Identity, list[str]]:
    """Return, for each EventPeer whose filter lets in less, the types of the group's newest live events that it leaves
    out and the filter before did not."""
    found = {}
    for change in changes:
        before, after = change.specs()
        if not change.narrows() or not isinstance(before, EventPeerSpec) or not isinstance(after, EventPeerSpec):
            continue
        topic = read_group_topic(conn, after.group_ref).id
        newest = list_latest(conn, EventQuery(topic, now=now, newest=True, limit=_LOOKED_AT)).records if topic else ()
        old, new = _selection(before), _selection(after)
        types = {record.tag for record in newest if old.matches(record) and not new.matches(record)}
        found[change.identity] = sorted(types)[:_MOST_TYPES]
    return found


def _selection(peer: EventPeerSpec) -> Selection:
    return Selection(Selector.of(types=peer.types, subject_prefixes=peer.subject_prefixes), peer.relay)
