"""A fork file: two states of one tree, both signed with its key, that cannot both be true. Pure.

As with a proof file, the key comes from the reader and never from the file.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from federation.errors import MalformedHistory, UnprovenNote
from federation.history.checkpoints import Checkpoint, open_checkpoint, read_checkpoint
from federation.history.file_forms import describe_form, read_json
from federation.history.forms import read_hash, write_base64
from federation.history.merkle import MAX_SIZE
from federation.history.notes import MAX_NOTE, NoteKey, SignedNote, read_note
from federation.history.proofs import verify_inclusion
from federation.history.witnessing import require_same_tree

FORK_FORMAT: Final = "eventd-fork/1"
MAX_FORK_FILE: Final = 256 * 1024
"""Maximum bytes of a fork file."""

_Path = Annotated[tuple[Annotated[str, Meta(max_length=44)], ...], Meta(max_length=63)]


class _LeafForm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    index: Annotated[int, Meta(ge=0, lt=MAX_SIZE)]
    hashes: tuple[str, str]
    paths: tuple[_Path, _Path]


class _ForkForm(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    format: Literal["eventd-fork/1"]
    notes: tuple[Annotated[str, Meta(max_length=MAX_NOTE)], Annotated[str, Meta(max_length=MAX_NOTE)]]
    leaf: _LeafForm | None = None


@dataclass(frozen=True)
class ForkedLeaf:
    """One index at which two trees have another leaf, with the inclusion path of each."""

    index: int
    hashes: tuple[bytes, bytes]
    paths: tuple[tuple[bytes, ...], tuple[bytes, ...]]


@dataclass(frozen=True)
class ForkFile:
    """Two notes of one tree: with two roots at one size, or with a leaf in which they differ."""

    notes: tuple[SignedNote, SignedNote]
    leaf: ForkedLeaf | None = None

    def encode(self) -> bytes:
        """Return the file."""
        leaf = None
        if self.leaf is not None:
            one, other = ([write_base64(each) for each in path] for path in self.leaf.paths)
            hashes = [write_base64(each) for each in self.leaf.hashes]
            leaf = {"leaf": {"index": self.leaf.index, "hashes": hashes, "paths": [one, other]}}
        notes = [note.encode().decode() for note in self.notes]
        form = {"format": FORK_FORMAT, "notes": notes} | (leaf or {})
        return json.dumps(form, ensure_ascii=False, indent=2).encode() + b"\n"


@dataclass(frozen=True)
class ProvenFork:
    """What a fork file proves: that the key of the tree signed both. `index`: where they differ, None: at one size."""

    first: Checkpoint
    second: Checkpoint
    index: int | None


def read_fork_file(data: bytes) -> ForkFile:
    """Return the content of a fork file, of which nothing is proven yet. Raises MalformedHistory."""
    if len(data) > MAX_FORK_FILE:
        raise MalformedHistory(
            f"it is larger than a fork file, which has at most {MAX_FORK_FILE} bytes", reason="file_size"
        )
    value = read_json(data)
    try:
        form = msgspec.convert(value, _ForkForm)
    except (ValueError, RecursionError) as error:
        raise MalformedHistory(describe_form(value, str(error), FORK_FORMAT), reason="file") from None
    first, second = (read_note(note.encode(errors="replace")) for note in form.notes)
    if form.leaf is None:
        return ForkFile((first, second))
    one, other = (read_hash(text, f"leaf {form.leaf.index}") for text in form.leaf.hashes)
    what = f"a hash of the path of leaf {form.leaf.index}"
    here, there = (tuple(read_hash(text, what) for text in path) for path in form.leaf.paths)
    return ForkFile((first, second), ForkedLeaf(form.leaf.index, (one, other), (here, there)))


def check_fork(data: bytes, log_keys: Iterable[NoteKey]) -> ProvenFork:
    """Return what a fork file proves to a reader who knows these keys.

    Raises MalformedHistory for what is not in its form, ProofMismatch if a path does not lead to its root, and
    UnprovenNote if the two notes do not contradict each other, or no known key signed both.
    """
    file = read_fork_file(data)
    first, second = (read_checkpoint(note.text) for note in file.notes)
    require_same_tree(first, second)
    known = [key for key in log_keys if key.name == str(first.origin)]
    if not known:
        raise UnprovenNote(
            f"no known key is that of the tree {first.origin}: get it from its operator, not from the file",
            reason="no_key",
        )
    for note in file.notes:
        open_checkpoint(note, known[0])
    if first.size == second.size and first.root != second.root:
        return ProvenFork(first, second, None)
    leaf = file.leaf
    if leaf is None or leaf.hashes[0] == leaf.hashes[1]:
        raise UnprovenNote(
            f"the two notes of {first.origin}, at sizes {first.size} and {second.size}, may both be true: the file"
            " names no leaf in which they differ",
            reason="no_fork",
        )
    for checkpoint, one, path in zip((first, second), leaf.hashes, leaf.paths, strict=True):
        verify_inclusion(one, leaf.index, checkpoint.size, path, checkpoint.root)
    return ProvenFork(first, second, leaf.index)
