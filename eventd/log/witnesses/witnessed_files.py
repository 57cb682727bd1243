"""Trees of the files that other nodes have written to a lake: what this node holds of each, as their witness.

They are held beside the trees of the group, in the same table, and differ by their origin.
"""

from __future__ import annotations

from typing import Final

from eventd.log.core.commit import ChangeUnit, Transaction, Turn
from eventd.log.history.closed_trees import ClosedTree, count_closed, find_closed, keep_closed
from eventd.log.witnesses.decisions import MOST_CLOSED, Decision
from eventd.log.witnesses.findings import FindingKind, NewFinding, keep_finding
from eventd.log.witnesses.keys import LOG, known_key
from eventd.log.witnesses.offers import OF_FILES, OfferFrom
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import execute, fetch, for_update, insert_row
from federation.errors import MessageError, NotWitnessed, OtherCheckpoint, TreeForked, UnprovenNote, WrongSender
from federation.history.lake_checkpoints import LakeCheckpoint, read_lake_checkpoint
from federation.history.lake_witnessing import check_files_offer, key_of_files
from federation.history.witnessing import HeldRoot, KeySource

MOST_FILES: Final = 4
"""Maximum number of trees of files of one node: of more, those that were witnessed last are kept."""


def decide_files(conn: Connection, offered: OfferFrom, now: int) -> Decision:
    """Decide on an offered checkpoint of files, and store what is held from now on: it is cosigned without an error.

    An error is returned and not raised, because what was found by it is stored all the same.
    """
    offer, held = offered.offer, None
    try:
        stated = read_lake_checkpoint(offer.note.text)
        if stated.origin.node != offered.node:
            raise WrongSender(f"{offered.node} offers the tree {stated.origin}, which is not its own")
        held = find_files(conn, offered.topic_id, str(stated.origin), locked=True)
        key = known_key(conn, offered.topic_id, offered.node, LOG, offered.pins)
        if key is None:
            raise UnprovenNote(f"no key of {offered.node} is known: offer a tree of the group first", reason="no_key")
        _keep(conn, offered, check_files_offer(offer, key.public, held), key.public, held, now)
    except TreeForked as error:
        assert held is not None
        if stated.size != held.size and offered.source is not KeySource.OWNED:
            return Decision(None, error)  # each holder of the shared secret can put a wrong proof beside two true notes
        notes = held.note, offer.note.encode().decode()
        sizes = held.size, stated.size
        found = NewFinding(str(stated.origin), offered.node, FindingKind.FORK, *sizes, *notes, error.message)
        return Decision(None, error, (found.kind,) if keep_finding(conn, offered.topic_id, found, now) else ())
    except MessageError as error:
        return Decision(None, error)
    return Decision(None)


class DecideFilesOffer(ChangeUnit[Decision]):
    """A unit of the writer that decides on an offered checkpoint of files."""

    turn = Turn.BACKGROUND

    def __init__(self, offered: OfferFrom, now: int) -> None:
        self._offered = offered
        self._now = now

    def make(self, tx: Transaction) -> Decision:
        return decide_files(tx.conn, self._offered, self._now)


def find_files(conn: Connection, topic_id: int, origin: str, *, locked: bool = False) -> HeldRoot | None:
    """Return what is held of a tree of files; `locked` until the transaction ends."""
    end = for_update(conn) if locked else ""
    sql = f"SELECT size, root, note FROM witnessed WHERE topic_id = ? AND origin = ?{end}"
    rows = fetch(conn, sql, (topic_id, origin))
    return HeldRoot(rows[0][0], bytes(rows[0][1]), rows[0][2]) if rows else None


def _keep(
    conn: Connection, offered: OfferFrom, stated: LakeCheckpoint, public: bytes, held: HeldRoot | None, now: int
) -> None:
    """Store a checkpoint. Raises OtherCheckpoint if another offer was faster, and NotWitnessed."""
    topic, origin = offered.topic_id, str(stated.origin)
    values = {
        "topic_id": topic,
        "origin": origin,
        "node": offered.node,
        "log_key": key_of_files(stated.origin, public).text(),
        "size": stated.size,
        "root": stated.root,
        "note": offered.offer.note.encode().decode(),
        "opened_at": now,
        "witnessed_at": now,
    }
    if held is None:
        surplus = _make_room(conn, offered, origin)
        kept = bool(insert_row(conn, "witnessed", values, "ON CONFLICT DO NOTHING RETURNING size"))
        keep_closed(conn, topic, surplus if kept else [])
        for tree in surplus if kept else ():
            execute(conn, "DELETE FROM witnessed WHERE topic_id = ? AND origin = ?", (topic, tree.origin))
    else:
        names = "log_key", "size", "root", "note", "witnessed_at"
        changed = ", ".join(f"{name} = ?" for name in names)
        sql = f"UPDATE witnessed SET {changed} WHERE topic_id = ? AND origin = ? AND size = ?"
        kept = execute(conn, sql, (*(values[name] for name in names), topic, origin, held.size)) > 0
    if not kept:
        raise OtherCheckpoint(f"another offer of {origin} was stored meanwhile", note=held.note if held else "")


def _make_room(conn: Connection, offered: OfferFrom, origin: str) -> list[ClosedTree]:
    """Return the trees of files of a node that are held no longer when it offers another one: it has left them.

    Raises NotWitnessed where none is held, and not TooManyQueries: the node must not ask again a little later. It does
    so for one that was left, too: it could be another one than was cosigned.
    """
    topic, node = offered.topic_id, offered.node
    if node not in offered.peers:
        raise NotWitnessed(f"files of {node} are not witnessed: it is not a declared peer", reason="not_a_peer")
    end = find_closed(conn, topic, origin)
    if end is not None:
        raise NotWitnessed(
            f"{node} has left {origin}, of which {end.size} lines were cosigned: it is not cosigned again",
            reason="closed_tree",
        )
    sql = "SELECT origin, node, log_key, size, root, opened_at FROM witnessed WHERE topic_id = ? AND node = ?"
    rows = fetch(conn, f"{sql} AND {OF_FILES} ORDER BY witnessed_at DESC", (topic, node))[MOST_FILES - 1 :]
    if rows and count_closed(conn, topic, node) >= MOST_CLOSED:
        raise NotWitnessed(
            f"{MOST_CLOSED} trees of {node} were witnessed, which is the limit; `routerctl log witnesses reset {node}`"
            " at the witness forgets them",
            reason="too_many_trees",
        )
    return [ClosedTree(name, owner, key, size, bytes(root), at) for name, owner, key, size, root, at in rows]
