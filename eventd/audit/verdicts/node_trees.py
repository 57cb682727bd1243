"""The trees that the ledgers `history` of all nodes name, how they succeed each other, and the keys that sign them."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from eventd.audit.coverage.file_trees import FileKeys, keys_of_node
from eventd.audit.segments.ledger_summaries import LedgerSummary
from eventd.audit.segments.plan import NodeEpoch, owner_of
from eventd.audit.segments.tree_leaves import TreeLeaves, TreeMove
from eventd.audit.segments.tree_rows import TreeCheckpoint
from eventd.audit.verdicts.tree_checks import TreeEvidence
from eventd.lake.writer import Segment
from federation.errors import HistoryError
from federation.history.checkpoints import LogOrigin
from federation.history.entries import PreviousTree
from federation.history.notes import LOG_KEY, NoteKey

TreeKey = tuple[str, str]
"""A node and the id of one of its trees."""


class _Cut(NamedTuple):
    """A checkpoint by the position, in the log of its owner, of the last record that it covers."""

    position: int
    tree: str
    size: int


class Succession(NamedTuple):
    """The tree before a tree, and what the opening of the later one says of it.

    `position`: the first one with a leaf in the later tree.
    """

    tree: TreeEvidence
    named: PreviousTree
    position: int


class _KeyChange(NamedTuple):
    """The key `old` has signed at a time (microseconds) that `new` succeeds it."""

    at: int
    old: bytes
    new: bytes


@dataclass
class Trees:
    """The trees that the ledgers `history` name. `keys`: those of the auditor's policy; None without one."""

    evidence: dict[TreeKey, TreeEvidence] = field(default_factory=dict)
    keys: Sequence[NoteKey] | None = None
    _cuts: dict[NodeEpoch, list[_Cut]] = field(default_factory=dict)

    @classmethod
    def of(cls, summaries: Mapping[NodeEpoch, Sequence[LedgerSummary]], keys: Sequence[NoteKey] | None = None) -> Trees:
        """Return the trees in the summaries of the small ledgers."""
        made = cls(keys=keys)
        for owner, each in summaries.items():
            cuts = made._cuts.setdefault(owner, [])
            for rows in (summary.trees for summary in each if summary.trees is not None):
                for tree, group in rows.groups.items():
                    made.evidence.setdefault((owner.node, tree), TreeEvidence(LogOrigin(group, owner.node, tree)))
                for opening in rows.openings:
                    made.evidence[owner.node, opening.tree].opening = opening
                for one in rows.checkpoints:
                    made.evidence[owner.node, one.tree].checkpoints.append(one)
                    cuts.append(_Cut(one.position, one.tree, one.size))
                for hashes in rows.hashes:
                    known = made.evidence[owner.node, hashes.tree].levels[hashes.level]
                    known.update(enumerate(hashes.hashes, hashes.first))
            cuts.sort()
        for one in (one for each in summaries.values() for summary in each for one in _witnessed(summary)):
            if (evidence := made.evidence.get((one.node, one.tree))) is not None:
                evidence.checkpoints.append(one)
        for one_tree in made.evidence.values():
            one_tree.known = [*made._keys_of(one_tree)]
            one_tree.drop_unsigned()
        return made

    def _keys_of(self, tree: TreeEvidence) -> Iterator[NoteKey]:
        """Yield the keys that may have signed a tree: that of the policy for it, or else that which its opening names.

        Without either, those that the policy has for other trees of its node and group.
        """
        named = [key for key in self.keys or () if key.name == str(tree.origin)]
        yield from named
        if tree.key is not None and not named:
            yield tree.key
        elif not named:
            owner = f"eventd/{tree.origin.group}/{tree.origin.node}/"
            public = {key.public for key in self.keys or () if key.name.startswith(owner)}
            yield from (NoteKey(str(tree.origin), LOG_KEY, one) for one in sorted(public))

    def file_keys(self) -> FileKeys:
        """Return what the trees, and the policy, show of the keys with which nodes sign their files."""
        named: defaultdict[str, set[bytes]] = defaultdict(set)
        changes: defaultdict[str, list[_KeyChange]] = defaultdict(list)
        for (node, _), tree in self.evidence.items():
            if tree.key is not None and self.is_pinned(tree):
                named[node].add(tree.key.public)
            if (change := self._key_change(tree)) is not None:
                changes[node].append(change)
        replaced = {node: _replaced_keys(each, keys_of_node(self.keys or (), node)) for node, each in changes.items()}
        keepers = {
            owner
            for owner, cuts in self._cuts.items()
            if any(self.evidence[owner.node, tree].shipped for tree in {cut.tree for cut in cuts})
        }
        return FileKeys(self.keys, named, replaced, keepers)

    @cached_property
    def moves(self) -> Mapping[str, Sequence[tuple[int, TreeMove]]]:
        """Return by node which leaves without a checkpoint another tree took over, each with its first position."""
        found: defaultdict[str, list[tuple[int, TreeMove]]] = defaultdict(list)
        for (node, name), tree in sorted(self.evidence.items()):
            succession = self.before(tree)
            # A larger size was signed by a database that was then taken back: its leaves remain what they are.
            if succession is not None and succession.tree.last_signed == succession.named.size:
                move = TreeMove(succession.tree.origin.tree, succession.named.size, name)
                found[node].append((succession.position, move))
        return found

    def before(self, tree: TreeEvidence) -> Succession | None:
        """Return the tree before a tree, if the lake has it."""
        opening = None if tree.entry is None else tree.entry.opening
        if opening is None or opening.previous is None:
            return None
        previous = self.evidence.get((tree.origin.node, opening.previous.origin.tree))
        return None if previous is None else Succession(previous, opening.previous, opening.position)

    def is_pinned(self, tree: TreeEvidence) -> bool | None:
        """Return whether the policy knows the key of a tree, by its name, its node, or trees before it.

        None if the policy, or the lake, does not say; False if the policy has another key for the tree.
        """
        seen: set[str] = set()
        while self.keys is not None and tree.key is not None and tree.origin.tree not in seen:
            seen.add(tree.origin.tree)
            named = {key.public for key in self.keys if key.name == str(tree.origin)}
            owner = f"eventd/{tree.origin.group}/{tree.origin.node}/"
            known = named or {key.public for key in self.keys if key.name.startswith(owner)}
            if named or tree.key.public in known:
                return tree.key.public in known
            succession = self.before(tree)
            if succession is None or not _is_signed_by(tree, succession.tree.key):
                return None
            tree = succession.tree
        return None

    def _key_change(self, tree: TreeEvidence) -> _KeyChange | None:
        """Return the change from the key of the tree before a tree, which signed it, to another one."""
        before = self.before(tree)
        old = None if before is None else before.tree.key
        if tree.entry is None or old is None or not _is_signed_by(tree, old):
            return None
        opening = tree.entry.opening
        return None if old.public == opening.key.public else _KeyChange(opening.time, old.public, opening.key.public)

    def moves_in(self, segment: Segment) -> tuple[TreeMove, ...]:
        """Return the moves of leaves that a segment of `events` may have."""
        moves = self.moves.get(segment.manifest.node, ())
        return tuple(move for position, move in moves if position <= segment.upto)

    def cuts_in(self, segment: Segment) -> tuple[tuple[str, int], ...]:
        """Return the trees and sizes of the checkpoints whose last record is in a segment of `events`."""
        cuts = self._cuts.get(owner_of(segment), ())
        first = bisect_right(cuts, segment.after, key=lambda one: one.position)
        last = bisect_right(cuts, segment.upto, key=lambda one: one.position)
        return tuple((one.tree, one.size) for one in cuts[first:last])

    def cuts_of(self, node: str, leaves: TreeLeaves) -> set[tuple[str, int]]:
        """Return the trees and sizes of the checkpoints that end in these leaves, whatever position they name."""
        found: set[tuple[str, int]] = set()
        for run in leaves.runs:
            sizes = self._sizes.get((node, run.tree), ())
            within = sizes[bisect_right(sizes, run.first) : bisect_right(sizes, run.end)]
            found |= {(run.tree, size) for size in within}
        return found

    @cached_property
    def _sizes(self) -> Mapping[TreeKey, list[int]]:
        return {key: sorted({one.size for one in tree.checkpoints}) for key, tree in self.evidence.items()}

    def keeps(self, node: str) -> bool:
        """Return whether a node has trees."""
        return node in self._nodes

    @cached_property
    def _nodes(self) -> frozenset[str]:
        return frozenset(node for node, _ in self.evidence)


def _witnessed(summary: LedgerSummary) -> Sequence[TreeCheckpoint]:
    return () if summary.trees is None else summary.trees.witnessed


def _replaced_keys(changes: Sequence[_KeyChange], known: Collection[bytes]) -> dict[bytes, int]:
    """Return the keys of a node that have signed their succession, and when. `known`: those that the policy has.

    One that its only successor has named again is good as before. Of two successors, one may be that of a thief, who
    could name the stolen key again.
    """
    good, replaced = {*known}, dict[bytes, int]()
    for at, old, new in sorted(changes):
        if old in good and not good - {*replaced, old}:
            replaced.pop(new, None)
        if old in good:
            good.add(new)
        replaced[old] = at
    return replaced


def _is_signed_by(tree: TreeEvidence, key: NoteKey | None) -> bool:
    """Return whether the key of the tree before it also signed the opening of a tree."""
    try:
        return tree.entry is not None and key is not None and tree.entry.is_signed_by(key)
    except HistoryError:
        return False
