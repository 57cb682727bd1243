"""Values of the log: drafts, records, gaps and the head."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from itertools import chain, groupby
from types import MappingProxyType
from typing import Final, NamedTuple, Self

from federation.lines import Bodies, size_of

NEVER: Final = 2**62
"""Later than any time, in microseconds."""


class Draft(NamedTuple):
    """An event on its way into the log.

    `body` is the event's canonical form and is stored as it is. `path` names the nodes it came through, encoded; empty
    means that it enters the log here. `expires_at` None: it never expires.
    """

    event_id: str
    node: str
    tag: str
    expires_at: int | None
    path: str
    body: str


@dataclass(frozen=True, slots=True)
class Drafts:
    """Drafts as columns.

    `types` and `sources` name all that occur, and maybe more; none expires before `expires_first`, and None means that
    none expires at all.

    Drafts of a topic of records have `sizes`, in bytes of data and meta, and no `event_ids`, unless they are copies
    that keep the identity of their originals. `key_id` is the key that signed the batch they came with; blank for none.
    """

    event_ids: Sequence[str] = ()
    paths: Sequence[str] = ()
    bodies: Sequence[str] = ()
    types: frozenset[str] = frozenset()
    sources: frozenset[str] = frozenset()
    expires_first: int | None = None
    sizes: Sequence[int] = ()
    key_id: str = ""

    @classmethod
    def of(cls, drafts: Sequence[Draft]) -> Self:
        """The columns of single drafts."""
        if not drafts:
            return cls()
        event_ids, nodes, tags, expiries, paths, bodies = zip(*drafts, strict=True)
        first = min((expiry for expiry in expiries if expiry is not None), default=None)
        return cls(event_ids, paths, bodies, frozenset(tags), frozenset(nodes), first)

    @classmethod
    def joined(cls, parts: Sequence[Drafts]) -> Drafts:
        """The drafts of several, one after the other."""
        if len(parts) == 1:
            return parts[0]
        expiries = [part.expires_first for part in parts if part.expires_first is not None]
        return cls(
            [*chain.from_iterable(part.event_ids for part in parts)],
            [*chain.from_iterable(part.paths for part in parts)],
            _joined([part.bodies for part in parts]),
            frozenset().union(*(part.types for part in parts)),
            frozenset().union(*(part.sources for part in parts)),
            min(expiries, default=None),
            [*chain.from_iterable(part.sizes for part in parts)],
        )

    def __len__(self) -> int:
        return len(self.bodies)

    def of_one_kind(self) -> Iterator[Drafts]:
        """Runs of drafts that all enter here, or all came from other nodes; mostly it is one."""
        distinct = set(self.paths)
        if len(distinct) == 1 or "" not in distinct:
            yield self
            return
        start = 0
        for _, run in groupby(self.paths, lambda path: path == ""):
            stop = start + len([*run])
            part = slice(start, stop)
            yield replace(
                self,
                event_ids=self.event_ids[part],
                paths=self.paths[part],
                bodies=self.bodies[part],
                sizes=self.sizes[part],
            )
            start = stop

    @property
    def of_records(self) -> bool:
        """Whether they are for a topic of records."""
        return bool(self.sizes)

    @property
    def own(self) -> bool:
        """Whether any enters the log here."""
        return "" in self.paths

    @property
    def bytes(self) -> int:
        """Of their bodies; of records, of their content."""
        if isinstance(self.bodies, Bodies):
            return self.bodies.bytes
        return sum(self.sizes or map(size_of, self.bodies))


def _joined(parts: Sequence[Sequence[str]]) -> Sequence[str]:
    texts = [part for part in parts if isinstance(part, Bodies)]
    return Bodies.joined(texts) if len(texts) == len(parts) else [*chain.from_iterable(parts)]


NOTHING = Drafts()


class Record(NamedTuple):
    """A record of the log."""

    position: int
    topic_id: int
    seq: int
    node: str
    tag: str
    subject: str
    event_id: str
    ts: int
    expires_at: int | None
    recorded_at: int
    path: str
    size: int
    body: str


class Outcome(IntEnum):
    """The outcome of a draft."""

    NEW = 0
    REFRESH = 1  # the same event with a later expiry: a record of its own, sent to peers as one
    DUPLICATE = 2  # the same event: nothing is written
    CONFLICT = 3  # the id is taken by another content or another source


class IdOwner(NamedTuple):
    """The owner of an event id: the source, and the key that signed it, blank where it was emitted at this node."""

    source: str
    key_id: str


class AppendResult(NamedTuple):
    """The outcome of each draft of one unit, in order. `positions` holds the id's latest record, also for a duplicate.

    A new record's seq is its position plus `shift`. `owners` names the owner of the id of each draft that is a
    conflict, by its index.
    """

    outcomes: Sequence[Outcome]
    positions: Sequence[int]
    shift: int = 0
    owners: Mapping[int, IdOwner] = MappingProxyType({})

    def count(self, outcome: Outcome) -> int:
        return self.outcomes.count(outcome)


@dataclass(frozen=True, slots=True)
class Gap:
    """Retention removed records of this topic that a reader behind `upto` has not seen."""

    topic_id: int
    after: int
    upto: int
    upto_seq: int


@dataclass(frozen=True, slots=True)
class Head:
    """The end of the log. `next_position` is the position the next record will get.

    `registry_version` moves with every declared change, `parts_version` with every change of what plugins derived,
    `topics_version` with every change of topics and routers: a read of the head shows all of them. `unsynced` names the
    run of the system that must not end before all commits are on the disk; empty: all are.
    """

    next_position: int
    epoch: str
    incarnation: int
    registry_version: int
    parts_version: int
    topics_version: int
    unsynced: str

    @property
    def last(self) -> int:
        """The last position given; 0 in an empty log."""
        return self.next_position - 1
