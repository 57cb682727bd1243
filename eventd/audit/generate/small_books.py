"""The books of gaps and of refusals: short ones, as they are where nothing is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from eventd.audit.generate import arrays
from eventd.audit.generate.batches import key_id, key_ids
from eventd.audit.generate.cutting import cut
from eventd.audit.generate.mixing import Ints, random_of
from eventd.audit.generate.segments import Part, turns_of
from eventd.audit.generate.settings import HOUR, MINUTE
from eventd.audit.generate.world import World
from eventd.lake.schema import Book

_REASONS = ("unknown_key", "bad_signature", "stale", "no_signature")


def refusals_of(world: World, node: int) -> Iterator[Part]:
    """Strangers who tried, every few hours: those who know a key by name, and those who do not."""
    settings = world.settings
    random = random_of(settings.seed, "refusals", node)
    at = np.arange(settings.start + 20 * MINUTE, settings.end - MINUTE, min(4 * HOUR, settings.span // 2))
    at = at + random.integers(0, 10 * MINUTE, len(at))
    reason = random.integers(0, len(_REASONS), len(at))
    count = random.integers(1, 40, len(at))
    peers = np.array([peer for peer, to in world.pairs if to == node])
    peer = random.choice(peers, len(at))
    named = reason == 2  # it was signed, too long ago
    columns = {
        "peer": arrays.words([*world.names, "?"], np.where(named, peer, len(world.names))),
        "key_id": arrays.words(
            [*key_ids(world), ""], np.where(named, key_id(world, 0, at) + 2 * peer, 2 * len(world.names))
        ),
        "reason": arrays.words(_REASONS, reason),
        "count": arrays.ints(count),
        "first_at": arrays.times(at + world.skews[node] - 30_000_000),
        "last_at": arrays.times(at + world.skews[node]),
        "group": arrays.words(world.groups, random.integers(0, len(world.groups), len(at))),
    }
    yield from _parts(world, node, Book.REFUSALS, at, columns)


def gaps_of(world: World, node: int) -> Iterator[Part]:
    """A peer told of records that its retention took: others' records, which it had not to pass on."""
    random = random_of(world.settings.seed, "gaps", node)
    tellers = {sender for sender, peer in world.pairs if peer == node}
    fed = [
        one for one in world.courses if one.peer in tellers and one.sender != node and len(one.held) and not one.alone
    ]
    if not fed:
        return
    course = fed[int(random.integers(len(fed)))]
    batch = int(random.choice(np.flatnonzero(np.diff(course.held_at))))
    at = np.array([int(course.recorded[batch]) + MINUTE])
    after = int(course.position[batch]) - 1
    epoch = world.epoch(course.peer, int(turns_of(world, course.peer, course.recorded[batch : batch + 1])[0]))
    columns = {
        "group": arrays.word(world.groups[course.group], 1),
        "peer": arrays.word(world.names[course.peer], 1),
        "gap_epoch": arrays.word(epoch, 1),
        "after": arrays.ints(np.array([after])),
        "upto": arrays.ints(np.array([after + int(np.diff(course.held_at)[batch])])),
        "reason": arrays.word("lost", 1),
        "recorded_at": arrays.times(at + world.skews[node]),
    }
    yield from _parts(world, node, Book.GAPS, at, columns)


def _parts(world: World, node: int, book: Book, at: Ints, columns: dict[str, Any]) -> Iterator[Part]:
    times, turns = at + world.skews[node], turns_of(world, node, at)
    for one in cut(np.ones_like(at), times, turns, world.segment_rows):
        kept = {
            "number": arrays.ints(np.arange(one.begin + 1, one.end + 1)),
            "node": arrays.word(world.names[node], one.end - one.begin),
            "epoch": arrays.word(world.epoch(node, one.turn), one.end - one.begin),
        }
        some = {name: column.slice(one.begin, one.end - one.begin) for name, column in columns.items()}
        yield Part(book, one.turn, one.begin, one.end, int(times[one.begin]), [arrays.table(book, kept | some)])
