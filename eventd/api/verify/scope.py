"""The scope of a comparison: which records both sides count, and over which positions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from eventd.api.admin.deliveries.peer_ledger import PeerLedger, open_ledger
from eventd.errors import Conflict
from eventd.groups.links import wanted_by
from eventd.groups.lookup import find_group, find_peer, read_group_topic
from eventd.log.core.head import read_head
from eventd.log.core.topic_row import TopicRow
from eventd.log.core.values import Head
from eventd.log.cursors.cursors import Cursor
from eventd.log.delivery.backlog import read_backlog
from eventd.log.delivery.digests import Exclusions, RecordFilter, oldest_kept, read_exclusions, taken_before
from eventd.resources.group_configuration import GroupConfig, PeerConfig
from eventd.store.engine.database import Connection
from federation.compare import MINUTE, MOST_FILTERS, RecordScope, State
from federation.event import micros
from federation.loops import decode_path
from federation.selector import Selector


@dataclass(frozen=True, slots=True)
class Scope:
    """The records in `(after, upto]` of this log that `chosen` takes, without `left_out`; of the peer's log, `what`.

    Up to `after`, nothing is compared: the peer received it before the oldest record that its retention has left (up to
    `removed_by_peer`), or this node's retention has evicted it. `upto` is the position of the peer's mark, or of this
    node's cursor if that is later or the mark does not apply; `waiting` is the number, perhaps estimated, of events for
    the peer after `upto`.
    `state` is the peer's answer.
    """

    group: GroupConfig
    peer: PeerConfig
    topic: TopicRow
    head: Head
    cursor: Cursor
    ledger: PeerLedger
    left_out: Exclusions
    chosen: RecordFilter
    what: RecordScope
    removed_by_peer: int
    after: int
    upto: int
    state: State
    waiting: int


class _PathsWithout(NamedTuple):
    """Accepts the stored paths that do not lead through `node`."""

    node: str

    def takes(self, text: str) -> bool:
        return self.node not in decode_path(text)


def _entered_here(text: str) -> bool:
    return not text


def read_scope(conn: Connection, group: str, node: str, state: State, now: int) -> Scope:
    """Return the scope of a comparison with the peer `node`, whose answer is `state`, in this snapshot.

    Raises NotFound for an undeclared group or peer, and Conflict until a node has registered the peer.
    """
    config = find_group(conn, group)
    peer = find_peer(config, node)
    ledger = open_ledger(conn, peer)
    cursor = ledger.link.cursor
    if cursor is None:
        raise Conflict(f"nothing has been sent to {node} yet", hint="start the node: routerd-eventd serve")
    topic, head = read_group_topic(conn, group), read_head(conn)
    kept = oldest_kept(conn, topic.id, now)
    since = None if kept is None else kept // MINUTE + 1
    own = not peer.relay
    takes_path = _entered_here if own else _PathsWithout(node).takes
    selector = peer.selector
    removed = 0
    if state.since is not None:
        removed = taken_before(conn, cursor.name, micros(state.since), config.replay_window)
    upto = _upto(head, cursor, state)
    return Scope(
        group=config,
        peer=peer,
        topic=topic,
        head=head,
        cursor=cursor,
        ledger=ledger,
        left_out=read_exclusions(conn, cursor.name),
        chosen=RecordFilter(takes_path, selector, not_source=node, since=since, own=own),
        what=_what(selector, own=own, since=since),
        removed_by_peer=removed,
        after=max(removed, topic.evicted_position),
        upto=upto,
        state=state,
        waiting=read_backlog(conn, topic.id, wanted_by(peer), after=upto, now=now).events,
    )


def _what(selector: Selector, *, own: bool, since: int | None) -> RecordScope:
    """Return the filter for the queries to the peer.

    A selector that is too long for a query is left out: the peer then lists more events, which are checked by id.
    """
    if max(len(selector.types), len(selector.subject_prefixes)) > MOST_FILTERS:
        return RecordScope(own=own, since=since)
    return RecordScope(own=own, types=selector.types, subject_prefixes=selector.subject_prefixes, since=since)


def _upto(head: Head, cursor: Cursor, state: State) -> int:
    """Return the last position of the scope.

    The peer's mark counts, because the peer has everything up to it even before the receipt arrives here.
    """
    mark = state.mark
    if mark is None or mark.epoch != head.epoch or mark.upto > head.last:
        return cursor.position
    return max(mark.upto, cursor.position)
