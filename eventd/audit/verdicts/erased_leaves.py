"""Events whose rows their node has lost, and that a peer has: the tree of the node proves which ones they are.

A peer states only where the leaf of an event should be. With its digest there, the tree has the root that the node
signed, or it does not.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

import numpy as np
from msgspec.structs import replace

from eventd.audit.arrays.columns import NEVER, Columns
from eventd.audit.report.findings import NO_ORIGIN, Finding, Kind, is_of_tree
from eventd.audit.segments.tree_leaves import LeafClaims, TreeLeaves
from eventd.audit.verdicts.leaf_proofs import LeafProofs
from eventd.audit.verdicts.ledger_rows import LedgerRows
from eventd.audit.verdicts.tree_checks import LeafHole, TreeEvidence
from eventd.lake.writer import Segment
from federation.history.checkpoints import LogOrigin
from federation.history.entries import event_entry
from federation.history.merkle import hash_leaf
from federation.history.tiles import TILE_WIDTH

MOST_SOUGHT: Final = 1_000
"""Maximum number of the leaves of a tree without rows that are looked for at peers."""
_MOST_NAMED: Final = 10
_COLUMNS: Final = ("group", "own", "tree", "leaf", "id", "digest")


class HeldEvent(NamedTuple):
    """An event at `peer` that is the leaf of a tree, which has no row of it."""

    group: str
    node: str
    tree: str
    leaf: int
    peer: str
    id: str


class _Claim(NamedTuple):
    """A row of a peer: the event's leaf, as its sender stated, and the hash that the leaf then has."""

    leaf: int
    peer: str
    id: str
    hash: bytes


def find_held(
    holes: Sequence[tuple[TreeEvidence, LeafHole]], segments: Sequence[tuple[Segment, TreeLeaves]], rows: LedgerRows
) -> list[HeldEvent]:
    """Return the events at peers that the trees prove to be leaves of these holes. `segments`: those of `events`."""
    trees = {tree.origin: tree for tree, _ in holes}
    sought: defaultdict[LogOrigin, set[int]] = defaultdict(set)
    for tree, hole in holes:
        leaves_of_tree = sought[tree.origin]
        leaves_of_tree.update(islice(range(hole.first, hole.last + 1), MOST_SOUGHT - len(leaves_of_tree)))
    alike: defaultdict[tuple[str, str], list[LogOrigin]] = defaultdict(list)
    for origin in trees:  # ids are no secret: another node may name a tree of its own alike
        alike[origin.group, origin.tree].append(origin)
    ordered = {origin: sorted(wanted) for origin, wanted in sought.items()}
    claims: defaultdict[LogOrigin, list[_Claim]] = defaultdict(list)
    for segment, leaves in segments:
        near = {
            origin
            for claim in leaves.claims
            for origin in alike.get((claim.group, claim.tree), ())
            if _is_any_within(ordered[origin], claim)
        }
        if near:
            table = Columns(rows.read(segment, _COLUMNS))
            for origin in near:
                claims[origin] += _claims_in(table, segment.manifest.node, origin, ordered[origin])
    return [
        HeldEvent(*origin, one.leaf, one.peer, one.id)
        for origin, each in sorted(claims.items())
        for one in _proven(trees[origin], each)
    ]


def _is_any_within(leaves: Sequence[int], claim: LeafClaims) -> bool:
    """Return whether some of these leaves, which are in order, may be among the claimed ones."""
    at = bisect_left(leaves, claim.first)
    return at < len(leaves) and leaves[at] <= claim.last


def _claims_in(table: Columns, peer: str, origin: LogOrigin, wanted: Sequence[int]) -> Iterator[_Claim]:
    leaf = table.numbers("leaf")
    mask = ~table.booleans("own") & (leaf != NEVER) & np.isin(leaf, np.array(wanted, np.int64))
    mask &= table.words("group").where(lambda name: name == origin.group)
    mask &= table.words("tree").where(lambda name: name == origin.tree)
    places = np.flatnonzero(mask)
    ids, digests = (table.taken(name, places).to_pylist() for name in ("id", "digest"))
    for at, event, digest in zip(leaf[places].tolist(), ids, digests, strict=True):
        yield _Claim(at, peer, event, hash_leaf(event_entry(digest)))


def _proven(tree: TreeEvidence, claims: Iterable[_Claim]) -> Iterator[_Claim]:
    """Yield the claims that the tree proves: tile by tile, first with all leaves of one peer, then of the next one."""
    proofs = LeafProofs(tree)
    by_tile: defaultdict[int, list[_Claim]] = defaultdict(list)
    for claim in claims:
        by_tile[claim.leaf // TILE_WIDTH].append(claim)
    for tile, each in sorted(by_tile.items()):
        for peer in sorted({claim.peer for claim in each}):
            # Those of other peers stand in for leaves that this one does not have.
            true = {claim.leaf: claim.hash for claim in sorted(each, key=lambda one: one.peer == peer)}
            if proofs.prove(tile, true):
                yield from (claim for claim in each if true[claim.leaf] == claim.hash)
                break


def with_held(findings: Iterable[Finding], held: Sequence[HeldEvent]) -> Iterator[Finding]:
    """Yield the findings. Erased leaves are named by these events, and no peer is accused of having invented them."""
    true = {(one.group, one.node, one.peer, one.id) for one in held}
    by_tree: defaultdict[tuple[str, str], dict[int, HeldEvent]] = defaultdict(dict)
    for event in held:
        by_tree[event.node, event.tree].setdefault(event.leaf, event)
    for one in findings:
        if one.kind is Kind.ERASED and is_of_tree(one):
            yield _named(one, by_tree.get((one.source, one.ids[0].partition("/")[0]), {}))
        elif one.kind is Kind.FORGED and one.detail == NO_ORIGIN:
            gone = {id for id in one.ids if (one.group, one.source, one.peer, id) in true}
            left = tuple(id for id in one.ids if id not in gone)
            if left or one.count > len(gone):
                evidence = tuple(each for each in one.evidence if each.id not in gone)
                yield replace(one, ids=left, evidence=evidence, count=max(0, one.count - len(gone))) if gone else one
        else:
            yield one


def _named(one: Finding, held: Mapping[int, HeldEvent]) -> Finding:
    inside = [held[leaf] for leaf in sorted(held) if one.first <= leaf <= one.last]
    if not inside:
        return one
    words = ", ".join(f"leaf {event.leaf:,} is {event.id}, which {event.peer} has" for event in inside[:_MOST_NAMED])
    more = f", and {len(inside) - _MOST_NAMED:,} more" if len(inside) > _MOST_NAMED else ""
    return replace(one, detail=f"{one.detail}; the tree proves that {words}{more}")
