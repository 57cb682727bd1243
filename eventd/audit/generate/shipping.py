"""Writes the ledgers and the state of a node to a lake."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from eventd.audit.generate.batch_ledgers import InboundLedger, ReceiptsLedger
from eventd.audit.generate.batches import Batches
from eventd.audit.generate.catalogue import EventCatalogue
from eventd.audit.generate.delivery_ledger import DeliveriesLedger
from eventd.audit.generate.event_ledger import EventsLedger
from eventd.audit.generate.gap_ledgers import gaps_of, refusals_of
from eventd.audit.generate.log_positions import inbox_of, log_of, outbox_of, sizes_of
from eventd.audit.generate.pseudo_random import key_of
from eventd.audit.generate.segments import SegmentRows
from eventd.audit.generate.settings import HOUR
from eventd.audit.generate.world import Link, World
from eventd.lake.layout import landing
from eventd.lake.manifest import GroupState, NodeState, PeerState, SegmentRange, Selection, SelectionConditions
from eventd.lake.schema import Ledger
from eventd.lake.storage import Storage
from eventd.lake.writer import Segment, write_segment, write_state
from eventd.runtime.clock import SECOND


def ship(world: World, catalogue: EventCatalogue, node: int, storage: Storage) -> list[Segment]:
    """Write all ledgers of a node, and its state in each epoch; return the segments. Raises LakeUnavailable."""
    closed = world.closed(node)
    segments: list[tuple[int, Segment]] = []
    events = EventsLedger(world, node, catalogue)
    for part in _segments(world, catalogue, node, events):
        epoch = world.epoch(node, part.epoch_index)
        place = landing(part.book, world.names[node], epoch, part.after, part.upto, at=part.at)
        written = write_segment(
            storage, place, part.tables, node=world.names[node], now=closed, payloads=world.payloads
        )
        segments.append((part.epoch_index, written))
    for epoch_index in range(1 + (node in world.restarts)):
        shipped = [one for at, one in segments if at == epoch_index]
        write_state(storage, _state(world, node, epoch_index, shipped, events))
    return [segment for _, segment in segments]


def _segments(world: World, catalogue: EventCatalogue, node: int, events: EventsLedger) -> Iterator[SegmentRows]:
    yield from events.segments()
    sent = Batches(world, outbox_of(world, node))
    receipts = ReceiptsLedger(world, node, sent)
    yield from receipts.segments()
    yield from DeliveriesLedger(world, node, catalogue, sent, receipts.digests).segments()
    yield from InboundLedger(world, node, Batches(world, inbox_of(world, node))).segments()
    yield from gaps_of(world, node)
    yield from refusals_of(world, node)


def _state(world: World, node: int, epoch_index: int, segments: list[Segment], events: EventsLedger) -> NodeState:
    begun, closed = world.settings.start + int(world.skews[node]), world.closed(node)
    if node in world.restarts:
        moment = world.restarts[node] + int(world.skews[node])
        begun, closed = (begun, moment) if epoch_index == 0 else (moment, closed)
    reaches: dict[Ledger, SegmentRange] = {}
    for _, manifest in segments:
        after = reaches[manifest.book].after if manifest.book in reaches else manifest.after
        reaches[manifest.book] = SegmentRange(after=after, upto=manifest.upto)
    head = _head(world, node, epoch_index)
    return NodeState(
        node=world.names[node],
        epoch=world.epoch(node, epoch_index),
        instance=f"{key_of(world.settings.seed, 'instance', node):016x}",
        began_at=begun,
        as_of=closed,
        head=head,
        complete_until=closed - (0 if epoch_index == 0 and node in world.restarts else SECOND),
        books={book: reach.upto for book, reach in reaches.items()},
        segments=reaches,
        groups=tuple(
            _group(world, node, group, head, events.last_seq(group, epoch_index)) for group in range(len(world.groups))
        ),
        payloads=world.payloads,
        closed_at=closed,  # the node is out of service
    )


def _head(world: World, node: int, epoch_index: int) -> int:
    """Return the last position that the node's log had in an epoch."""
    if epoch_index or node not in world.restarts:
        return world.heads[node]
    journal = log_of(world, node)
    return int(sizes_of(world, journal, world.emitters[node])[journal.at < world.restarts[node]].sum())


def _group(world: World, node: int, group: int, head: int, last_seq: int) -> GroupState:
    links = [link for link in world.links if (link.sender, link.group) == (node, group)]
    peers = tuple(_peer(world, link, head) for link in links)
    return GroupState(group=world.groups[group], peers=peers, last_seq=last_seq, evicted_seq=0)


def _peer(world: World, link: Link, head: int) -> PeerState:
    skew, begun = int(world.skews[link.sender]), world.settings.start - HOUR
    emitter = world.emitters[link.sender]
    late = np.flatnonzero(emitter.at >= world.settings.end)
    selections = tuple(
        Selection(
            version=version,
            declared_at=terms.since + skew - SECOND,
            selection=SelectionConditions.of(terms.selection),
        )
        for version, terms in enumerate(link.terms, 1)
    )
    return PeerState(
        peer=world.names[link.peer],
        selections=selections,
        relay=link.relay,
        since=begun + skew,
        cursor=int(emitter.position[late[0]]) - 1 if len(late) else head,
        created_at=begun + skew,
    )
