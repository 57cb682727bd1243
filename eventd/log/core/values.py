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
FEW_RECORDS: Final = 8
FEW_BYTES: Final = 16 * 1024
"""Maximum number of drafts, and of bytes of their bodies, that are few."""


class Draft(NamedTuple):
    """An event on its way into the log.

    `body` is the event's canonical form and is stored unchanged. `path` names the nodes it has passed, encoded;
    empty: it enters the log at this node. `expires_at` is in microseconds; None: it never expires.
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

    `types` and `sources` name all that occur, and maybe more, unless they are more than a block lists. None expires
    before `expires_first`; without it, none expires.

    Drafts of a topic of records have `sizes`, in bytes of data and meta, and no `event_ids`, unless they are copies
    that keep the ids of the copied records. `key_id` is the key that signed their batch; empty without one.
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
        """Return the columns of single drafts."""
        if not drafts:
            return cls()
        event_ids, nodes, tags, expiries, paths, bodies = zip(*drafts, strict=True)
        first = min((expiry for expiry in expiries if expiry is not None), default=None)
        return cls(event_ids, paths, bodies, frozenset(tags), frozenset(nodes), first)

    @classmethod
    def joined(cls, parts: Sequence[Drafts]) -> Drafts:
        """Return all drafts of the `parts`, concatenated; without a `key_id`, if there are several parts."""
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

    @property
    def are_few(self) -> bool:
        """Return whether to store them takes hardly longer than to store a single one."""
        return len(self.bodies) <= FEW_RECORDS and self.bytes <= FEW_BYTES

    def of_one_kind(self) -> Iterator[Drafts]:
        """Yield the drafts in runs, usually one, in each of which all paths are empty, or none is."""
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
        """Return whether they are for a topic of records."""
        return bool(self.sizes)

    @property
    def own(self) -> bool:
        """Return whether any draft has an empty path: it enters the log here, not as a router's copy of a record."""
        return "" in self.paths

    @property
    def bytes(self) -> int:
        """Return the bytes of their bodies; of records, of their content."""
        if isinstance(self.bodies, Bodies):
            return self.bodies.bytes
        return sum(self.sizes or map(size_of, self.bodies))


def _joined(parts: Sequence[Sequence[str]]) -> Sequence[str]:
    texts = [part for part in parts if isinstance(part, Bodies)]
    return Bodies.joined(texts) if len(texts) == len(parts) else [*chain.from_iterable(parts)]


NOTHING = Drafts()


class Record(NamedTuple):
    """A record of a group's topic: an event, by its `body`, with its place in the log.

    `node` is its source, `tag` its type, `ts` the time of observation, and `path` the encoded path. Times in
    microseconds, `size` in bytes.
    """

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
    REFRESH = 1  # the same event with a later expiry: stored as a new record, and sent to peers
    DUPLICATE = 2  # the same event: nothing is written
    CONFLICT = 3  # the id belongs to another content or source


class IdOwner(NamedTuple):
    """The source of the event that has an id, and the id of the key that signed the batch with that event.

    `key_id` is empty if the event was emitted at this node. Each is `?` if unknown. `digest` is that of the event's
    canonical form, in hexadecimal; empty if the event is not stored any more.
    """

    source: str
    key_id: str
    digest: str = ""


class LeafRun(NamedTuple):
    """Neighbouring records whose leaves are neighbours, too: `records` from `position` and from `leaf` on."""

    position: int
    records: int
    tree: int
    leaf: int


class AppendResult(NamedTuple):
    """For each draft of one unit, in order, its outcome and the position of the latest record of its id.

    In a topic of records, a new record's seq is its position plus `shift`. `owners` holds the owner of the id of each
    conflicting draft, by the draft's index. `leaves` has those of all records of the transaction that have one.
    """

    outcomes: Sequence[Outcome]
    positions: Sequence[int]
    shift: int = 0
    owners: Mapping[int, IdOwner] = MappingProxyType({})
    leaves: tuple[LeafRun, ...] = ()

    def count(self, outcome: Outcome) -> int:
        return self.outcomes.count(outcome)


@dataclass(frozen=True, slots=True)
class Gap:
    """Retention removed records of this topic at positions in `(after, upto]` before a reader at `after` got them.

    `upto_seq` is the last seq that is removed.
    """

    topic_id: int
    after: int
    upto: int
    upto_seq: int


@dataclass(frozen=True, slots=True)
class Head:
    """The end of the log. `next_position` is the position of the next record.

    `registry_version` changes with the declared resources, `parts_version` with the parts of plugins, `topics_version`
    with topics, routers and API keys: one read of the head shows all of them. `unsynced` names the boot of the system,
    or the run of Postgres, that must not crash before all commits are flushed; empty: all are.
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
        """Return the last assigned position; 0 before the first."""
        return self.next_position - 1
