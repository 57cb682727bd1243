"""Questions about histories: bounds that hold before anything is verified, and what is read back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from federation.errors import HistoryError, Malformed
from federation.history.exchange import (
    NoteAnswer,
    answer_note,
    ask_witness,
    encode_history,
    fit_notes,
    read_history_answer,
    read_history_question,
    read_offer,
)
from federation.history.fork_file import MAX_FORK_FILE, ForkedLeaf, ForkFile, check_fork, read_fork_file
from federation.history.merkle import hash_leaf
from tests.support import plain_history as plain
from tests.support.growing_tree import SECOND, GrowingTree

NOTE = GrowingTree().note().encode().decode()
HASH = "A" * 43 + "="


def question(**members: Any) -> bytes:
    return json.dumps({"ask": "witness", "note": NOTE} | members).encode()


def test_an_offer_is_read_as_it_was_asked() -> None:
    tree = GrowingTree().grow("x", "y")
    for offer in (tree.offer(), tree.offer(2)):
        asked = read_history_question(encode_history(ask_witness(offer)))
        assert read_offer(asked) == offer  # type: ignore[arg-type]
        answer = read_history_answer(encode_history(answer_note(offer)), NoteAnswer)
        assert read_offer(answer, offer.old) == offer


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b'{"ask":"all"}',
        b"[" * 100_000,
        question(old=1 << 48),
        question(old=1 << 63),
        question(old=-1),
        question(old="7"),
        question().replace(b'"note"', b'"old": 007, "note"'),
        question(old=1.5),
        question(proof=[HASH] * 64),
        question(proof=["A" * 45]),
        question(notes=["n"] * 65),
        question(note="n" * (16 * 1024 + 1)),
        question(note="n" * (1 << 20)),
        question(opening={"note": NOTE, "path": [HASH] * 64}),
        b'{"ask":"consistency","tree":"t","old":0,"size":1}',
        b'{"ask":"consistency","tree":"t","old":1,"size":281474976710656}',
        b'{"ask":"note","tree":"t","old":-1}',
        b'{"ask":"note","tree":"' + b"t" * 513 + b'"}',
        b'{"ask":"tiles","tree":"t","first":0,"count":65,"size":1}',
        b'{"ask":"tiles","tree":"t","first":0,"count":0,"size":1}',
        b'{"ask":"tiles","tree":"t","first":-1,"count":1,"size":1}',
        b'{"ask":"tiles","tree":"t","first":0,"count":1,"size":281474976710656}',
        b'{"ask":"range","tree":"t","from":0,"to":1}',
        b'{"ask":"range","tree":"t","from":1,"to":281474976710655}',
        b'{"ask":"range","tree":"t","from":1}',
        b'{"ask":"prove","tree":"t"}',
        b'{"ask":"prove","tree":"t","indices":[0]}',
        b'{"ask":"prove","tree":"t","indices":[' + b"1," * 1000 + b"1]}",
        b'{"ask":"prove","tree":"t","ids":["x"],"digests":[' + b'"x",' * 999 + b'"x"]}',
        b'{"ask":"prove","tree":"t","ids":["x"],"size":-1}',
    ],
)
def test_what_is_beyond_a_bound_is_malformed(body: bytes) -> None:
    with pytest.raises(Malformed):
        read_history_question(body)


@pytest.mark.parametrize(
    "note",
    [
        NOTE.replace("\n", "\r\n"),
        NOTE.replace("eventd", "ev\0ntd"),
        NOTE + NOTE.splitlines(keepends=True)[-1] * 16,
        NOTE.replace("\n1\n", "\n01\n"),
        NOTE.rstrip("\n"),
        "\ud800" + NOTE,
    ],
    ids=["crlf", "nul", "17-signatures", "leading-zero", "no-end", "surrogate"],
)
def test_a_note_that_is_not_in_its_one_form_is_refused(note: str) -> None:
    asked = read_history_question(question(note=NOTE))
    from msgspec.structs import replace

    from federation.history.checkpoints import read_checkpoint

    with pytest.raises(HistoryError):
        read_checkpoint(read_offer(replace(asked, note=note)).note.text)  # type: ignore[arg-type]


def test_notes_of_others_fit_into_a_message() -> None:
    assert len(fit_notes([NOTE] * 100)) == 64
    assert len(fit_notes(["n" * (16 << 10)] * 64)) == 32


# --- fork files ---------------------------------------------------------------------------------------------------


def fork_at(index: int) -> tuple[ForkFile, GrowingTree]:
    """Two trees of other sizes that differ at an index."""
    one, two = GrowingTree().grow("x", "y"), GrowingTree().grow("x", "other", "z")
    hashes = tuple(hash_leaf(tree.entries[index]) for tree in (one, two))
    paths = tuple(tuple(plain.path(index, tree.entries)) for tree in (one, two))
    leaf = ForkedLeaf(index, hashes, paths)  # type: ignore[arg-type]
    return ForkFile((one.note(), two.note()), leaf), one


def test_two_sizes_are_a_fork_if_a_leaf_differs() -> None:
    file, tree = fork_at(2)
    assert read_fork_file(file.encode()) == file
    proven = check_fork(file.encode(), [tree.signer.key])
    assert (proven.first.size, proven.second.size, proven.index) == (3, 4, 2)


@pytest.mark.parametrize(
    ("file", "reason"),
    [
        (fork_at(1)[0], "may both be true"),
        (ForkFile(fork_at(2)[0].notes), "may both be true"),
        (ForkFile((GrowingTree().note(), GrowingTree().note())), "may both be true"),
        (ForkFile((GrowingTree().note(), GrowingTree("u").note())), "are two trees"),
        (ForkFile((GrowingTree().note(), GrowingTree(key=SECOND).note())), "signed with another key"),
    ],
)
def test_what_may_be_honest_is_no_fork(file: ForkFile, reason: str) -> None:
    with pytest.raises(HistoryError, match=reason):
        check_fork(file.encode(), [GrowingTree().signer.key])


def test_a_file_without_the_key_of_its_tree_proves_nothing() -> None:
    with pytest.raises(HistoryError, match="no known key"):
        check_fork(fork_at(2)[0].encode(), [GrowingTree("u").signer.key])


def test_a_leaf_whose_path_leads_elsewhere_proves_nothing() -> None:
    file, tree = fork_at(2)
    assert file.leaf is not None
    wrong = ForkFile(file.notes, ForkedLeaf(2, (bytes(32), file.leaf.hashes[1]), file.leaf.paths))
    with pytest.raises(HistoryError, match="leads to root"):
        check_fork(wrong.encode(), [tree.signer.key])


@pytest.mark.parametrize("data", [b"", b"{}", b'{"format":"eventd-fork/1","notes":["a"]}', b" " * (MAX_FORK_FILE + 1)])
def test_what_is_not_a_fork_file_is_refused(data: bytes) -> None:
    with pytest.raises(HistoryError):
        check_fork(data, [])
