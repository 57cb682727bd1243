"""What a new tree of another node says of the one before it: whether it continues what is held, or abandons some."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final

from eventd.log.history.trees import find_tree_of, read_previous, read_relayed_trees
from eventd.log.witnesses.findings import FindingKind, NewFinding
from eventd.log.witnesses.offers import OfferFrom, WitnessedTree
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import execute
from eventd.text.plural import counted
from federation.errors import NotWitnessed
from federation.history.checkpoints import read_origin
from federation.history.entries import OpeningEntry
from federation.history.witnessing import KeySource, Succession, judge_succession

MOST_ANCESTORS: Final = 64
"""How many trees before a new one are looked at."""


def read_lineage(entry: OpeningEntry, earlier: Sequence[OpeningEntry]) -> list[OpeningEntry]:
    """Return the opening entry of a tree and those of the trees before it, each of which the one after it names.

    `earlier` has entries of the same node, oldest first: only those that `find_vouched` returns.
    """
    found = [entry]
    for one in reversed(earlier):
        before = found[-1].opening.previous
        if before is not None and one.opening.origin == before.origin:
            found.append(one)
    return found


def find_ancestors(conn: Connection, topic_id: int, entries: Sequence[OpeningEntry]) -> list[str]:
    """Return the origins of the trees before a new one, the last one first.

    They are those of its lineage `entries`, and those before, as far as the openings of kept trees name them.
    """
    found = [str(entry.opening.previous.origin) for entry in entries if entry.opening.previous]
    while found and len(found) < MOST_ANCESTORS:
        tree = find_tree_of(conn, topic_id, found[-1])
        before = "" if tree is None else read_previous(tree.opening)
        if not before or before in found:
            break
        found.append(before)
    return found


def find_order(held: Sequence[WitnessedTree]) -> list[int]:
    """Return the times by which held trees are ordered, of which each follows the one before it."""
    found = list[int]()
    for tree in held:
        found.append(max(tree.opened_at, found[-1] + 1 if found else 0))
    return found


def find_order_time(entries: Sequence[OpeningEntry], last: int) -> int:
    """Return the time by which a tree is ordered: as it states, but later than that of each tree before it.

    The clock of its node may have been set back in between. `entries`: its lineage up to a held tree, and `last` the
    time by which that one is ordered.
    """
    for entry in reversed(entries):
        last = max(entry.opening.time, last + 1)
    return last


def order_again(conn: Connection, topic_id: int, held: Sequence[WitnessedTree], times: Sequence[int]) -> None:
    """Order held trees by these times, and behind the last of them the kept ones that follow it.

    A tree that was witnessed before the one that it follows was ordered by the time that it states.
    """
    for tree, time in zip(held, times, strict=True):
        if time != tree.opened_at:
            _order(conn, topic_id, tree.origin, time)
    node = held[-1].node
    relayed = [tree for tree in read_relayed_trees(conn, topic_id) if read_origin(tree.origin).node == node]
    followers: dict[str, list[tuple[int, str]]] = {}  # several of a node that was restored twice
    for kept in relayed:
        followers.setdefault(read_previous(kept.opening), []).append((kept.opened_at, kept.origin))
    last = times[-1]
    waiting = followers.pop(held[-1].origin, [])
    while waiting:
        waiting.sort(reverse=True)
        opened_at, origin = waiting.pop()
        if opened_at <= last:  # two trees never have the same time, or none of them is the newer one
            _order(conn, topic_id, origin, last + 1)
        last = max(opened_at, last + 1)
        waiting += followers.pop(origin, [])


def _order(conn: Connection, topic_id: int, origin: str, time: int) -> None:
    for table in "witnessed", "trees":
        execute(conn, f"UPDATE {table} SET opened_at = ? WHERE topic_id = ? AND origin = ?", (time, topic_id, origin))


def judge_previous(
    offered: OfferFrom,
    entries: Sequence[OpeningEntry],
    newest: WitnessedTree,
    followed: WitnessedTree | None,
    ancestors: Collection[str],
    root_at: Callable[[str, int], bytes | None],
) -> NewFinding | None:
    """Compare what a new tree says of the one before it with what is held; return what does not fit.

    `newest` is the tree that the node opened last, of those that are held. `entries` is the lineage of the new tree,
    which leads past trees that were never offered here, to `followed`, a held one, or to none that is held. `ancestors`
    are the origins of all trees before the new one, as far as they are known. `root_at`
    returns the root of a tree at a smaller size than the held one, where its tiles are kept.

    Raises NotWitnessed for a tree that was opened before the last one, where other nodes than its own can offer it: it
    may be a true one, and then says nothing of the last one. It is not cosigned, because the node chooses the time.
    """
    entry, last = entries[0], followed or newest
    named = entries[-1]  # the entry that names it, of the tree itself or of one before it
    before = named.opening.previous
    verdict, abandoned = judge_succession(named, last.held.checkpoint)
    if before is not None and verdict is Succession.ROLLED_BACK:
        root = root_at(last.origin, before.size) if str(before.origin) == last.origin else None
        if root is not None and root != before.root:  # it did not go back only: it signed other leaves
            return _about_previous(offered, named, last, Succession.FORKED, abandoned, root)
    if verdict is Succession.FORKED:
        return _about_previous(offered, named, last, verdict, abandoned, last.root)
    # It names an earlier tree than the last one, unless that was only ordered behind a tree which follows it.
    passed_over = last.opened_at < newest.opened_at and newest.origin not in ancestors
    if verdict is Succession.CONTINUES and not passed_over:
        return None
    if entry.opening.time < newest.opened_at and offered.source is not KeySource.OWNED:
        if offered.relayed:
            return None
        raise NotWitnessed(
            f"{entry.opening.origin} was opened before {newest.origin}, which is held, and does not follow it; if the"
            f" clock of {offered.node} went back, run `routerctl log witnesses reset {offered.node}` at the witness",
            reason="older_tree",
        )
    if passed_over:
        found = _about_previous(offered, named, newest, Succession.ROLLED_BACK, newest.size)
        also = f", and {abandoned} of {last.size} of {last.origin}" if abandoned else ""
        # A database that was restored twice and two running copies open the same trees.
        return found._replace(
            detail=f"{named.opening.origin} follows {last.origin}, and not {newest.origin}, which was opened later: its"
            f" {counted(newest.size, 'leaf is', 'leaves are')} abandoned{also}. Its node was restored once more, or"
            " another node runs with its name and key"
        )
    return _about_previous(offered, named, last, verdict, abandoned)


def _about_previous(
    offered: OfferFrom,
    entry: OpeningEntry,
    last: WitnessedTree,
    verdict: Succession,
    abandoned: int,
    root: bytes = b"",
) -> NewFinding:
    new, before = entry.opening.origin, entry.opening.previous
    other = before.size if before and str(before.origin) == last.origin else 0
    kind, detail = {
        Succession.ROLLED_BACK: (
            FindingKind.ROLLED_BACK,
            f"{new} was opened after {other} of {counted(last.size, 'leaf', 'leaves')} of {last.origin}:"
            f" {counted(abandoned, 'is', 'are')} abandoned; their events are where a peer or the lake has them",
        ),
        Succession.FORKED: (
            FindingKind.FORK,
            f"{new} names another root of {last.origin} at size {other} than the one that was cosigned:"
            f" {(before.root if before else b'').hex()} instead of {root.hex()}",
        ),
        Succession.UNKNOWN: (
            FindingKind.UNPROVEN,
            f"{new} follows {before.origin if before else '-'}, which is not held here: it was never offered, was"
            " refused, for example because of another key, or was forgotten by a reset. So nothing connects it with the"
            f" {counted(last.size, 'leaf', 'leaves')} of {last.origin}",
        ),
    }[verdict]
    if verdict is Succession.UNKNOWN:
        other = before.size if before else 0
    note = entry.note.encode().decode()
    return NewFinding(last.origin, offered.node, kind, last.size, other, last.note, note, detail)
