"""The ledgers of gaps and refusals, as a healthy federation writes them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from eventd.audit.generate import arrow_columns
from eventd.audit.generate.batches import key_id, key_ids
from eventd.audit.generate.pseudo_random import Ints, random_of
from eventd.audit.generate.segments import SegmentRows, divide, epochs_of
from eventd.audit.generate.settings import HOUR, MINUTE
from eventd.audit.generate.world import World
from eventd.lake.schema import Ledger

_REASONS = ("unknown_key", "bad_signature", "stale", "no_signature")


def refusals_of(world: World, node: int) -> Iterator[SegmentRows]:
    """Yield the segments of a node's refusals ledger: every few hours, a row of up to 39 refused requests."""
    settings = world.settings
    random = random_of(settings.seed, "refusals", node)
    at = np.arange(settings.start + 20 * MINUTE, settings.end - MINUTE, min(4 * HOUR, settings.span // 2))
    at = at + random.integers(0, 10 * MINUTE, len(at))
    reason = random.integers(0, len(_REASONS), len(at))
    count = random.integers(1, 40, len(at))
    peers = np.array([peer for peer, to in world.pairs if to == node])
    peer = random.choice(peers, len(at))
    named = reason == 2  # a stale request is signed, so its sender is known
    columns = {
        "peer": arrow_columns.dictionary([*world.names, "?"], np.where(named, peer, len(world.names))),
        "key_id": arrow_columns.dictionary(
            [*key_ids(world), ""], np.where(named, key_id(world, 0, at) + 2 * peer, 2 * len(world.names))
        ),
        "reason": arrow_columns.dictionary(_REASONS, reason),
        "count": arrow_columns.int64(count),
        "first_at": arrow_columns.timestamps(at + world.skews[node] - 30_000_000),
        "last_at": arrow_columns.timestamps(at + world.skews[node]),
        "group": arrow_columns.dictionary(world.groups, random.integers(0, len(world.groups), len(at))),
    }
    yield from _segments(world, node, Ledger.REFUSALS, at, columns)


def gaps_of(world: World, node: int) -> Iterator[SegmentRows]:
    """Yield a segment of the node's gaps ledger with one gap, declared by a peer that lost events of other nodes.

    Nothing is missing because of it: the peer does not relay these events to the node. There is no segment if no peer
    received events of other nodes.
    """
    random = random_of(world.settings.seed, "gaps", node)
    senders = {sender for sender, peer in world.pairs if peer == node}
    fed = [one for one in world.flows if one.peer in senders and one.sender != node and len(one.held) and not one.alone]
    if not fed:
        return
    flow = fed[int(random.integers(len(fed)))]
    batch = int(random.choice(np.flatnonzero(np.diff(flow.held_at))))
    at = np.array([int(flow.recorded[batch]) + MINUTE])
    after = int(flow.position[batch]) - 1
    epoch = world.epoch(flow.peer, int(epochs_of(world, flow.peer, flow.recorded[batch : batch + 1])[0]))
    columns = {
        "group": arrow_columns.constant(world.groups[flow.group], 1),
        "peer": arrow_columns.constant(world.names[flow.peer], 1),
        "gap_epoch": arrow_columns.constant(epoch, 1),
        "after": arrow_columns.int64(np.array([after])),
        "upto": arrow_columns.int64(np.array([after + int(np.diff(flow.held_at)[batch])])),
        "reason": arrow_columns.constant("lost", 1),
        "recorded_at": arrow_columns.timestamps(at + world.skews[node]),
    }
    yield from _segments(world, node, Ledger.GAPS, at, columns)


def _segments(world: World, node: int, book: Ledger, at: Ints, columns: dict[str, Any]) -> Iterator[SegmentRows]:
    times, epoch_indexes = at + world.skews[node], epochs_of(world, node, at)
    for one in divide(np.ones_like(at), times, epoch_indexes, world.segment_rows):
        kept = {
            "number": arrow_columns.int64(np.arange(one.begin + 1, one.end + 1)),
            "node": arrow_columns.constant(world.names[node], one.end - one.begin),
            "epoch": arrow_columns.constant(world.epoch(node, one.epoch_index), one.end - one.begin),
        }
        some = {name: column.slice(one.begin, one.end - one.begin) for name, column in columns.items()}
        yield SegmentRows(
            book, one.epoch_index, one.begin, one.end, int(times[one.begin]), [arrow_columns.table(book, kept | some)]
        )
