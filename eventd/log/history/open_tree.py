"""Opens a tree: at the first start of a group, and whenever the present tree may not be continued.

Records that have a leaf in the present tree but no checkpoint move to the new one: nothing that was signed names them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from eventd.log.core.blocks import Block
from eventd.log.core.head import lock_head, read_head
from eventd.log.core.scan import scan
from eventd.log.history.closed_trees import read_own_closed
from eventd.log.history.trees import Tree, find_open_tree, read_last_signed, read_tree
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import chance_of, execute, execute_many, insert_row
from federation.history.checkpoints import LogOrigin, read_origin
from federation.history.entries import Opening, OpeningReason, PreviousTree, opening_entry
from federation.history.notes import LOG_KEY, NoteSigner

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz234567"
"""32 letters and digits, so that each random byte gives one without a bias."""
_ID_LENGTH: Final = 16


class TreeOwner(NamedTuple):
    """Who signs a tree: the node, its group, and the key of its logs; `retired` was that key before a rotation."""

    group: str
    node: str
    private: Ed25519PrivateKey
    retired: Ed25519PrivateKey | None = None

    def signer(self, origin: LogOrigin) -> NoteSigner:
        """Return the key as that of a tree."""
        return NoteSigner(str(origin), LOG_KEY, self.private)

    def may_continue(self, tree: Tree, epoch: str) -> bool:
        """Return whether the tree is sound, of this owner, and of this epoch of the log."""
        origin = read_origin(tree.origin)
        mine = origin[:2] == (self.group, self.node) and self.signer(origin).key.text() == tree.log_key
        return mine and tree.epoch == epoch and not tree.trouble

    def reason_after(self, origin: LogOrigin, log_key: str) -> OpeningReason:
        """Return why a tree follows a sound one that has this verifier key."""
        return OpeningReason.EPOCH if self.signer(origin).key.text() == log_key else OpeningReason.KEY

    def succession_signers(self, opening: Opening) -> list[NoteSigner]:
        """Return the retired key as that of the previous tree, after a rotation: it proves the new key to others."""
        before = opening.previous
        if self.retired is None or before is None or opening.reason is not OpeningReason.KEY:
            return []
        return [NoteSigner(str(before.origin), LOG_KEY, self.retired)]


def open_tree(conn: Connection, topic_id: int, owner: TreeOwner, now: int) -> Tree:
    """Return the tree in which the next own records of a topic get leaves: the present one, or else a new one.

    Locks the head, so that no record gets a leaf meanwhile.
    """
    head = lock_head(conn)
    present = find_open_tree(conn, topic_id)
    if present is not None and owner.may_continue(present, head.epoch):
        return present
    origin = LogOrigin(owner.group, owner.node, _new_id(chance_of(conn).token(_ID_LENGTH)))
    signer = owner.signer(origin)
    first = head.next_position if present is None else present.position + 1
    reason, previous = _succession(conn, topic_id, owner)
    opening = Opening(origin, signer.key, reason, first, now, previous)
    values = {
        "topic_id": topic_id,
        "origin": str(origin),
        "log_key": signer.key.text(),
        "epoch": head.epoch,
        "opening": opening_entry(opening, signer, *owner.succession_signers(opening)),
        "opened_at": now,
        "size": 0,
        "position": first - 1,
    }
    ((tree_id,),) = insert_row(conn, "trees", values, "RETURNING id")
    _take_over(conn, topic_id, present, tree_id)
    return read_tree(conn, tree_id)


def close_tree(conn: Connection, topic_id: int) -> bool:
    """Close the topic's open tree: its next own records become no leaves. False if leaves still lack a checkpoint."""
    lock_head(conn)
    tree = find_open_tree(conn, topic_id)
    if tree is not None and next(_without_checkpoint(conn, tree), None) is not None and not tree.trouble:
        return False
    execute(conn, "UPDATE topics SET tree = NULL WHERE id = ?", (topic_id,))
    return True


def _new_id(random: bytes) -> str:
    return "".join(_LETTERS[byte % len(_LETTERS)] for byte in random)


def _succession(conn: Connection, topic_id: int, owner: TreeOwner) -> tuple[OpeningReason, PreviousTree | None]:
    """Return why a tree is opened, and the last tree of this owner of which a checkpoint was signed."""
    for tree, signed in read_last_signed(conn, topic_id):
        origin = read_origin(tree.origin)
        if origin[:2] == (owner.group, owner.node):
            previous = PreviousTree(origin, signed.size, signed.root)
            if tree.trouble:
                return OpeningReason.DAMAGE, previous
            return owner.reason_after(origin, tree.log_key), previous
    for end in read_own_closed(conn, owner.group, owner.node)[:1]:  # the group was deleted, and made again
        origin = read_origin(end.origin)
        return owner.reason_after(origin, end.log_key), PreviousTree(origin, end.size, end.root)
    return OpeningReason.FIRST, None


def _take_over(conn: Connection, topic_id: int, present: Tree | None, tree_id: int) -> None:
    """Let the topic's next leaves be in the new tree, after those of the present one that have no checkpoint.

    They are numbered again: where a record is missing, the new tree must not have a leaf without one.
    """
    moved = [] if present is None else [*_without_checkpoint(conn, present)]
    leaf, rows = 1, list[tuple[int | None, int | None, int]]()
    for block in moved:
        rows.append((None, None, block.position) if block.has_empty else (tree_id, leaf, block.position))
        leaf += 0 if block.has_empty else block.records
    execute_many(conn, "UPDATE blocks SET tree = ?, leaf = ? WHERE position = ?", rows)
    execute(conn, "UPDATE topics SET tree = ?, next_leaf = ? WHERE id = ?", (tree_id, leaf, topic_id))


def _without_checkpoint(conn: Connection, tree: Tree) -> Iterator[Block]:
    """Yield the blocks whose records have leaves in a tree, but no checkpoint. One never covers a part of a block."""
    last = read_head(conn).last
    yield from (block for block in scan(conn, tree.topic_id, tree.position, last, own=True) if block.tree == tree.id)
