"""The header `Eventd-Leaves`: at which leaves of which trees the events of a batch are. Pure.

It is a hint without a signature: a false one makes a proof fail, no more. So whatever cannot be read is left out.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from federation.history.merkle import MAX_SIZE

LEAVES: Final = "Eventd-Leaves"
MOST_HINT_BYTES: Final = 4096
"""Maximum length of the header, and of the places that are stored with a batch."""
MOST_PLACES: Final = 256
"""More places than fit into the header, so that a batch with a place for each event costs no more than it may say."""

_PLACE: Final = re.compile(r'\(([1-9][0-9]{0,14}) ([1-9][0-9]{0,14})\);t="([a-z0-9]{16})"|\(([1-9][0-9]{0,14}) 0\)')
_LAST: Final = ", (999999999999999 0)"


class LeafPlace(NamedTuple):
    """From `position` on, the events have the leaves from index `leaf` on of a tree; with leaf 0, they have none.

    Both numbers rise together, up to the position of the next place. `tree` is the id of the tree.
    """

    position: int
    leaf: int
    tree: str

    def at(self, position: int) -> tuple[str, int]:
        """Return the tree and the leaf of a position from this one on; leaf 0: it has none."""
        return self.tree, self.leaf and self.leaf + position - self.position

    def text(self) -> str:
        """Return the place as the header has it."""
        return f'({self.position} {self.leaf});t="{self.tree}"' if self.leaf else f"({self.position} 0)"


def join_places(places: Iterable[LeafPlace]) -> list[LeafPlace]:
    """Return those places, in order of their positions, that do not follow from the one before."""
    found: list[LeafPlace] = []
    last = LeafPlace(0, 0, "")
    for place in places:
        if last.at(place.position) != (place.tree, place.leaf):
            found.append(place)
            last = place
    return found


def write_places(places: Sequence[LeafPlace]) -> str:
    """Return the value of the header. Of more than fit, the first; it says where they end."""
    text = ", ".join(place.text() for place in places)
    if len(text) <= MOST_HINT_BYTES:
        return text
    size, kept = len(_LAST), list[str]()
    for place in places:
        size += len(place.text()) + 2
        if size > MOST_HINT_BYTES:
            return ", ".join([*kept, LeafPlace(place.position, 0, "").text()])
        kept.append(place.text())
    return ", ".join(kept)


def read_places(text: str | None) -> tuple[LeafPlace, ...]:
    """Return the places of a header. None if any part of it is malformed, or it is too long."""
    if not text or len(text) > MOST_HINT_BYTES:
        return ()
    found = list[LeafPlace]()
    for part in text.split(", "):
        match = _PLACE.fullmatch(part)
        if match is None:
            return ()
        place = LeafPlace(int(match[1] or match[4]), int(match[2] or 0), match[3] or "")
        if place.leaf > MAX_SIZE or (found and place.position <= found[-1].position):
            return ()
        found.append(place)
    return tuple(found)


def find_place(places: Sequence[LeafPlace], position: int) -> tuple[str, int]:
    """Return the tree and the leaf of a position; leaf 0: nothing says that it has one."""
    at = bisect_right(places, position, key=lambda place: place.position)
    return places[at - 1].at(position) if at else ("", 0)


def move_places(places: Sequence[LeafPlace], sent: Sequence[int], stored: Sequence[int]) -> list[LeafPlace]:
    """Return the places, by positions in another log, of events that were `sent` and are `stored` there, in order."""
    moves: Iterable[tuple[int, int]] = zip(sent, stored, strict=True)
    if len(sent) == sent[-1] - sent[0] + 1 == len(stored) == stored[-1] - stored[0] + 1:
        # As in most batches: nothing was left out, so that only the places themselves need be looked at.
        shift = stored[0] - sent[0]
        edges = [sent[0], *(place.position for place in places if sent[0] < place.position <= sent[-1])]
        moves = [(edge, edge + shift) for edge in edges]
    found: list[LeafPlace] = []
    last, present, ahead = LeafPlace(0, 0, ""), LeafPlace(0, 0, ""), 0
    for before, after in moves:
        while ahead < len(places) and places[ahead].position <= before:
            present, ahead = places[ahead], ahead + 1
        tree, leaf = present.at(before)
        if last.at(after) != (tree, leaf):
            if len(found) == MOST_PLACES:  # they are not written anyway
                return [*found, LeafPlace(after, 0, "")]
            last = LeafPlace(after, leaf, tree)
            found.append(last)
    return found


def merge_places(own: Iterable[LeafPlace], relayed: Iterable[LeafPlace]) -> list[LeafPlace]:
    """Return the places of own and of relayed events of one log, in order."""
    found: dict[int, LeafPlace] = {}
    for place in (*own, *relayed):
        if place.leaf or place.position not in found:
            found[place.position] = place
    return join_places(found[position] for position in sorted(found))
