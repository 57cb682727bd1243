"""The events that one source emits: only their commits are stored, and each event is computed from its number."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, NamedTuple

import numpy as np

from eventd.audit.generate.pseudo_random import (
    Bytes,
    Ints,
    Smalls,
    fingerprints,
    key_of,
    random_bits,
    random_of,
    uuids,
    write_uuids,
)
from eventd.audit.generate.settings import HOUR, MINUTE, TAIL, GeneratorSettings
from eventd.runtime.clock import SECOND

COMMIT: Final = 1_000
"""Maximum number of events of one commit, and so of one batch."""
SUBJECTS: Final = 4096
_BURST: Final = 400
"""Mean number of events in a burst."""
_APART: Final = 17
"""Microseconds between two events of a commit."""
_PACE: Final = 60_000
"""Microseconds between two commits of a burst."""


class EventColumns(NamedTuple):
    """Columns of n events. Times are by the clock of their source.

    `id` is text, [n, 36]; `type` and `subject` are indexes of names; an `expires_at` of 0 means that the event
    never expires.
    """

    id: Bytes
    fingerprint: Ints
    type: Smalls
    subject: Smalls
    bytes: Smalls
    event_at: Ints
    expires_at: Ints
    recorded_at: Ints
    position: Ints
    seq: Ints


@dataclass(eq=False)
class Emitter:
    """A source of events: commit k has those from `first[k]` up to but not including `first[k + 1]`, of one group.

    The commit is of `group[k]`, at true time `at[k]`; its last event was observed about `lag[k]` before that.
    `skew`: how far the node's clock is ahead. Times are in microseconds. `expiring` are the numbers
    of events that expire before they can be sent. `position` and `seq` are those of each commit's first event, set once
    the whole log is known. A ghost emits forged events: the node that they name never recorded them.
    """

    node: int
    key: int
    skew: int
    at: Ints
    first: Ints
    group: Ints
    lag: Ints
    types: Ints
    expiring: Ints
    position: Ints
    seq: Ints
    ghost: bool = False

    @property
    def commit_times(self) -> Ints:
        """Return the true time at which each commit entered the node's log."""
        return self.at

    @property
    def events(self) -> int:
        """Return the number of the emitter's events."""
        return int(self.first[-1])

    def commit_of(self, number: int) -> int:
        """Return the index of the commit with event `number`."""
        return int(np.searchsorted(self.first, number, "right")) - 1

    def numbers(self, group: int) -> Ints:
        """Return the numbers of the emitter's events in a group."""
        commits = np.repeat(self.group, np.diff(self.first))
        return np.flatnonzero(commits == group)

    def events_of(self, begin: int, end: int) -> EventColumns:
        """Return the columns of the events with numbers from `begin` up to but not including `end`."""
        numbers = np.arange(begin, end)
        commits, counts = self._commits(begin, end)
        offset = numbers - np.repeat(self.first[commits], counts)
        recorded_at = np.repeat(self.at[commits] + self.skew, counts)
        before = np.repeat(self.at[commits] - self.lag[commits] - _APART * np.diff(self.first)[commits], counts)
        event_at = before + _APART * offset + self.skew
        bits = random_bits(self.key, numbers).view(np.int64)
        ids = uuids(event_at, random_bits(self.key ^ 1, numbers))
        return EventColumns(
            id=write_uuids(ids),
            fingerprint=fingerprints(ids),
            type=self.types[bits & 0xFFFF].astype(np.int32),
            subject=(bits >> 16 & SUBJECTS - 1).astype(np.int32),
            bytes=280 + (bits >> 28 & 127).astype(np.int32),
            event_at=event_at,
            expires_at=self._expiry(begin, end, event_at, recorded_at, bits),
            recorded_at=recorded_at,
            position=np.repeat(self.position[commits], counts) + offset,
            seq=np.repeat(self.seq[commits], counts) + offset,
        )

    def _commits(self, begin: int, end: int) -> tuple[Ints, Ints]:
        """Return the indexes of the commits of a range of events, and how many events of the range each has."""
        last = self.commit_of(end - 1)
        commits = np.arange(self.commit_of(begin), last + 1)
        edges = np.clip(self.first[commits[0] : last + 2], begin, end)
        return commits, np.diff(edges)

    def _expiry(self, begin: int, end: int, event_at: Ints, recorded_at: Ints, bits: Ints) -> Ints:
        expires_at = np.where(bits >> 36 & 3 == 0, event_at + 48 * HOUR, 0)
        low, high = np.searchsorted(self.expiring, (begin, end))
        near = self.expiring[low:high] - begin
        expires_at[near] = recorded_at[near] + 1
        return expires_at


def make_emitters(
    settings: GeneratorSettings,
    skews: Ints,
    *,
    groups: int,
    types: int,
    pending: Mapping[int, int] = MappingProxyType({}),
) -> list[Emitter]:
    """Return an emitter per node. Events come in bursts, more by day than by night.

    `pending`: by node, how many of its events are emitted too late to be sent.
    """
    random = random_of(settings.seed, "shares")
    share = random.uniform(0.6, 1.4, settings.nodes)
    counts = random.multinomial(settings.events - sum(pending.values()), share / share.sum()).tolist()
    kinds = _types(types)
    return [
        _make_emitter(settings, node, count, int(skews[node]), groups, kinds, pending.get(node, 0))
        for node, count in enumerate(counts)
    ]


def make_ghost(settings: GeneratorSettings, of: Emitter, serial: int, at: Ints, group: int) -> Emitter:
    """Return an emitter that forges events in the name of the node of `of`, one at each of the true times `at`."""
    key = key_of(settings.seed, "ghost", serial)
    groups = np.full_like(at, group)
    return _build_emitter(settings, of.node, of.skew, key, at, np.ones_like(at), groups, of.types, ghost=True)


def _make_emitter(
    settings: GeneratorSettings, node: int, count: int, skew: int, groups: int, types: Ints, pending: int
) -> Emitter:
    random = random_of(settings.seed, "history", node)
    sizes = _bursts(random, count)
    begin = _moments(random, settings, len(sizes))
    group = random.integers(0, groups, len(sizes))
    commits = -(-sizes // COMMIT)
    burst = np.repeat(np.arange(len(sizes)), commits)
    step = np.arange(len(burst)) - np.repeat(np.cumsum(commits) - commits, commits)
    at = begin[burst] + (step + 1) * _PACE
    counts = np.minimum(COMMIT, sizes[burst] - step * COMMIT)
    order = np.argsort(at, kind="stable")
    at, counts, group = at[order], counts[order], group[burst[order]]
    late = settings.end + TAIL + np.arange(pending) * SECOND
    at, counts, group = (
        np.append(at, late),
        np.append(counts, np.ones_like(late)),
        np.append(group, late // SECOND % groups),
    )
    at = np.maximum.accumulate(at - np.arange(len(at))) + np.arange(len(at))  # commit times are unique
    return _build_emitter(settings, node, skew, key_of(settings.seed, "events", node), at, counts, group, types)


def _build_emitter(
    settings: GeneratorSettings,
    node: int,
    skew: int,
    key: int,
    at: Ints,
    counts: Ints,
    group: Ints,
    types: Ints,
    *,
    ghost: bool = False,
) -> Emitter:
    lag = random_of(settings.seed, "lag", key).lognormal(np.log(1500), 0.7, len(at))
    none = np.zeros(0, np.int64)
    return Emitter(
        node=node,
        key=key,
        skew=skew,
        at=at,
        first=np.append(0, np.cumsum(counts)),
        group=group,
        lag=lag.astype(np.int64) + 100,
        types=types,
        expiring=none,
        position=np.zeros_like(at),
        seq=np.zeros_like(at),
        ghost=ghost,
    )


def _bursts(random: np.random.Generator, count: int) -> Ints:
    """Return the sizes of bursts of `count` events in all: mostly few events, sometimes thousands."""
    mean = min(_BURST, max(2, count / 40))
    drawn = random.lognormal(np.log(mean) - 0.72, 1.2, int(count / mean * 2) + 20)
    sizes = np.clip(drawn, 1, 20_000).astype(np.int64)
    ends = np.minimum(np.cumsum(sizes), count)
    found = np.diff(np.append(0, ends))
    rest = count - int(ends[-1])
    return np.append(found[found > 0], np.full(1 if rest else 0, rest))


def _moments(random: np.random.Generator, settings: GeneratorSettings, count: int) -> Ints:
    """Return the true times at which `count` bursts begin, in order."""
    tail = min(TAIL, settings.span // 4)
    drawn = np.sort(random.random(count))
    days = max(1.0, settings.span / (24 * HOUR))
    warped = drawn + 0.07 / days * np.sin(2 * np.pi * days * drawn)
    usable = settings.span - tail - 2 * MINUTE
    return settings.start + MINUTE + (np.clip(warped, 0, 1) * usable).astype(np.int64)


def _types(count: int) -> Ints:
    """Return the number of a type for each of 65,536 equally likely draws: type 0 is common, the last is rare."""
    weight = 1 / np.arange(1, count + 1) ** 1.6
    edges = np.round(np.cumsum(weight) / weight.sum() * 65_536).astype(np.int64)
    return np.searchsorted(edges, np.arange(65_536), "right")
