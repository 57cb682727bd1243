"""A tree of a node, as the ledgers `events` and `history` of a lake have it, made by the definitions."""

from __future__ import annotations

import hashlib
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from eventd.audit.segments.tree_leaves import LeafRun, LeafTerms, find_leaves
from eventd.audit.segments.tree_rows import TreeRows, read_tree_rows
from eventd.audit.verdicts.tree_checks import TreeEvidence
from eventd.lake.schema import Ledger
from federation.history.checkpoints import Checkpoint, LogOrigin, sign_checkpoint
from federation.history.entries import Opening, OpeningReason, opening_entry
from federation.history.forms import write_base64
from federation.history.notes import LOG_KEY, NoteSigner
from tests.support import plain_history as plain
from tests.support.ledger_rows import columns_of

SECOND = 1_000_000
Row = dict[str, Any]


class GrownTree:
    """A tree with an event at each position from 1 on; `at` of the event at position p is p seconds."""

    def __init__(self, events: int, name: str = "aaaaaaaaaaaaaaaa") -> None:
        self.origin = LogOrigin("g", "a", name)
        self.signer = NoteSigner(str(self.origin), LOG_KEY, Ed25519PrivateKey.from_private_bytes(b"1" * 32))
        self.opening = Opening(self.origin, self.signer.key, OpeningReason.FIRST, 1, 1)
        digests = [hashlib.sha256(b"%d" % number).digest() for number in range(1, events + 1)]
        self.entries = [opening_entry(self.opening, self.signer), *(b"\1" + digest for digest in digests)]
        self.events: list[Row] = [
            {"group": "g", "node": "a", "own": True, "tree": name, "leaf": number, "digest": digest}
            | {"position": number, "number": number, "seq": number, "recorded_at": number * SECOND}
            for number, digest in enumerate(digests, 1)
        ]

    def row(self, kind: str, content: str, **values: Any) -> Row:
        """Return a row of `history`."""
        kept = {"group": "g", "node": "a", "tree": self.origin.tree, "kind": kind, "content": content}
        return kept | {"recorded_at": SECOND} | values

    def opened(self) -> Row:
        """Return the row of the opening."""
        return self.row("opening", self.entries[0][1:].decode(), position=1)

    def signed(self, size: int, root: bytes | None = None) -> Row:
        """Return the row of a checkpoint; with another root, of a tree that the node also signed."""
        found = plain.root(self.entries[:size]) if root is None else root
        note = sign_checkpoint(Checkpoint(self.origin, size, found), self.signer).encode().decode()
        return self.row("checkpoint", note, size=size, position=size - 1)

    def hashed(self, first: int, end: int) -> Row:
        """Return the row of the hashes of level 1 from an index to before another one."""
        found = [plain.root(self.entries[at * 256 : (at + 1) * 256]) for at in range(first, end)]
        return self.row("hashes", write_base64(b"".join(found)), level=1, first=first)


def rows_of(*rows: Row) -> TreeRows:
    """Return rows of `history` as the audit reads them."""
    return read_tree_rows(columns_of(Ledger.HISTORY, rows))


def runs_of(segment: list[Row], *sizes: int, percent: float = 100.0, **more: Any) -> list[LeafRun]:
    """Return the leaves of a segment of `events`, computed for checkpoints of these sizes."""
    name = segment[0]["tree"]
    terms = LeafTerms(more.get("moves", ()), [(name, size) for size in sizes], percent, b"key")
    return find_leaves(columns_of(Ledger.EVENTS, segment), terms).runs


def evidence_of(tree: GrownTree, history: list[Row], segments: list[list[Row]], percent: float = 100.0) -> TreeEvidence:
    """Return what the audit has of a tree."""
    rows = rows_of(*history)
    checkpoints = [*rows.checkpoints, *rows.witnessed]
    found = TreeEvidence(tree.origin, rows.openings[0] if rows.openings else None, checkpoints, known=[tree.signer.key])
    for hashes in rows.hashes:
        found.levels[hashes.level].update(enumerate(hashes.hashes, hashes.first))
    sizes = [one.size for one in checkpoints]
    found.runs = [run for segment in segments for run in runs_of(segment, *sizes, percent=percent)]
    return found
