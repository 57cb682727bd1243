"""Counts the events of a pair that ledgers no longer show, but that its source or a sender had recorded.

They stay expected: rows that were erased or damaged must not make a pair look complete. Which of them were meant for
the peer is not known, so each count is the most that there can be.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from eventd.audit.segments.row_marks import PairKey
from eventd.audit.verdicts.erasures import Erasures
from eventd.lake.layout import LedgerSlug
from eventd.lake.reader import Survey, TroubleKind
from eventd.lake.schema import Ledger
from eventd.text.plural import counted


class HiddenEvents(NamedTuple):
    """Up to `events` events of a pair that cannot be judged, and the reason as a note of the pair."""

    events: int
    note: str


def count_damaged(survey: Survey, unreadable: Mapping[str, str], since: int) -> Counter[str]:
    """Return, by node, how many rows of `events` are in segments that are corrupt, unreadable or missing.

    For a segment without a readable manifest, the numbers of its range stand for its rows. Rows before a readable
    segment that begins before `since` (microseconds) do not count: their events are earlier, too.
    """
    found: Counter[str] = Counter()
    nodes = survey.node_names
    # The manifest of a segment that cannot be read may have been edited: only the segments after it show its time.
    ends: defaultdict[LedgerSlug, int] = defaultdict(int)
    for one in survey.segments:
        times = one.manifest.times
        if one.place.name not in unreadable and times is not None and times[0] < since:
            ends[one.place.ledger] = max(ends[one.place.ledger], one.after)
    for one in survey.segments:
        if one.place.book is Ledger.EVENTS and one.place.name in unreadable and one.upto > ends[one.place.ledger]:
            found[one.manifest.node] += one.manifest.rows
    for trouble in survey.troubles:
        if trouble.kind is not TroubleKind.CORRUPT or trouble.book is not Ledger.EVENTS:
            continue
        if trouble.upto > ends[LedgerSlug(trouble.node, trouble.epoch, trouble.book)]:
            found[nodes.get(trouble.node, trouble.node)] += trouble.upto - trouble.after
    return found


def hidden_events(
    key: PairKey, senders: Sequence[str], damaged: Mapping[str, int], erasures: Erasures, delivered: int
) -> list[HiddenEvents]:
    """Return the hidden events of a pair, by the node whose ledger does not show them.

    `damaged`: see `count_damaged`. `delivered`: how many of the damaged rows are known by their delivery to the peer.
    """
    found: defaultdict[str, int] = defaultdict(int)
    for node, events in _erased(key, senders, erasures):
        found[f"erased from the ledger of {node}"] += events
    for node in dict.fromkeys((key.source, *senders)):
        events = damaged.get(node, 0)
        found[f"in a missing or corrupt part of the ledger of {node}"] += max(0, events - delivered)
        delivered = max(0, delivered - events)
    return [
        HiddenEvents(events, f"up to {counted(events, 'event')} {where}") for where, events in found.items() if events
    ]


def _erased(key: PairKey, senders: Sequence[str], erasures: Erasures) -> Iterator[tuple[str, int]]:
    for node in dict.fromkeys((key.source, *senders)):
        yield node, erasures.unnamed[node, key.group]
    # Erased events of the source that have no delivery to this peer: some may have been meant for it.
    yield key.source, erasures.own[key.source, key.group] - erasures.shown[key]
