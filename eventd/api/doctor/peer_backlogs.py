"""Reads the backlogs and the dead letters of peers, in bounded reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from eventd.api.admin.deliveries.dead_letters import REFUSED_AGAIN
from eventd.api.admin.deliveries.peer_ledger import PeerLedger, open_ledger
from eventd.egress.cursors import link_name
from eventd.errors import EventdError
from eventd.groups.links import wanted_by
from eventd.log.core.topic_row import TopicRow
from eventd.log.core.values import Record
from eventd.log.core.wire_page import PeerFilter
from eventd.log.cursors.cursors import Cursor
from eventd.log.delivery.backlog import Backlog, read_backlog, read_backlogs, read_stale
from eventd.log.delivery.repairs import read_dead_letters
from eventd.resources.group_configuration import PeerConfig
from eventd.store.engine.database import Connection
from federation.event import is_alive

MOST_DEAD_LETTERS_OF_PEER = 1000
"""Maximum number of dead letters that are read for one peer, the newest ones; older ones count as retryable."""
MOST_DEAD_LETTERS = 5000
"""Maximum number of dead letters that are read for all peers of a group together; but for each peer with dead letters,
at least `FEWEST_DEAD_LETTERS` are read."""
FEWEST_DEAD_LETTERS = 10


@dataclass(frozen=True, slots=True)
class BacklogCounts:
    """The numbers of events after a peer's cursor: new `events`, and `stale` refreshes of events that it has passed.

    Durations in microseconds, None without any. `ready_for`: how long the oldest has been ready to be sent.
    `expires_in`: until the first of `events` expires; `stale_expires_in`: of the refreshes. Unless `in_full`, `events`
    is an upper bound.
    """

    events: int
    stale: int
    ready_for: int | None
    expires_in: int | None
    stale_expires_in: int | None
    in_full: bool


@dataclass(frozen=True, slots=True)
class DeadLetterCounts:
    """The numbers of a peer's dead letters: `retryable`, including those that were not read, and `spent`.

    `refused_again`: how many of the `retryable` the peer refuses every time. `expires_in`: microseconds until the
    first of the `retryable` expires. `taken_id`: the id of the newest one that another event has at the peer.
    """

    retryable: int = 0
    refused_again: int = 0
    taken_id: str = ""
    spent: int = 0
    expires_in: int | None = None


@dataclass(frozen=True, slots=True)
class PeerBacklog:
    """The backlog and the dead letters of a peer, and the ledger of its deliveries."""

    ledger: PeerLedger
    backlog: BacklogCounts
    dead_letters: DeadLetterCounts


def read_peer_backlogs(
    conn: Connection, topic: TopicRow, peers: Sequence[PeerConfig], dead_letters: Mapping[str, int], now: int
) -> list[PeerBacklog | EventdError]:
    """Return the backlog and dead letters of each of these peers, in order, or why they could not be read.

    `dead_letters`: the number of dead letters by peer, as the name of its link.
    """
    ledgers: list[PeerLedger | EventdError] = []
    for peer in peers:
        try:
            ledgers.append(open_ledger(conn, peer))
        except EventdError as error:
            ledgers.append(error)
    counts = iter(_count_backlogs(conn, topic, now, [one for one in ledgers if isinstance(one, PeerLedger)]))
    most = max(FEWEST_DEAD_LETTERS, min(MOST_DEAD_LETTERS_OF_PEER, MOST_DEAD_LETTERS // max(1, len(dead_letters))))
    found: list[PeerBacklog | EventdError] = []
    for peer, ledger in zip(peers, ledgers, strict=True):
        if isinstance(ledger, EventdError):
            found.append(ledger)
            continue
        found.append(PeerBacklog(ledger, next(counts), _read_dead_letters(conn, topic, peer, dead_letters, most, now)))
    return found


def _count_backlogs(conn: Connection, topic: TopicRow, now: int, ledgers: Sequence[PeerLedger]) -> list[BacklogCounts]:
    """Return the backlog of each link, in order. Links without stale refreshes, usually all, are counted together."""
    asked: list[tuple[PeerFilter, int]] = []
    refreshes: list[Sequence[Record]] = []
    for ledger in ledgers:
        wanted, cursor = wanted_by(ledger.peer), ledger.link.cursor
        asked.append((wanted, cursor.position if cursor else topic.evicted_position))
        refreshes.append(
            read_stale(conn, topic.id, wanted, after=cursor.position, now=now, cursor=cursor.name) if cursor else ()
        )
    plain = [each for each, stale in zip(asked, refreshes, strict=True) if not stale]
    together = iter(read_backlogs(conn, topic.id, plain, now=now))
    found: list[BacklogCounts] = []
    for (wanted, after), ledger, stale in zip(asked, ledgers, refreshes, strict=True):
        if stale:
            but = {record.position for record in stale}
            ahead = read_backlog(conn, topic.id, wanted, after=after, now=now, but=but)
        else:
            ahead = next(together)
        found.append(_backlog_counts(ahead, stale, ledger.link.cursor, now))
    return found


def _backlog_counts(ahead: Backlog, stale: Sequence[Record], cursor: Cursor | None, now: int) -> BacklogCounts:
    oldest = earliest([ahead.oldest, *(record.recorded_at for record in stale)])
    ready = None if oldest is None else max(oldest, cursor.created_at if cursor else 0)
    return BacklogCounts(
        ahead.events,
        len(stale),
        None if ready is None else max(0, now - ready),
        None if ahead.expires_first is None else ahead.expires_first - now,
        _left([record.expires_at for record in stale], now),
        ahead.exact,
    )


def _read_dead_letters(
    conn: Connection, topic: TopicRow, peer: PeerConfig, dead_letters: Mapping[str, int], most: int, now: int
) -> DeadLetterCounts:
    """Return the counts of all dead letters of a peer. Only the newest `most` are read and judged.

    Older ones count as retryable, and as refused again if all that were read and are live are.
    """
    name = link_name(peer.group, peer.node_name)
    total = dead_letters.get(name, 0)
    if not total:
        return DeadLetterCounts()
    newest = read_dead_letters(conn, topic.id, cursor=name, limit=most, newest=True)
    live = [one for one in newest if one.tag is not None and is_alive(one.expires_at, now)]
    spent = len(newest) - len(live)
    again = sum(one.reason in REFUSED_AGAIN for one in live)
    if live and again == len(live):  # older ones most likely have the same reason
        again = total - spent
    taken = next((one.event_id for one in live if one.reason == "id_conflict"), "")
    return DeadLetterCounts(total - spent, again, taken, spent, _left([one.expires_at for one in live], now))


def _left(expiries: Iterable[int | None], now: int) -> int | None:
    """Return the time from `now` until the earliest of these expiries; None if all are None."""
    first = earliest(expiries)
    return None if first is None else first - now


def earliest(numbers: Iterable[int | None]) -> int | None:
    """Return the least of the numbers that are not None; None if all are."""
    return min((number for number in numbers if number is not None), default=None)
