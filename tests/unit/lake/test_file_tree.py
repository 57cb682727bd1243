"""The tree of a node's files in a lake: it grows, is continued after a crash, and is read as it was written."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec.structs import replace

from eventd.lake.file_tree import (
    LINES,
    FileTree,
    LineKind,
    TreeLine,
    checkpoint_of,
    digest_of_state,
    line_of,
    lines_folder,
    read_line,
    read_lines,
    without_replaced,
)
from eventd.lake.folder import LocalFolder
from eventd.lake.layout import archived, landing
from eventd.lake.manifest import NodeState, SegmentRange, encode
from eventd.lake.schema import Ledger
from eventd.lake.storage import Storage, connect
from eventd.lake.writer import write_state
from federation.errors import HistoryError
from federation.history.lake_checkpoints import LakeOrigin, read_lake_checkpoint
from federation.history.merkle import CompactRange, hash_leaf
from federation.history.proofs import verify_consistency

KEY = Ed25519PrivateKey.from_private_bytes(b"1" * 32)
KNOWN = {KEY.public_key().public_bytes_raw()}
ORIGIN = LakeOrigin("a", "e", "0123456789abcdef")
STATE = NodeState(node="a", epoch="e", instance="i", began_at=1, as_of=2, head=0, complete_until=2)


def shipped(storage: Storage, number: int, *, written: bool = True) -> TreeLine:
    """Return the line of a segment, and write its manifest."""
    place, manifest = landing(Ledger.EVENTS, "a", "e", number, number + 1, at=0), b'{"n": %d}' % number
    if written:
        storage.put(place.manifest, manifest)
    return line_of(LineKind.SHIP, place.name, manifest)


def lines(storage: Storage) -> list[str]:
    return [*read_lines(storage, lines_folder(*ORIGIN))]


def test_a_tree_of_several_files_is_continued_where_its_state_was_signed(tmp_path: Path) -> None:
    storage = connect(str(tmp_path))
    tree = FileTree.begin(storage, ORIGIN, {Ledger.EVENTS: 3})
    assert lines(storage) == [], "the state names the tree first"
    tree.add(shipped(storage, number) for number in range(LINES))
    state = tree.sign(STATE, KEY)
    write_state(storage, state)
    later = [shipped(storage, LINES), shipped(storage, LINES + 1, written=False)]
    tree.add(later)
    resumed = FileTree.resume(storage, state, KNOWN)
    assert resumed is not None
    resumed.add([TreeLine(LineKind.DROP, "events", ("9",))])
    assert state.tree is not None
    assert checkpoint_of(state.tree).size == LINES + len(Ledger)
    found = lines(storage)
    assert "begin events 3" in found[: len(Ledger)]
    assert found[-2:] == [later[0].text(), "drop events 9"], (
        "without the manifest, the node had ended before it wrote it"
    )
    signed = resumed.sign(STATE, KEY).tree
    hashes = CompactRange()
    for line in found:
        hashes.append(hash_leaf(line.encode()))
    assert signed is not None
    assert (checkpoint_of(signed).size, checkpoint_of(signed).root) == (len(found), hashes.root())


def test_a_line_that_another_program_appended_is_not_taken_over(tmp_path: Path) -> None:
    storage = connect(str(tmp_path))
    tree = FileTree.begin(storage, ORIGIN, {})
    tree.add([shipped(storage, 0)])
    state = tree.sign(replace(STATE, segments={Ledger.EVENTS: SegmentRange(after=0, upto=1)}), KEY)
    write_state(storage, state)
    signed = lines(storage)
    place = landing(Ledger.EVENTS, "a", "e", 0, 1, at=0)
    changed, wider = b'{"n": "changed"}', landing(Ledger.EVENTS, "a", "e", 0, 2, at=0)
    for one in (place, wider):
        storage.put(one.manifest, changed)
    archive = archived(Ledger.EVENTS, "a", "e", 0, 1, day="2026-01-01")
    storage.put(archive.manifest, changed)
    appended = [
        line_of(LineKind.SHIP, place.name, changed),
        line_of(LineKind.SHIP, wider.name, changed),
        line_of(LineKind.ARCHIVE, archive.name, changed),
        TreeLine(LineKind.DROP, "events", ("1",)),
        shipped(storage, 2),
        shipped(storage, 1),
    ]
    tree.add(appended)
    resumed = FileTree.resume(storage, state, KNOWN)
    assert resumed is not None
    assert resumed.all_lines() == [*signed, appended[-1].text()], "of all these, only the last continues the ledger"
    write_state(storage, replace(state, interval=7))
    resumed = FileTree.resume(storage, state, KNOWN)
    assert resumed is not None
    assert resumed.all_lines() == signed, "a state that was changed does not say what it covers"


def test_a_tree_of_several_files_is_proven_to_continue_each_size(grown: FileTree) -> None:
    signed = grown.sign(STATE, KEY).tree
    assert signed is not None
    stated = checkpoint_of(signed)
    small, sizes = CompactRange(), [1, 7, 255, 256, 257, 512, 65_536, 65_791, 65_792]
    for old, line in enumerate(islice(grown.all_lines() or (), sizes[-1]), 1):
        small.append(hash_leaf(line.encode()))
        if old == sizes[0]:
            sizes.pop(0)
            verify_consistency(old, small.root(), stated.size, stated.root, grown.prove(old, stated.size))
    assert sizes == []


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> FileTree:
    """A tree of 65,800 lines, so that it has hashes of level 2."""
    tree = FileTree.begin(connect(str(tmp_path_factory.mktemp("lake"))), ORIGIN, {})
    tree.add(TreeLine(LineKind.DROP, "events", (str(number),)) for number in range(65_800 - len(Ledger)))
    return tree


def test_each_file_is_read_once_for_all_proofs(grown: FileTree, monkeypatch: pytest.MonkeyPatch) -> None:
    read, size, olds = list[str](), 65_800, [65_700, 300, 301, 1_000, 30_000, 30_001]
    grown.prove(65_536, size)  # which reads the roots of all full files
    one_by_one = {old: grown.prove(old, size) for old in olds}

    def count(storage: LocalFolder, path: str, most: int) -> bytes:
        read.append(path.rpartition("/")[2])
        return read_within(storage, path, most)

    read_within = LocalFolder.read_within
    monkeypatch.setattr(LocalFolder, "read_within", count)
    monkeypatch.setattr(LocalFolder, "read_many", lambda *_: pytest.fail("files that no proof needs"))
    assert grown.prove_each(olds, size) == one_by_one
    assert sorted(read) == [f"{number:09d}.txt" for number in (1, 3, 117, 256, 257)]


def test_without_its_lines_a_tree_proves_nothing(tmp_path: Path) -> None:
    storage = connect(str(tmp_path))
    tree = FileTree.begin(storage, ORIGIN, {})
    tree.add(TreeLine(LineKind.DROP, "events", (str(number),)) for number in range(600))
    storage.delete([f"{lines_folder(*ORIGIN)}/000000001.txt"])
    with pytest.raises(HistoryError, match="are not in the lake"):
        tree.prove(300, 600)
    assert list(tree.prove_each([300, 100], 600)) == []


def test_lines_that_were_changed_are_not_those_of_the_tree(tmp_path: Path) -> None:
    storage = connect(str(tmp_path))
    tree = FileTree.begin(storage, ORIGIN, {})
    tree.add([shipped(storage, 0)])
    assert tree.all_lines() == lines(storage)
    storage.put(f"{lines_folder(*ORIGIN)}/000000000.txt", b"ship x\n" * len(lines(storage)))
    assert tree.all_lines() is None


def test_a_tree_whose_lines_or_signature_are_not_the_nodes_is_not_continued(tmp_path: Path) -> None:
    storage = connect(str(tmp_path))
    tree = FileTree.begin(storage, ORIGIN, {})
    state = tree.sign(STATE, KEY)
    assert FileTree.resume(storage, state, KNOWN) is None, "no line is there"
    tree.flush()
    assert FileTree.resume(storage, state, KNOWN) is not None
    assert FileTree.resume(storage, state, {b"2" * 32}) is None
    assert FileTree.resume(storage, replace(state, epoch="f"), KNOWN) is None
    assert state.tree is not None
    other = replace(state.tree, hashes=state.tree.hashes[::-1])
    assert FileTree.resume(storage, replace(state, tree=other), KNOWN) is None


def test_the_signature_of_a_state_leaves_out_what_operators_change_without_the_key() -> None:
    reach = {Ledger.EVENTS: SegmentRange(after=0, upto=9)}
    one = digest_of_state(encode(replace(STATE, segments=reach)))
    closed = replace(STATE, segments={Ledger.EVENTS: SegmentRange(after=5, upto=9)}, closed_at=7)
    assert digest_of_state(encode(closed)) == one
    assert digest_of_state(encode(replace(STATE, segments=reach, head=1))) != one


def test_the_line_of_an_archive_has_the_digest_without_the_replaced_segments() -> None:
    manifest = b'{\n "schema": 1,\n "replaces": [\n  "a"\n ],\n "later": 2\n}\n'
    line = line_of(LineKind.ARCHIVE, "name", manifest)
    assert without_replaced(manifest) == b'{\n "schema": 1,\n "replaces": [],\n "later": 2\n}\n'
    assert line_of(LineKind.ARCHIVE, "name", without_replaced(manifest)).values == line.values[1:]


@pytest.mark.parametrize("text", ["", "ship", "ship x y", "drop events -1", "begin events", f"ship x {'0' * 64}"])
def test_a_line_that_no_node_writes_is_none(text: str) -> None:
    assert read_line(text) is None


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("eventd-lake/", "eventd/"),
        lambda text: text.replace("\nstate ", "\nroot "),
        lambda text: text + "more\n",
        lambda text: text.replace("\n7\n", "\n07\n"),
    ],
)
def test_a_checkpoint_of_another_form_is_refused(tmp_path: Path, change: object) -> None:
    assert callable(change)
    signed = FileTree.begin(connect(str(tmp_path)), ORIGIN, {}).sign(STATE, KEY).tree
    assert signed is not None
    text = signed.note.partition("\n\n")[0] + "\n"
    assert read_lake_checkpoint(text).origin == ORIGIN
    with pytest.raises(HistoryError):
        read_lake_checkpoint(change(text))
