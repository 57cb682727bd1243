"""Notes of this node's own trees that another node shows: whether this database is an older copy.

A note with this node's own valid signature that its database cannot have signed means that the database went back. The
node then signs no more in that tree: it begins a new epoch of the log, and so a new tree.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from eventd.log.core.head import lock_head, renew_epoch
from eventd.log.history.closed_trees import DELETED_GROUPS, find_closed
from eventd.log.history.open_tree import TreeOwner
from eventd.log.history.trees import Tree, find_open_tree, read_checkpoint_of, read_tree, tile_reader
from eventd.log.witnesses.cosignatures import note_held_size
from eventd.log.witnesses.findings import HOLDS, FindingKind, NewFinding, keep_finding
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import fetch
from federation.errors import HistoryError, MalformedHistory
from federation.history.checkpoints import Checkpoint, open_checkpoint, read_checkpoint
from federation.history.notes import LOG_KEY, NoteKey, SignedNote, read_note, read_vkey
from federation.history.tiles import root_of


class OwnNote(StrEnum):
    """What a note of an own tree says about this database."""

    FITS = "fits"
    """The database has signed it, or a larger tree that begins with it."""
    OLDER_COPY = "older_copy"
    """The database cannot have signed it: it is an older copy."""
    NOTHING = "nothing"
    """The note is of another node, not signed with this node's key, or of a tree that ended with its group."""


class NoteComparison(NamedTuple):
    """What came of a comparison: the verdict, whether a new epoch was begun because of it, and how many leaves of the
    open tree were shown that the database has signed, too."""

    verdict: OwnNote
    renewed: bool = False
    held: int = 0


class Shown(NamedTuple):
    """A note of an own tree that `peer` has shown, and the owner of the group's trees.

    `declared`: the peer is declared here, so that what it holds is recorded. Members can invent names.
    """

    topic_id: int
    owner: TreeOwner
    peer: str
    note: str
    declared: bool = True


def take_own_note(conn: Connection, shown: Shown, now: int) -> NoteComparison:
    """Compare a note with the database.

    Also records which size the peer holds. The same tree begins an epoch once, however often it is shown.
    """
    opened = _open(conn, shown)
    if opened is None:
        return NoteComparison(OwnNote.NOTHING)
    note, stated, tree = opened
    reason = _find_loss(conn, stated) if tree is None else _find_difference(conn, tree, stated)
    present = find_open_tree(conn, shown.topic_id)
    is_present = tree is not None and present is not None and present.id == tree.id
    if not reason and tree is None:
        return NoteComparison(OwnNote.NOTHING)
    if not reason:
        assert tree is not None
        if shown.declared:
            note_held_size(conn, tree.id, shown.peer, stated.size, now)
        return NoteComparison(OwnNote.FITS, held=stated.size if is_present else 0)
    lock_head(conn)
    sql = "SELECT 1 FROM history_findings WHERE topic_id = ? AND origin = ? AND kind = ?"
    if fetch(conn, sql, (shown.topic_id, str(stated.origin), FindingKind.OLDER_COPY.value)):
        return NoteComparison(OwnNote.OLDER_COPY)
    mine = None if tree is None else read_checkpoint_of(conn, tree.id)
    found = NewFinding(
        origin=str(stated.origin),
        node=shown.owner.node,
        kind=FindingKind.OLDER_COPY,
        size=mine.size if mine else 0,
        other_size=stated.size,
        note=mine.note if mine else "",
        other_note=note.encode().decode(),
        detail=f"{shown.peer}{HOLDS}{stated.size} leaves of {stated.origin}, signed with this node's key: {reason}",
    )
    keep_finding(conn, shown.topic_id, found, now)
    # A tree that was left already, as after `--new-epoch`, needs no further epoch.
    renewed = tree is None or is_present
    if renewed:
        renew_epoch(conn)
    return NoteComparison(OwnNote.OLDER_COPY, renewed)


def _open(conn: Connection, shown: Shown) -> tuple[SignedNote, Checkpoint, Tree | None] | None:
    """Return the note and its checkpoint with the tree in this database, if this node's key has signed it."""
    try:
        note = read_note(shown.note.encode(errors="replace"))
        stated = read_checkpoint(note.text)
        if stated.origin[:2] != (shown.owner.group, shown.owner.node):
            return None
        rows = fetch(conn, "SELECT id FROM trees WHERE origin = ?", (str(stated.origin),))
        tree = read_tree(conn, rows[0][0]) if rows else None
        mine = NoteKey(str(stated.origin), LOG_KEY, shown.owner.private.public_key().public_bytes_raw())
        open_checkpoint(note, mine if tree is None else read_vkey(tree.log_key, LOG_KEY))
    except HistoryError:
        return None
    return note, stated, tree


def _find_loss(conn: Connection, stated: Checkpoint) -> str:
    """Return why a tree that the database does not have was lost; empty: it ended when its group was deleted."""
    end = find_closed(conn, DELETED_GROUPS, str(stated.origin))
    if end is None:
        return "the tree is not in this database"
    if stated.size < end.size or (stated.size, stated.root) == (end.size, end.root):
        return ""
    return f"the tree had {end.size} signed leaves in this database, with root {end.root.hex()}, when its group ended"


def _find_difference(conn: Connection, tree: Tree, stated: Checkpoint) -> str:
    """Return why a tree of the database does not begin with a checkpoint that its key has signed; empty: it does."""
    if stated.size > tree.size:
        return f"the tree in this database has {tree.size} signed leaves"
    try:
        root = root_of(stated.size, tile_reader(conn, tree.id))
    except MalformedHistory:
        return ""  # pruned tiles: nothing says that it does not fit
    if root == stated.root:
        return ""
    return f"at that size the tree in this database has root {root.hex()}, not {stated.root.hex()}"
