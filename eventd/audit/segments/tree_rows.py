"""The rows of the ledger `history` as a task reads them: openings, checkpoints and hashes of trees.

Nothing in them is believed by that: `tree_checks` computes the trees and verifies the signatures.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from eventd.audit.arrays.columns import Columns
from eventd.lake.history_rows import HistoryKind, read_hash_row
from eventd.lake.manifest import Number, Time
from eventd.lake.segment_file import BadSegment
from federation.errors import HistoryError
from federation.history.checkpoints import Checkpoint, LogOrigin, read_checkpoint
from federation.history.entries import OPENING_ENTRY, read_opening_entry
from federation.history.merkle import HASH_SIZE, hash_leaf
from federation.history.notes import MAX_NOTE, read_note

HISTORY_COLUMNS: Final = ("group", "kind", "tree", "level", "first", "size", "position", "content", "recorded_at")
"""The columns of `history` that the audit reads."""
Hash = Annotated[bytes, msgspec.Meta(min_length=HASH_SIZE, max_length=HASH_SIZE)]


class TreeOpening(msgspec.Struct, frozen=True, array_like=True):
    """The opening entry of a tree: `leaf` is the hash of leaf 0, `note` the entry without its first byte."""

    tree: str
    leaf: Hash
    position: Number
    note: str


class TreeCheckpoint(msgspec.Struct, frozen=True, array_like=True):
    """A checkpoint of a tree of `node`. `position`: that of the last record that it covers; `at`: when it was signed.

    `witness`: the node that witnessed it and ships it, at `at`; empty: `node` itself ships it. Then `position` is 0.
    `signatures`: the lines of its note. The text that they sign follows from origin, size and root.
    """

    tree: str
    size: Number
    root: Hash
    position: Number
    at: Time
    signatures: str
    node: str = ""
    witness: str = ""


class TreeHashes(msgspec.Struct, frozen=True, array_like=True):
    """Hashes of a level of a tree, from index `first` on."""

    tree: str
    level: Number
    first: Number
    hashes: list[Hash]


class TreeRows(msgspec.Struct):
    """The rows of a segment of `history`; `witnessed`: checkpoints of trees of other nodes."""

    openings: list[TreeOpening] = []
    checkpoints: list[TreeCheckpoint] = []
    hashes: list[TreeHashes] = []
    witnessed: list[TreeCheckpoint] = []
    groups: dict[str, str] = {}
    """The group of each tree."""


def read_tree_rows(table: Columns) -> TreeRows:
    """Return the rows of a segment. Raises BadSegment for one that no node writes."""
    found = TreeRows()
    if not table.rows:
        return found
    words = {name: table.words(name) for name in ("node", "group", "kind", "tree")}
    numbers = {name: table.numbers(name).tolist() for name in ("level", "first", "size", "position", "recorded_at")}
    for at, content in enumerate(table.texts("content").to_pylist()):
        names = {name: column.values[column.codes[at]] for name, column in words.items()}
        values = {name: column[at] for name, column in numbers.items()}
        try:
            _read(found, names, values, content)
        except (HistoryError, ValueError) as error:
            raise BadSegment(f"its row {at + 1:,} is not one of a history: {error}") from None
    return found


def _read(found: TreeRows, names: dict[str, str], values: dict[str, int], content: str) -> None:
    tree, origin = names["tree"], LogOrigin(names["group"], names["node"], names["tree"])
    kind = HistoryKind(names["kind"])
    if kind is HistoryKind.WITNESSED:
        found.witnessed.append(_witnessed(names, values["recorded_at"], content))
        return
    found.groups[tree] = names["group"]
    match kind:
        case HistoryKind.OPENING:
            entry = OPENING_ENTRY + content.encode()
            opening = read_opening_entry(entry).opening
            _require_origin(opening.origin, origin)
            found.openings.append(TreeOpening(tree, hash_leaf(entry), opening.position, content))
        case HistoryKind.CHECKPOINT:
            checkpoint, lines = _stated(content)
            _require_origin(checkpoint.origin, origin)
            position, at = max(values["position"], 0), values["recorded_at"]
            found.checkpoints.append(
                TreeCheckpoint(tree, checkpoint.size, checkpoint.root, position, at, lines, origin.node)
            )
        case HistoryKind.HASHES:
            hashes = TreeHashes(tree, values["level"], values["first"], read_hash_row(content))
            if min(hashes.level, hashes.first) < 0 or not hashes.hashes:
                raise ValueError("hashes without a place")
            found.hashes.append(hashes)


def _witnessed(names: dict[str, str], at: int, content: str) -> TreeCheckpoint:
    checkpoint, lines = _stated(content)
    origin = checkpoint.origin
    _require_origin(origin, LogOrigin(names["group"], origin.node, names["tree"]))
    if origin.node == names["node"]:
        raise ValueError("it is of the node itself")
    return TreeCheckpoint(origin.tree, checkpoint.size, checkpoint.root, 0, at, lines, origin.node, names["node"])


def _stated(content: str) -> tuple[Checkpoint, str]:
    """Return the checkpoint of a note, and the lines of its signatures. Raises HistoryError."""
    note = read_note(content.encode()[: MAX_NOTE + 1])
    return read_checkpoint(note.text), "".join(one.line() for one in note.signatures)


def _require_origin(found: LogOrigin, wanted: LogOrigin) -> None:
    if found != wanted:
        raise ValueError(f"it is of {found}, in a row of {wanted}")
