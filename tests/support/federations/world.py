"""Federations of other shapes: rings, several groups, silent nodes, events that no peer has yet."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from eventd.audit.generate.emitters import Emitter, make_emitters
from eventd.audit.generate.pseudo_random import Ints, Mask, random_of
from eventd.audit.generate.settings import TAIL
from eventd.audit.generate.world import World, ring, type_names
from eventd.errors import Invalid
from tests.support.federations.settings import FullSettings


def types_of(emitter: Emitter, numbers: Ints) -> Ints:
    """Return the types of an emitter's events with these ascending numbers."""
    if not len(numbers):
        return numbers
    begin = int(numbers[0])
    types: Ints = emitter.events_of(begin, int(numbers[-1]) + 1).type[numbers - begin].astype(np.int64)
    return types


def alive(emitter: Emitter, numbers: Ints, at: int) -> Mask:
    """Return a mask of the events with these ascending numbers that have not expired at a true time."""
    if not len(numbers):
        return np.zeros(0, bool)
    begin = int(numbers[0])
    expires_at = emitter.events_of(begin, int(numbers[-1]) + 1).expires_at[numbers - begin]
    living: Mask = (expires_at == 0) | (expires_at >= at + emitter.skew)
    return living


@dataclass(eq=False)
class FullWorld(World):
    """The world of full settings."""

    settings: FullSettings

    def __post_init__(self) -> None:
        self.segment_rows, self.payloads = self.settings.segment_rows, self.settings.payloads

    @cached_property
    def groups(self) -> list[str]:
        return ["edge", *(f"edge-{number}" for number in range(2, self.settings.groups + 1))]

    @cached_property
    def types(self) -> list[str]:
        return type_names(self.settings.types)

    @cached_property
    def emitters(self) -> list[Emitter]:
        pending = {self.settings.waiting: self.settings.pending}
        sizes = {"groups": self.settings.groups, "types": self.settings.types}
        emitters = make_emitters(self.settings, self.skews, **sizes, pending=pending)
        random = random_of(self.settings.seed, "expiring")
        share = random.multinomial(self.settings.expire, np.full(self.settings.nodes, 1 / self.settings.nodes))
        for emitter, count in zip(emitters, share, strict=True):
            sent = int(emitter.first[np.searchsorted(emitter.at, self.settings.end)])
            wanted = np.flatnonzero(types_of(emitter, np.arange(sent)) == 0)  # the type that every peer selects
            if count > len(wanted):
                raise Invalid("too many events are to expire", hint="raise events, or lower expire")
            emitter.expiring = np.sort(random.choice(wanted, count, replace=False))
        return emitters

    @cached_property
    def silent(self) -> frozenset[int]:
        last = self.settings.nodes - 1 - self.settings.in_path
        nodes = [node for node in range(int(self.settings.in_path), last + 1) if node != self.settings.waiting]
        chosen = random_of(self.settings.seed, "silent").permutation(nodes)[: self.settings.silent]
        return frozenset(chosen.tolist())

    @cached_property
    def pairs(self) -> list[tuple[int, int]]:
        """Return the pairs of nodes that are linked. With `in_path`, the last node is reached through the first one
        only."""
        last, pairs = self.settings.nodes - 1, ring(self.settings.nodes, self.settings.fanout)
        return [pair for pair in pairs if not self.settings.in_path or last not in pair or 0 in pair]

    def closed(self, node: int) -> int:
        waiting = self.settings.pending and node == self.settings.waiting
        return super().closed(node) + (2 * TAIL if waiting else 0)
