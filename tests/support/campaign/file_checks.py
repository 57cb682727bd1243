"""Which check finds a changed value in a state, a manifest or the head of a lake, field by field."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from eventd.lake.manifest import (
    FileTreeState,
    GroupState,
    LakeHead,
    LostRows,
    Manifest,
    NodeState,
    PeerState,
    SegmentRange,
    Selection,
    SelectionConditions,
)
from tests.support.campaign.field_checks import FieldTable, found, unchecked

_OF_FILES: Final = "integration/audit/engine/test_files_audited.py::test_"
_STATE: Final = {
    "schema": found("corrupt", "the versions that the program knows"),
    "node": found("corrupt", "the folder of the state"),
    "epoch": found("corrupt", "the name of its file"),
    "instance": unchecked("nothing: only the same one under two names is an `epoch`"),
    "began_at": unchecked("only the time of the state, which is later, and the states of other epochs"),
    "as_of": found("unproven", "the clock of the audit", "state-in-the-future"),
    "complete_until": found("unproven", "the time of the state, and the clock of the audit", "complete-in-the-future"),
    "head": found("rolled_back", "if it is higher, the last row of events; if it is lower, an earlier audit"),
    "books": unchecked("nothing: it hides no row, because head, segments and the rows of other nodes are compared"),
    "segments": found("corrupt", "the segments of the ledger, see below", "last-segment-gone"),
    "groups": found("disagreement", "the rows of the links and of the group, see below", "link-gone-at-sender"),
    "payloads": unchecked("nothing: payloads are compared where rows have them"),
    "interval": found("unproven", "if it is more than a day, the longest that a node may have", "interval-edited"),
    "closed_at": found("unproven", "the beginning of the epoch; rows of other nodes", "closed-before-it-began"),
    "later_books": unchecked("nothing, as `books`"),
    "later_segments": found("corrupt", "the segments of the ledger, see below", "last-segment-gone"),
    "tree": found(
        "unproven",
        "the lines of the tree in the lake, see below",
        _OF_FILES + "a_state_without_its_signature_leaves_the_audit_unproven",
    ),
}
_FILE_TREE: Final = {
    "key": found(
        "lake_rewritten",
        "the signature of the note",
        _OF_FILES + "what_another_program_writes_is_not_what_the_node_signed",
    ),
    "note": found(
        "lake_rewritten",
        "its signature, and the lines of the tree",
        _OF_FILES + "what_another_program_writes_is_not_what_the_node_signed",
    ),
    "hashes": unchecked("nothing: the node alone uses them, and compares them with the root that it signed"),
    "cosigned": found(
        "lake_rewritten",
        "the lines of the tree, if the node signed it; without its signature it proves nothing",
        _OF_FILES + "what_another_program_writes_is_not_what_the_node_signed",
    ),
}
_GROUP: Final = {
    "group": found("erased", "the rows of the group in events"),
    "peers": found("disagreement", "the peer's ledger of batches", "link-gone-at-sender"),
    "last_seq": found("erased", "if it is higher, the last row of events; if it is lower, an earlier audit"),
    "evicted_seq": unchecked("nothing: it excuses only rows of a gap that is declared elsewhere"),
    "tree": unchecked("nothing: leaves without a checkpoint are sought only in the tree that it names"),
}
_PEER: Final = {
    "peer": found("missing", "the events that the other peer should have"),
    "selections": found("altered", "the receipts of the link, see below", "selection-narrowed"),
    "relay": unchecked("nothing: the selection says the same, and is compared"),
    **dict.fromkeys(
        ("paused", "state", "reason", "since"), unchecked("nothing: the report shows it, and rests on receipts")
    ),
    "cursor": found("missing", "if it is higher, the deliveries; if it is lower, nothing", "cursor-advanced"),
    "created_at": unchecked("nothing, unless deliveries of a callback are earlier"),
    "repairs": unchecked(
        "nothing: earlier events that only a wider selection selects are due once its repairs passed them"
    ),
    "begins": found(
        "missing",
        "of a callback: its deliveries, if one is earlier",
        "integration/audit/engine/test_callbacks_audited.py::test_a_callback_begins_no_later_than_its_deliveries",
    ),
}
_SELECTION: Final = {
    "version": unchecked("nothing: rows have the texts of their own versions; a lower one than theirs is `altered`"),
    "declared_at": unchecked("only the first batch of the version: it is no later"),
    "selection": found("altered", "the receipts of the link, which have its text", "selection-narrowed"),
}
_OF_TEXT: Final = found("altered", "the receipts of the link, which have the text of the selection")
_CONDITIONS: Final = dict.fromkeys(("types", "subject_prefixes", "sources", "payload", "relay"), _OF_TEXT)
_RANGE: Final = {
    "after": found("corrupt", "if it is lower, the first segment; if it is higher, an earlier audit"),
    "upto": found("corrupt", "if it is higher, the last segment; if it is lower, an earlier audit"),
}
_MANIFEST: Final = {
    "schema": found("corrupt", "the versions that the program knows"),
    "book": found("corrupt", "the name of the file"),
    "node": found("corrupt", "the name of the file, and the rows"),
    "epoch": found("corrupt", "the name of the file, and the rows"),
    "after": found("corrupt", "the name of the file"),
    "upto": found("corrupt", "the name of the file"),
    "rows": found("corrupt", "the number of rows in the Parquet file"),
    "bytes": found("corrupt", "the size of the Parquet file"),
    "sha256": found("corrupt", "the digest of the Parquet file"),
    "slots": found("corrupt", "the times of the events in the rows"),
    "times": found("corrupt", "the times of the rows"),
    "written_at": unchecked("nothing: only the losses in the manifest are dated by it"),
    "payloads": unchecked("nothing: payloads are compared where rows have them"),
    "leaves": found("corrupt", "the columns of the Parquet file"),
    "replaces": found("corrupt", "the range of the segment: only the archive replaces others"),
    "lost": found("unproven", "itself: a declared loss leaves the rows of its range unproven"),
}
_OF_HOLE: Final = "the hole in the seqs of events, which it no longer explains"
_LOST: Final = {
    "group": found("erased", _OF_HOLE),
    "peer": unchecked("nothing: a loss of events concerns all peers"),
    "epoch": found("erased", _OF_HOLE),
    "after": found("erased", _OF_HOLE),
    "upto": found("erased", _OF_HOLE),
    "count": unchecked("nothing: the hole in the seqs is counted instead"),
    "reason": found("corrupt", "the reasons that nodes give", "events-called-lost"),
}
_HEAD: Final = {
    "schema": found(
        "refused",
        "the versions that the program knows",
        "integration/lake/test_survey.py::test_a_lake_of_another_schema_is_no_lake_for_us",
    ),
    "id": found(
        "refused",
        "the state of an earlier audit",
        "integration/audit/engine/test_history.py::"
        "test_an_output_of_another_lake_is_refused_also_by_a_full_audit_of_some_hours",
    ),
    "made_at": unchecked("nothing: it is not used"),
}
FILES: Final[Mapping[type, FieldTable]] = {
    NodeState: FieldTable("The state of a node", _STATE),
    FileTreeState: FieldTable("The tree of files in a state", _FILE_TREE),
    GroupState: FieldTable("A group in a state", _GROUP),
    PeerState: FieldTable("A peer or a callback of a group", _PEER),
    Selection: FieldTable("A selection of a peer", _SELECTION),
    SelectionConditions: FieldTable("The conditions of a selection", _CONDITIONS),
    SegmentRange: FieldTable("The range of a ledger in a state", _RANGE),
    Manifest: FieldTable("A manifest", _MANIFEST),
    LostRows: FieldTable("A loss in a manifest", _LOST),
    LakeHead: FieldTable("The head of the lake", _HEAD),
}
"""The checks of the fields of each JSON file, by the struct that has them."""
