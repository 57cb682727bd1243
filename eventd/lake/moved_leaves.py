"""Leaves that another tree took over: of events that were shipped before a checkpoint covered their leaf.

If their node then opens another tree, they have a leaf in that one instead, after its opening entry.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from eventd.lake.shipped_trees import TreeName, TreeRows

Trees = Mapping[TreeName, TreeRows]
"""The trees of one node."""


class LeafPlace(NamedTuple):
    """A leaf of a tree."""

    name: TreeName
    leaf: int


class LeafShift(NamedTuple):
    """Rows whose leaves are `first` and above have their leaves in another tree, at indexes that are `more` larger."""

    first: int
    more: int


class _Taken(NamedTuple):
    """The tree whose leaves from `size` on another tree has taken over: they had no checkpoint."""

    name: TreeName
    size: int


def present_place(trees: Trees, shipped: LeafPlace) -> LeafPlace:
    """Return where the leaf is by now that a row names."""
    name, index = shipped
    seen = {name}
    while index >= _last_size(trees, name):
        takers = ((other, taken) for other in trees if (taken := _taken(trees, other)) is not None)
        after = next((one for one in takers if one[1].name == name and one[1].size <= index), None)
        if after is None or after[0] in seen:
            break
        name, index = after[0], index - after[1].size + 1
        seen.add(name)
    return LeafPlace(name, index)


def leaf_shifts(trees: Trees, name: TreeName) -> Iterator[tuple[str, LeafShift]]:
    """Yield the trees that rows with leaves in a tree may name: itself, and those whose last leaves it took over."""
    shift, seen = LeafShift(1, 0), {name}
    yield name.tree, shift
    while (taken := _taken(trees, name)) is not None and taken.name not in seen:
        name, size = taken
        seen.add(name)
        shift = LeafShift(shift.first + size - 1, shift.more + 1 - size)
        yield name.tree, shift


def _last_size(trees: Trees, name: TreeName) -> int:
    return trees[name].last_size() if name in trees else 0


def _taken(trees: Trees, name: TreeName) -> _Taken | None:
    openings = trees[name].openings if name in trees else []
    before = openings[0].opening.previous if openings else None
    if before is None:
        return None
    previous = TreeName(*before.origin[1:])
    # A larger size was signed by a database that was then taken back: its leaves remain what they are.
    return _Taken(previous, before.size) if _last_size(trees, previous) <= before.size else None
