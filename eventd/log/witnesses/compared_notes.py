"""Notes that other nodes pass on, compared with what is held of their trees: what does not fit is a finding."""

from __future__ import annotations

from collections.abc import Sequence

from eventd.log.history.relayed import find_kept_root
from eventd.log.history.trees import find_tree_of, read_checkpoint_at
from eventd.log.witnesses.findings import FindingKind, NewFinding, has_pending, keep_finding
from eventd.log.witnesses.forks import find_second_root, fork_finding, second_root_finding
from eventd.log.witnesses.witnessed import find_witnessed
from eventd.store.engine.database import Connection
from federation.errors import HistoryError
from federation.history.checkpoints import Checkpoint, open_checkpoint, read_checkpoint
from federation.history.notes import read_note


def compare_notes(conn: Connection, topic_id: int, group: str, notes: Sequence[str], teller: str) -> list[NewFinding]:
    """Compare notes that another node passes on with what is held; return what does not fit, for `keep_compared`.

    Two roots at one size are a fork. Two sizes are pending until it is proven that both fit: tiles of the tree that are
    kept here say so at once. A note of a tree that is not held proves nothing here: a node that passes notes on teaches
    no key. Signatures are verified in a read, because a writer must not wait for them.
    """
    found: list[NewFinding] = []
    for text in notes:
        try:
            note = read_note(text.encode(errors="replace"))
            stated = read_checkpoint(note.text)
            tree = find_witnessed(conn, topic_id, str(stated.origin)) if stated.origin.group == group else None
            if tree is None or (stated.size, stated.root) == (tree.size, tree.root):
                continue
            open_checkpoint(note, tree.key)  # first: a note that its node did not sign must not cost a search
            kept = find_kept_root(conn, topic_id, tree.origin, stated.size)
            if kept == stated.root:
                continue
            differs = stated.size != tree.size
            first = find_second_root(conn, topic_id, stated, tree.key) if differs else ""
            # What a node itself shows of a tree that it has left may be less than is held, as after a restore.
            is_due = tree.node != teller and not has_pending(conn, topic_id, tree.origin)
            if differs and not first and kept is None and not is_due:
                continue
            first = first or (_find_note(conn, topic_id, stated) if differs and kept is not None else "")
        except HistoryError:
            continue  # it proves nothing, also not about its teller, which may have it from another node
        if first:
            found.append(second_root_finding(tree, stated, first, text, f"{teller} holds"))
            continue
        detail, kind = (
            f"{teller} holds {stated.size} leaves of {tree.origin}, this node {tree.size}",
            FindingKind.PENDING,
        )
        if not differs or kept is not None:
            here = f"{tree.root.hex()} was cosigned here" if kept is None else f"the leaves here have {kept.hex()}"
            detail = (
                f"{tree.origin} has two roots at size {stated.size}: {here}, {stated.root.hex()} is what {teller} holds"
            )
            kind = FindingKind.FORK
        found.append(fork_finding(tree, stated, note, detail)._replace(kind=kind))
    return found


def _find_note(conn: Connection, topic_id: int, stated: Checkpoint) -> str:
    """Return the note of a tree whose tiles are kept at exactly the size of another note; empty if none is stored."""
    tree = find_tree_of(conn, topic_id, str(stated.origin))
    reached = None if tree is None else read_checkpoint_at(conn, tree.id, stated.size)
    return "" if reached is None else reached.note


def keep_compared(conn: Connection, topic_id: int, found: Sequence[NewFinding], now: int) -> tuple[FindingKind, ...]:
    """Keep what `compare_notes` has found, one pending pair of each tree; return the kinds of what is new."""
    kept: list[FindingKind] = []
    for one in found:
        if one.kind is FindingKind.PENDING and has_pending(conn, topic_id, one.origin):
            continue
        if keep_finding(conn, topic_id, one, now) and one.kind is not FindingKind.PENDING:
            kept.append(one.kind)
    return tuple(kept)
