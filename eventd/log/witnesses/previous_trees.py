"""What a new tree of another node says of the one before it: whether it continues what is held, or abandons some."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from eventd.log.witnesses.findings import FindingKind, NewFinding
from eventd.log.witnesses.offers import OfferFrom, WitnessedTree
from eventd.text.plural import counted
from federation.errors import NotWitnessed
from federation.history.checkpoints import read_checkpoint
from federation.history.entries import OpeningEntry, PreviousTree
from federation.history.witnessing import KeySource, Succession, judge_succession


def lineage(entry: OpeningEntry, earlier: Sequence[OpeningEntry]) -> list[OpeningEntry]:
    """Return the opening entry of a tree and those of the trees before it, each of which the one after it names.

    `earlier` has entries of the same node, oldest first: only those that `find_vouched` returns.
    """
    found = [entry]
    for one in reversed(earlier):
        before = found[-1].opening.previous
        if before is not None and one.opening.origin == before.origin:
            found.append(one)
    return found


def order_time(entries: Sequence[OpeningEntry], followed: WitnessedTree | None) -> int:
    """Return the time by which a tree is ordered: as it states, but later than that of each tree before it.

    The clock of its node may have been set back in between. `entries`: its lineage, and `followed` the held tree that
    the last of them names.
    """
    last = followed.opened_at if followed else 0
    for entry in reversed(entries):
        last = max(entry.opening.time, last + 1)
    return last


def judge_previous(
    offered: OfferFrom,
    entries: Sequence[OpeningEntry],
    newest: WitnessedTree,
    followed: WitnessedTree | None,
    root_at: Callable[[str, int], bytes | None],
) -> NewFinding | None:
    """Compare what a new tree says of the one before it with what is held; return what does not fit.

    `newest` is the tree that the node opened last, of those that are held. `entries` is the lineage of the new tree,
    which leads past trees that were never offered here, to `followed`, a held one, or to none that is held. `root_at`
    returns the root of a tree at a smaller size than the held one, where its tiles are kept.

    Raises NotWitnessed for a tree that was opened before the last one, where other nodes than its own can offer it: it
    may be a true one, and then says nothing of the last one. It is not cosigned, because the node chooses the time.
    """
    entry, last = entries[0], followed or newest
    before = entries[-1].opening.previous
    verdict, abandoned = judge_succession(entries[-1], last.held.checkpoint)
    if before is not None and verdict is Succession.ROLLED_BACK:
        root = root_at(last.origin, before.size) if str(before.origin) == last.origin else None
        if root is not None and root != before.root:  # it did not go back only: it signed other leaves
            return _about_previous(offered, before, last, Succession.FORKED, abandoned, root)
    if verdict is Succession.FORKED:
        return _about_previous(offered, before, last, verdict, abandoned, last.root)
    passed_over = last.opened_at < newest.opened_at  # it names an earlier tree than the last one
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
        found = _about_previous(offered, before, newest, Succession.ROLLED_BACK, newest.size)
        # A database that was restored twice and two running copies open the same trees.
        return found._replace(
            detail=f"{entry.opening.origin} follows {last.origin}, and not {newest.origin}, which was opened later: its"
            f" {counted(newest.size, 'leaf is', 'leaves are')} abandoned. Its node was restored once more, or another"
            " node runs with its name and key"
        )
    return _about_previous(offered, before, last, verdict, abandoned)


def _about_previous(
    offered: OfferFrom,
    before: PreviousTree | None,
    last: WitnessedTree,
    verdict: Succession,
    abandoned: int,
    root: bytes = b"",
) -> NewFinding:
    new = read_checkpoint(offered.offer.note.text).origin
    other = before.size if before and str(before.origin) == last.origin else 0
    kind, detail = {
        Succession.ROLLED_BACK: (
            FindingKind.ROLLED_BACK,
            f"{new} was opened after {other} of {counted(last.size, 'leaf', 'leaves')} of {last.origin}:"
            f" {counted(abandoned, 'is', 'are')} abandoned; their events are where a peer or the lake has them",
        ),
        Succession.FORKED: (
            FindingKind.FORK,
            f"{new} names another root of {last.origin} at size {other}, {(before.root if before else b'').hex()},"
            f" than the {last.size} leaves have that were cosigned, {root.hex()}",
        ),
        Succession.UNKNOWN: (
            FindingKind.UNPROVEN,
            f"{new} follows {before.origin if before else '-'}, which is not held here: it was never offered, was"
            " refused, as with another key, or was forgotten by a reset: nothing connects it"
            f" with the {counted(last.size, 'leaf', 'leaves')} of {last.origin}",
        ),
    }[verdict]
    if verdict is Succession.UNKNOWN:
        other = before.size if before else 0
    note = offered.offer.opening[1:].decode()
    return NewFinding(last.origin, offered.node, kind, last.size, other, last.note, note, detail)
