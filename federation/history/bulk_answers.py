"""What the answers to the questions `range` and `prove` prove to the node that asked. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from federation.errors import MalformedHistory
from federation.history.checkpoints import Checkpoint, open_checkpoint
from federation.history.exchange import ProveAnswer, ProveQuestion, RangeAnswer, RangeQuestion, read_hashes
from federation.history.multiproofs import verify_leaves
from federation.history.notes import NoteKey, read_note


def check_range(question: RangeQuestion, answer: RangeAnswer, leaves: Sequence[bytes], key: NoteKey) -> Checkpoint:
    """Return the checkpoint that has these leaf hashes at the indices of the question; `key` is that of the tree.

    Raises MalformedHistory, ProofMismatch for other leaves, and UnprovenNote for a note without the key's signature.
    """
    checkpoint = _open(answer.note, question.size, key)
    if len(leaves) != len(question.indices):
        raise MalformedHistory(f"the range has {len(question.indices)} leaves, not {len(leaves)}", reason="index")
    _verify(dict(zip(question.indices, leaves, strict=True)), checkpoint, answer.proof)
    return checkpoint


def check_entries(
    question: ProveQuestion, answer: ProveAnswer, leaves: Sequence[bytes], key: NoteKey
) -> tuple[Checkpoint, Mapping[int, int]]:
    """Return the checkpoint, and the index of each entry that it is proven to have, by its place in the question.

    `leaves` are the leaf hashes of the entries, in the order of the question; `key` is that of the tree. That an entry
    is missing is not proven: the answering node may not know it. Raises as `check_range`.
    """
    checkpoint = _open(answer.note, question.size, key)
    if not len(answer.indices) == question.entries == len(leaves):
        raise MalformedHistory(
            f"the question is about {question.entries} entries, and the answer about {len(answer.indices)}",
            reason="index",
        )
    found = {place: index for place, index in enumerate(answer.indices) if index}
    asked = question.entries - len(question.indices)
    proven = dict[int, bytes]()
    for place, index in found.items():
        if place >= asked and index != question.indices[place - asked]:
            raise MalformedHistory(
                f"leaf {question.indices[place - asked]} is asked for, and the answer is about leaf {index}",
                reason="index",
            )
        if proven.setdefault(index, leaves[place]) != leaves[place]:
            raise MalformedHistory(f"the answer has two entries at leaf {index}", reason="index")
    if proven:
        _verify(proven, checkpoint, answer.proof)
    return checkpoint, found


def _open(note: str, size: int, key: NoteKey) -> Checkpoint:
    checkpoint = open_checkpoint(read_note(note.encode(errors="replace")), key)
    if size and checkpoint.size != size:
        raise MalformedHistory(
            f"the checkpoint of size {size} is asked for, and the answer has that of size {checkpoint.size}",
            reason="size",
        )
    return checkpoint


def _verify(leaves: Mapping[int, bytes], checkpoint: Checkpoint, proof: Sequence[str]) -> None:
    hashes = read_hashes(tuple(proof), "the proof of the leaves")
    verify_leaves(leaves, checkpoint.size, hashes, checkpoint.root)
