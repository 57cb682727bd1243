"""The links of the lake's nodes, and the rows of `events` that each link has to deliver.

The selection of a link may change. Each version is in force for the positions that were acknowledged under it. Events
that only a later, wider version selects are sent afterwards, unless they had expired when it was declared. A callback
does not get such events: its selection is not applied to events that it has passed, or that precede its beginning.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np

from eventd.audit.arrays.columns import NEVER, Columns, Mask
from eventd.lake.manifest import decode_selection
from federation.selector import Selector

ENDLESS: Final = (1 << 63) - 1
"""A position after all others, and an expiry later than all others: that of an event that never expires."""


class SelectionVersion(NamedTuple):
    """One version of a selection, in force for the positions after those of the previous version, up to `upto`.

    It was declared at `declared_at` (microseconds). Events at earlier positions that only this version selects are
    sent by repairs, which have reached the position `reached`. `also`: other texts of this version, from rows that
    contradict `selection`; an event counts if any of the texts selects it.
    """

    selection: str
    declared_at: int = 0
    upto: int = ENDLESS
    reached: int = 0
    also: tuple[str, ...] = ()

    @property
    def texts(self) -> tuple[str, ...]:
        """Return all texts of the version."""
        return (self.selection, *self.also)


class LinkRow(NamedTuple):
    """The link of a node to one peer, or to one of its callbacks, in one group.

    The link has passed all positions up to `settled`. `begins`: the position before its first receipt (its cursor if it
    has none). Up to there, only events recorded at or after `created_at` (microseconds) count; earlier ones had expired
    or been evicted before the link existed. `versions` are in order. Unless it `looks_back`, a link sends no earlier
    events when its selection becomes wider.
    """

    group: str
    peer: str
    versions: tuple[SelectionVersion, ...]
    settled: int
    begins: int = 0
    created_at: int = 0
    looks_back: bool = True

    @property
    def terms(self) -> tuple[Any, ...]:
        """Return all fields but group and peer: links of a group with equal terms select the same rows."""
        return self[2:]

    @property
    def relays(self) -> bool:
        """Return whether any of its versions relays events of other nodes."""
        return any(_selector(text)[1] for version in self.versions for text in version.texts)

    @property
    def selects_by_payload(self) -> bool:
        """Return whether any of its versions has conditions on payloads, which are not evaluated."""
        return any(_selector(text)[0].payload for version in self.versions for text in version.texts)

    def within(self, after: int, upto: int) -> LinkRow:
        """Return the link, restricted to the positions in (after, upto]."""

        def clip(position: int) -> int:
            return min(max(position, after), upto)

        versions = tuple(
            version._replace(upto=clip(version.upto), reached=clip(version.reached))
            for version in self.versions
            if version.upto > after or version is self.versions[-1]
        )
        begins = clip(self.begins)
        return self._replace(
            versions=versions,
            settled=clip(self.settled),
            begins=begins,
            created_at=self.created_at if begins > after else 0,
        )


class LinkRows(NamedTuple):
    """Masks of the rows of `events` that a link selects: rows that the link has passed, and rows still ahead of it or
    of its repairs."""

    due: Mask
    ahead: Mask


COLUMNS: Final = ("group", "source", "type", "own", "position", "expires_at", "recorded_at")
"""The columns that selections need, apart from `subject`."""


class RowSelector:
    """Selects the rows of each link from one table of `events`; links with equal terms are computed once."""

    def __init__(self, table: Columns) -> None:
        self._table = table
        self._position = table.numbers("position")
        self._matched: dict[str, Mask] = {}
        self._selected: dict[tuple[Any, ...], LinkRows] = {}

    def select(self, link: LinkRow) -> LinkRows:
        """Return which of the rows that the link selects it has passed, and which are still ahead."""
        key = (link.group, *link.terms)
        if key not in self._selected:
            group = self._table.words("group").where(link.group.__eq__)
            due, ahead = self._by_terms(link)
            self._selected[key] = LinkRows(due & group, ahead & group)
        return self._selected[key]

    def _by_terms(self, link: LinkRow) -> LinkRows:
        position = self._position
        bounds = np.array([version.upto for version in link.versions[:-1]], np.int64)
        version = np.searchsorted(bounds, position, side="left")
        due = np.zeros(len(position), bool)
        late = np.zeros(len(position), bool)
        ahead = position > link.settled
        for at, one in enumerate(link.versions):
            wanted = np.logical_or.reduce([self._matches(text) for text in one.texts])
            due |= wanted & (version == at)
            if at and link.looks_back:
                newly = wanted & (version < at) & ~due & self._alive(one.declared_at)
                late |= newly
                ahead |= newly & (position > one.reached)
        # The last version ends, too, where a link ended that is no longer declared.
        meant = (due | late) & (position <= link.versions[-1].upto)
        if link.begins:
            meant &= (position > link.begins) | (self._table.numbers("recorded_at") >= link.created_at)
        return LinkRows(meant & ~ahead, meant & ahead)

    def _alive(self, time: int) -> Mask:
        expires = self._table.numbers("expires_at")
        alive: Mask = (expires == NEVER) | (expires >= time)
        return alive

    def _matches(self, selection: str) -> Mask:
        if selection not in self._matched:
            self._matched[selection] = self._match(*_selector(selection))
        return self._matched[selection]

    def _match(self, selector: Selector, relay: bool) -> Mask:
        table = self._table
        found = np.ones(table.rows, bool) if relay else table.booleans("own").copy()
        if selector.types:
            found &= table.words("type").where(selector.takes_type)
        if selector.subject_prefixes and "" not in selector.subject_prefixes:
            found &= _begins_with(table.texts("subject"), selector.subject_prefixes)
        if selector.sources:
            found &= table.words("source").where(selector.sources.__contains__)
        return found


def _begins_with(subjects: Any, prefixes: Sequence[str]) -> Mask:
    from pyarrow import compute

    found = np.zeros(0 if subjects is None else len(subjects), bool)
    for prefix in prefixes if len(found) else ():
        found |= compute.starts_with(subjects, prefix).to_numpy(zero_copy_only=False).astype(bool)
    return found


def distinct_selections(texts: Iterable[str]) -> tuple[str, ...]:
    """Return these texts of selections, without those that are equivalent to an earlier one."""
    found: dict[tuple[Selector, bool], str] = {}
    for text in texts:
        found.setdefault(_selector(text), text)
    return tuple(found.values())


def may_select(text: str, *, type: str, source: str, subjects: Collection[str]) -> bool:
    """Return whether a selection may match an event with these fields.

    `subjects` are those that rows of the event have; without any, its subject is unknown. Conditions on the path and on
    the payload are not considered.
    """
    selector, _ = _selector(text)
    prefixes = selector.subject_prefixes
    return (
        selector.takes_type(type)
        and (not selector.sources or source in selector.sources)
        and (not (prefixes and subjects) or any(subject.startswith(prefixes) for subject in subjects))
    )


@lru_cache(maxsize=4096)
def _selector(selection: str) -> tuple[Selector, bool]:
    """Parse a stored selection: its selector, and whether it relays events of other nodes."""
    stored = decode_selection(selection)
    return stored.selector, stored.relay
