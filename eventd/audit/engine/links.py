"""What was meant for whom: the links of the lake's nodes, and which records each of them had to carry.

A link's selection may change. Each version is in force for the positions that were gone through under it; what a later,
wider one lets in is sent afterwards, as far as it was still alive when it was declared.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np

from eventd.audit.engine.columns import NEVER, Columns, Mask
from federation.selector import Selector

ENDLESS: Final = (1 << 63) - 1
"""A position beyond all others."""


class Wish(NamedTuple):
    """One version of what a peer is to get: in force for positions up to `upto`, declared at a time in microseconds.

    What it wants of the positions before is sent afterwards; that has come as far as the position `reached`.
    """

    selection: str
    declared_at: int = 0
    upto: int = ENDLESS
    reached: int = 0


class Link(NamedTuple):
    """What one node sends to one peer in one group.

    All positions up to `settled` have been gone through. Of those up to `begins`, only what was recorded after
    `created_at` is of the link: the rest was expired or gone when it began. `wishes` are in order of their versions.
    """

    group: str
    peer: str
    wishes: tuple[Wish, ...]
    settled: int
    begins: int = 0
    created_at: int = 0

    @property
    def terms(self) -> tuple[Any, ...]:
        """All but whose link it is: links of the same terms want the same."""
        return self[2:]

    @property
    def relays(self) -> bool:
        """Whether any of its versions passes on what came from others."""
        return any(_selector(wish.selection)[1] for wish in self.wishes)

    def within(self, after: int, upto: int) -> Link:
        """The link as far as the positions in (after, upto] are concerned."""

        def clip(position: int) -> int:
            return min(max(position, after), upto)

        wishes = tuple(
            wish._replace(upto=clip(wish.upto), reached=clip(wish.reached))
            for wish in self.wishes
            if wish.upto > after or wish is self.wishes[-1]
        )
        begins = clip(self.begins)
        return Link(self.group, self.peer, wishes, clip(self.settled), begins, self.created_at if begins > after else 0)


class Owed(NamedTuple):
    """The rows of `events` that are meant for a peer: those the link has gone past, and those still ahead of it."""

    due: Mask
    ahead: Mask


COLUMNS: Final = ("group", "source", "type", "own", "position", "expires_at", "recorded_at")
"""What is read of a row to know whether it is meant for a peer; `subject` where a selection asks for it."""


def needs_subjects(links: Sequence[Link]) -> bool:
    """Whether any of the links selects by subject."""
    return any(_selector(wish.selection)[0].subject_prefixes for link in links for wish in link.wishes)


class Owing:
    """Says for one table of `events` what of it is meant for whom. Links of the same terms are looked at once."""

    def __init__(self, table: Columns) -> None:
        self._table = table
        self._position = table.numbers("position")
        self._matched: dict[str, Mask] = {}
        self._owed: dict[tuple[Any, ...], Owed] = {}

    def by(self, link: Link) -> Owed:
        """What the link has to carry."""
        key = (link.group, *link.terms)
        if key not in self._owed:
            group = self._table.words("group").where(link.group.__eq__)
            due, ahead = self._by_terms(link)
            self._owed[key] = Owed(due & group, ahead & group)
        return self._owed[key]

    def _by_terms(self, link: Link) -> Owed:
        position = self._position
        bounds = np.array([wish.upto for wish in link.wishes[:-1]], np.int64)
        version = np.searchsorted(bounds, position, side="left")
        due = np.zeros(len(position), bool)
        late = np.zeros(len(position), bool)
        ahead = position > link.settled
        for at, wish in enumerate(link.wishes):
            wanted = self._matches(wish.selection)
            due |= wanted & (version == at)
            if at:
                newly = wanted & (version < at) & ~due & self._alive(wish.declared_at)
                late |= newly
                ahead |= newly & (position > wish.reached)
        meant = due | late
        if link.begins:
            meant &= (position > link.begins) | (self._table.numbers("recorded_at") >= link.created_at)
        return Owed(meant & ~ahead, meant & ahead)

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
        found = np.ones(table.rows, bool) if relay else table.whether("own").copy()
        if selector.types:
            found &= table.words("type").where(selector.takes_type)
        if selector.subject_prefixes and "" not in selector.subject_prefixes:
            found &= _begins_with(table.texts("subject"), selector.subject_prefixes)
        return found


def _begins_with(subjects: Any, prefixes: Sequence[str]) -> Mask:
    from pyarrow import compute

    found = np.zeros(0 if subjects is None else len(subjects), bool)
    for prefix in prefixes if len(found) else ():
        found |= compute.starts_with(subjects, prefix).to_numpy(zero_copy_only=False).astype(bool)
    return found


@lru_cache(maxsize=4096)
def _selector(selection: str) -> tuple[Selector, bool]:
    """The stored selection: its selector, and whether it passes on what came from others."""
    stored: Mapping[str, Any] = json.loads(selection or "{}")
    selector = Selector.of(types=stored.get("types", ()), subject_prefixes=stored.get("subjectPrefixes", ()))
    return selector, bool(stored.get("relay", False))
