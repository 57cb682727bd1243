"""Forks of trees: of one that was seen at two sizes, a later note of one of these sizes proves it to everyone.

Two notes of different sizes prove nothing to a third party, which has no leaf of the tree. Two roots at one size do.
"""

from __future__ import annotations

from eventd.log.witnesses.findings import FindingKind, NewFinding
from eventd.log.witnesses.offers import WitnessedTree
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import execute, fetch
from federation.errors import HistoryError
from federation.history.checkpoints import Checkpoint, open_checkpoint
from federation.history.notes import NoteKey, SignedNote, read_note


def find_second_root(conn: Connection, topic_id: int, stated: Checkpoint, key: NoteKey) -> str:
    """Return a note of the same tree and size with another root among those that findings keep.

    Empty if none is, or if the two roots were found before.
    """
    of_size = "topic_id = ? AND origin = ? AND (size = ? OR other_size = ?)"
    sql = f"SELECT note, other_note FROM history_findings WHERE {of_size} ORDER BY id"
    roots: dict[bytes, str] = {}
    for notes in fetch(conn, sql, (topic_id, str(stated.origin), stated.size, stated.size)):
        for text in notes:
            try:
                other = open_checkpoint(read_note(text.encode()), key)
            except HistoryError:
                continue  # an opening entry, or what an operator has reset
            if other.size == stated.size:
                roots.setdefault(other.root, text)
            if len(roots) > 1:
                return ""
    return next((text for root, text in roots.items() if root != stated.root), "")


def drop_pending(conn: Connection, topic_id: int, origin: str, note: str) -> None:
    """Delete a pair with this note that waits for a proof: the fork is proven."""
    sql = "DELETE FROM history_findings WHERE topic_id = ? AND origin = ? AND kind = ? AND other_note = ?"
    execute(conn, sql, (topic_id, origin, FindingKind.PENDING.value, note))


def second_root_finding(tree: WitnessedTree, stated: Checkpoint, first: str, second: str, how: str) -> NewFinding:
    """Return the finding that two notes of a tree have two roots at one size; `how` says where the second is from."""
    detail = (
        f"{tree.origin} has two roots at size {stated.size}: {how} {stated.root.hex()}, and a note with another one was"
        " kept before"
    )
    return NewFinding(tree.origin, tree.node, FindingKind.FORK, stated.size, stated.size, first, second, detail)


def fork_finding(tree: WitnessedTree, stated: Checkpoint, note: SignedNote, detail: str) -> NewFinding:
    """Return the finding that a note does not fit what is held of its tree."""
    text = note.encode().decode()
    return NewFinding(tree.origin, tree.node, FindingKind.FORK, tree.size, stated.size, tree.note, text, detail)
