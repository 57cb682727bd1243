"""The decision on an offered checkpoint: whether it is cosigned, and what is held from then on.

A decision reads, compares and stores in one transaction, so that of two racing offers only one can be cosigned.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple

from eventd.log.core.commit import ChangeUnit, Transaction, Turn
from eventd.log.history.closed_trees import ClosedTree, count_closed, find_closed, keep_closed
from eventd.log.history.relayed import compare_kept, find_kept_root
from eventd.log.witnesses.findings import FindingKind, NewFinding, has_pending, keep_finding
from eventd.log.witnesses.forks import drop_pending, find_second_root, fork_finding, second_root_finding
from eventd.log.witnesses.keys import (
    LOG,
    find_successor,
    forget_refused_key,
    keep_log_key,
    known_key,
    note_refused_key,
    show_key,
    was_learned,
)
from eventd.log.witnesses.offers import OfferFrom, WitnessedTree
from eventd.log.witnesses.previous_trees import (
    find_ancestors,
    find_order,
    find_order_time,
    judge_previous,
    order_again,
    read_lineage,
)
from eventd.log.witnesses.witnessed import find_witnessed, read_last_of, read_of, read_oldest_first
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import execute, fetch, insert_row
from federation.errors import (
    KeyChanged,
    MessageError,
    NotWitnessed,
    OtherCheckpoint,
    TooManyQueries,
    TreeForked,
    WrongSender,
)
from federation.history.checkpoints import Checkpoint, read_checkpoint
from federation.history.entries import OpeningEntry, read_opening_entry
from federation.history.witnessing import KeySource, check_offer, find_vouched, read_rotations

MOST_ORIGINS: Final = 1024
"""Maximum number of trees of other nodes that are witnessed in a group."""
MOST_TREES: Final = 16
"""Maximum number of trees of one node: of more, those that were witnessed last are kept."""
MOST_CLOSED: Final = 1024
"""Maximum number of trees of one node of which no more than their end is known."""


class Decision(NamedTuple):
    """The checkpoint to cosign, or the error that answers the offer; and the findings that were new.

    `newly_refused`: a key that the node has shown was noted as refused, which is done once a minute at most.
    """

    checkpoint: Checkpoint | None
    error: MessageError | None = None
    findings: tuple[FindingKind, ...] = ()
    newly_refused: bool = False


def decide(conn: Connection, offered: OfferFrom, now: int) -> Decision:
    """Decide on an offered checkpoint, and store what is held from now on.

    An error is returned and not raised, because what was found by it is stored all the same.
    """
    try:
        stated = read_checkpoint(offered.offer.note.text)
        if stated.origin[:2] != (offered.group, offered.node):
            raise WrongSender(f"{offered.node} offers the tree {stated.origin}, which is not its own")
    except MessageError as error:
        return Decision(None, error)
    tree = find_witnessed(conn, offered.topic_id, str(stated.origin), locked=True)
    try:
        if tree is None:
            _require_not_closed(conn, offered, str(stated.origin))
            return _admit(conn, offered, stated, now)
        checkpoint = check_offer(offered.offer, tree.key, tree.held)
        refusal = _refuse_other_key(conn, offered, tree, now)
        if refusal is not None:
            return refusal
        return _advance(conn, offered, tree, checkpoint, now)
    except TreeForked as error:
        assert tree is not None
        found = fork_finding(tree, stated, offered.offer.note, error.message)
        if stated.size == tree.size or offered.source is KeySource.OWNED:
            return Decision(None, error, _kept(conn, offered.topic_id, found, now))
        # Each holder of the shared secret can put a wrong proof beside two true notes: the tree's own node is asked.
        if not has_pending(conn, offered.topic_id, tree.origin):
            keep_finding(conn, offered.topic_id, found._replace(kind=FindingKind.PENDING), now)
        return Decision(None, error)
    except MessageError as error:
        return Decision(None, error)


class DecideOffer(ChangeUnit[Decision]):
    """A unit of the writer that decides on an offered checkpoint: those of many peers share a transaction."""

    turn = Turn.BACKGROUND

    def __init__(self, offered: OfferFrom, now: int) -> None:
        self._offered = offered
        self._now = now

    def make(self, tx: Transaction) -> Decision:
        return decide(tx.conn, self._offered, self._now)


def _refuse_other_key(conn: Connection, offered: OfferFrom, tree: WitnessedTree, now: int) -> Decision | None:
    """Refuse a tree whose key is not the one that is known by now, as after it was declared.

    The key is noted as refused if it was the known one before: so it was not replaced by a rotation.
    """
    key, topic, node = tree.key, offered.topic_id, offered.node
    known = known_key(conn, topic, node, LOG, offered.pins)
    if known is None or known.public == key.public:
        return None
    is_new = False
    if was_learned(conn, topic, node, LOG, key.public):
        is_new = note_refused_key(conn, topic, node, LOG, key.public, offered.pins, now)
    shown, own = show_key(LOG, key.public), show_key(LOG, known.public)
    note = f"the tree {key.name} is signed with the key {shown}, but {own} is known"
    error = KeyChanged(f"{note} of {node} ({known.source}): it has been replaced, or another one is declared")
    return Decision(None, error, newly_refused=is_new)


def _advance(conn: Connection, offered: OfferFrom, tree: WitnessedTree, checkpoint: Checkpoint, now: int) -> Decision:
    sql = (
        "UPDATE witnessed SET size = ?, root = ?, note = ?, witnessed_at = ? WHERE topic_id = ? AND origin = ?"
        " AND size = ?"
    )
    note = offered.offer.note.encode().decode()
    values = (checkpoint.size, checkpoint.root, note, now, offered.topic_id, tree.origin, tree.size)
    if not execute(conn, sql, values):
        raise OtherCheckpoint(f"another offer of {tree.origin} was stored meanwhile", note=tree.note)
    forget_refused_key(conn, offered.topic_id, offered.node, LOG, now)
    second = find_second_root(conn, offered.topic_id, checkpoint, tree.key)
    if not second:
        return Decision(checkpoint)
    # It continues what is held, and so is cosigned: it is the other note that does not fit.
    found = second_root_finding(tree, checkpoint, second, note, f"{offered.node} offers")
    drop_pending(conn, offered.topic_id, tree.origin, second)
    return Decision(checkpoint, None, _kept(conn, offered.topic_id, found, now))


def _admit(conn: Connection, offered: OfferFrom, stated: Checkpoint, now: int) -> Decision:
    """Decide on the first checkpoint of a tree: it teaches the key of the tree, and says what went before."""
    offer = offered.offer
    if not offer.opening:
        raise OtherCheckpoint(f"nothing is held of {stated.origin}: offer it with its opening entry")
    entry = read_opening_entry(offer.opening)
    key = entry.opening.key
    checkpoint = check_offer(offer, key, None)
    rotations = read_rotations(offer, checkpoint.origin)
    surplus = _find_surplus(conn, offered)
    try:
        known = find_successor(conn, offered.topic_id, entry, offered.source, offered.pins, rotations)
    except KeyChanged as error:
        is_new = note_refused_key(conn, offered.topic_id, offered.node, LOG, key.public, offered.pins, now)
        return Decision(None, error, newly_refused=is_new)
    newest = read_last_of(conn, offered.topic_id, offered.node)
    rotations = find_vouched(entry, rotations, known_key(conn, offered.topic_id, offered.node, LOG, offered.pins))
    lineage = read_lineage(entry, rotations)
    ancestors = find_ancestors(conn, offered.topic_id, lineage)
    entries, followed = _find_followed(conn, offered, lineage)
    root_at = partial(find_kept_root, conn, offered.topic_id)
    found = judge_previous(offered, entries, newest, followed, ancestors, root_at) if newest else None
    held = [one for one in read_of(conn, offered.topic_id, offered.node) if one.origin in ancestors]
    held.sort(key=lambda one: ancestors.index(one.origin), reverse=True)
    times = find_order(held)
    values = WitnessedTree(
        origin=str(checkpoint.origin),
        node=offered.node,
        log_key=key.text(),
        size=checkpoint.size,
        root=checkpoint.root,
        note=offer.note.encode().decode(),
        opened_at=find_order_time(entries, times[-1] if times else 0),
        witnessed_at=now,
    )
    row = {"topic_id": offered.topic_id} | values._asdict()
    if not insert_row(conn, "witnessed", row, "ON CONFLICT DO NOTHING RETURNING size"):
        raise TooManyQueries("the tree is being offered by another request")
    # Only now: an error does not end the transaction, and of an offer that lost the race nothing may stay.
    keep_log_key(conn, offered.topic_id, offered.node, known, offered.pins, now)
    order_again(conn, offered.topic_id, [*held, values], [*times, values.opened_at])
    compare_kept(conn, offered.topic_id, values.origin, values.size, values.root)
    _drop(conn, offered, surplus)
    return Decision(checkpoint, None, _kept(conn, offered.topic_id, found, now) if found else ())


def _find_followed(
    conn: Connection, offered: OfferFrom, entries: Sequence[OpeningEntry]
) -> tuple[Sequence[OpeningEntry], WitnessedTree | None]:
    """Return the first held tree to which the lineage of a new one leads, and the lineage up to there; or all of it."""
    for count, entry in enumerate(entries, 1):
        before = entry.opening.previous
        held = find_witnessed(conn, offered.topic_id, str(before.origin)) if before else None
        if held is not None:
            return entries[:count], held
    return entries, None


def _require_not_closed(conn: Connection, offered: OfferFrom, origin: str) -> None:
    """Raise NotWitnessed for a tree that is no longer held: it could be another one than was cosigned."""
    end = find_closed(conn, offered.topic_id, origin)
    if end is not None:
        raise NotWitnessed(
            f"{offered.node} has left {origin}, of which {end.size} leaves were cosigned, and no more than that is"
            " known of it here: it is not cosigned again",
            reason="closed_tree",
        )


def _drop(conn: Connection, offered: OfferFrom, trees: Sequence[WitnessedTree]) -> None:
    """Hold these trees no longer. Those of the offering node are closed: it could offer them again, rewritten."""
    closed = [
        ClosedTree(tree.origin, tree.node, tree.log_key, tree.size, tree.root, tree.opened_at)
        for tree in trees
        if tree.node == offered.node
    ]
    keep_closed(conn, offered.topic_id, closed)
    for tree in trees:
        execute(conn, "DELETE FROM witnessed WHERE topic_id = ? AND origin = ?", (offered.topic_id, tree.origin))


def _find_surplus(conn: Connection, offered: OfferFrom) -> list[WitnessedTree]:
    """Return the trees that make room for another one: those that the node has long left, else, for a declared peer,
    one of an undeclared node.

    Raises NotWitnessed where none may be displaced, and not TooManyQueries: to ask again a little later does not help.
    Members can invent names, of which nothing must displace the trees of peers, or stay.
    """
    topic, node = offered.topic_id, offered.node
    theirs = sorted(read_of(conn, topic, node), key=lambda tree: (-tree.witnessed_at, tree.origin))
    left = theirs[MOST_TREES - 1 :]
    if left and (node not in offered.peers or count_closed(conn, topic, node) >= MOST_CLOSED):
        most = MOST_TREES + (MOST_CLOSED if node in offered.peers else 0)
        raise NotWitnessed(
            f"{most} trees of {node} were witnessed, which is the limit; `routerctl log witnesses reset {node}` at the"
            " witness forgets them",
            reason="too_many_trees",
        )
    ((count,),) = fetch(conn, "SELECT count(*) FROM witnessed WHERE topic_id = ?", (topic,))
    if left or count < MOST_ORIGINS:
        return left
    strangers = (tree for tree in read_oldest_first(conn, topic) if tree.node not in offered.peers)
    surplus = next(strangers, None) if node in offered.peers else None
    if surplus is None:
        raise NotWitnessed(
            f"{MOST_ORIGINS} trees are witnessed in the group, which is the limit; `routerctl log witnesses reset NODE`"
            " at the witness forgets those of a node",
            reason="too_many_trees",
        )
    return [surplus]


def _kept(conn: Connection, topic_id: int, found: NewFinding, now: int) -> tuple[FindingKind, ...]:
    return (found.kind,) if keep_finding(conn, topic_id, found, now) else ()
