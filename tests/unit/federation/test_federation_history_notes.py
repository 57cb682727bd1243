"""Notes, checkpoints, cosignatures, opening entries and proof files: what is read back, and what only code can do."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from federation.errors import MalformedHistory, MessageError, UnprovenNote
from federation.history.checkpoints import Checkpoint, LogOrigin, open_checkpoint, read_checkpoint, sign_checkpoint
from federation.history.cosignatures import MAX_TIME, cosign, cosignature_times
from federation.history.entries import (
    Opening,
    OpeningReason,
    PreviousTree,
    event_entry,
    opening_entry,
    read_event_entry,
    read_opening_entry,
)
from federation.history.forms import write_base64
from federation.history.merkle import MAX_SIZE, hash_leaf
from federation.history.notes import (
    LOG_KEY,
    MAX_NOTE,
    MAX_SIGNATURES,
    WITNESS_KEY,
    NoteKey,
    NoteSigner,
    SignedNote,
    read_note,
    read_vkey,
    sign_text,
)
from federation.history.proof_file import MAX_PROOF_FILE, LeafProof, ProofFile, check_proof, read_proof_file
from federation.history.tiles import TileBuilder, inclusion_proof
from federation.peers import GROUP_NAME, NODE_NAME
from tests.support import plain_history as plain
from tests.unit.federation.samples import WEAK_KEYS
from tests.vectors.history import EVENT

origins = st.builds(
    LogOrigin,
    st.from_regex(GROUP_NAME, fullmatch=True),
    st.from_regex(NODE_NAME, fullmatch=True),
    st.from_regex(r"[a-z0-9]{16}", fullmatch=True),
)
hashes = st.binary(min_size=32, max_size=32)
checkpoints = st.builds(Checkpoint, origins, st.integers(1, MAX_SIZE), hashes)

ORIGIN = LogOrigin("edge", "site-a", "k3v9x0q2m7p1a8zd")
NEXT = LogOrigin("edge", "site-a", "b71mvr90kq2xw4ce")


def signer(name: object, kind: int, seed: int) -> NoteSigner:
    return NoteSigner(str(name), kind, Ed25519PrivateKey.from_private_bytes(bytes([seed]) * 32))


LOG, SUCCESSOR = signer(ORIGIN, LOG_KEY, 1), signer(NEXT, LOG_KEY, 2)
WITNESS = signer("eventd/edge/site-b/witness", WITNESS_KEY, 3)
CHECKPOINT = Checkpoint(ORIGIN, 9, bytes(32))
NOTE = sign_checkpoint(CHECKPOINT, LOG)


@given(checkpoints)
def test_checkpoint_is_read_back_by_both_implementations(checkpoint: Checkpoint) -> None:
    by = signer(checkpoint.origin, LOG_KEY, 1)
    data = sign_checkpoint(checkpoint, by).encode()
    assert open_checkpoint(read_note(data), by.key) == checkpoint == read_checkpoint(checkpoint.text())
    assert plain.open_checkpoint(data, by.key.text(), []) == (checkpoint.size, checkpoint.root, {})


def test_a_checkpoint_looks_like_this_and_is_signed_with_the_same_bytes_again() -> None:
    text = "eventd/edge/site-a/k3v9x0q2m7p1a8zd\n9\nAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n"
    assert CHECKPOINT.text() == NOTE.text == text
    assert sign_checkpoint(CHECKPOINT, LOG).encode() == NOTE.encode()


@given(st.binary(max_size=200))
def test_any_bytes_are_a_note_or_malformed(data: bytes) -> None:
    with pytest.raises(MalformedHistory):
        read_note(data)


@given(st.data())
def test_a_note_with_one_changed_byte_is_never_proven(data: st.DataObject) -> None:
    whole = NOTE.add(cosign(NOTE.text, WITNESS, 5)).encode()
    at, value = data.draw(st.integers(0, len(whole) - 1)), data.draw(st.integers(0, 255))
    changed = whole[:at] + bytes([value]) + whole[at + 1 :]
    try:
        note = read_note(changed)
        checkpoint = open_checkpoint(note, LOG.key)
        times = cosignature_times(note, [WITNESS.key])
    except MessageError:
        return
    # What is left is the same statement; a signature that no longer names the known witness is only ignored.
    assert checkpoint == CHECKPOINT
    assert times in ({WITNESS.key: 5}, {})


@given(st.text(max_size=60))
def test_any_text_is_a_verifier_key_or_malformed(text: str) -> None:
    with pytest.raises(MalformedHistory):
        read_vkey(text, LOG_KEY)


def test_a_checkpoint_is_opened_only_with_the_key_of_its_own_tree() -> None:
    with pytest.raises(UnprovenNote, match=f"is of the tree {ORIGIN}, but the key is that of {NEXT}"):
        open_checkpoint(NOTE, SUCCESSOR.key)


def test_a_note_takes_16_signatures_and_no_more() -> None:
    note = NOTE
    for number in range(MAX_SIGNATURES - 1):
        note = note.add(sign_text(note.text, signer(f"other/{number}", LOG_KEY, 9)))
    assert open_checkpoint(read_note(note.encode()), LOG.key) == CHECKPOINT
    with pytest.raises(MalformedHistory, match="at most 16384 bytes and 16 signatures"):
        note.add(sign_text(note.text, WITNESS))


def test_a_note_that_has_become_too_long_is_refused_before_it_is_stored() -> None:
    note = SignedNote("x" * (MAX_NOTE - 100) + "\n", ())
    with pytest.raises(MalformedHistory, match="at most 16384 bytes"):
        note.add(sign_text(note.text, LOG))


def test_a_key_counts_once_under_two_names() -> None:
    other = signer("eventd/edge/site-b/again", WITNESS_KEY, 3)
    note = NOTE.add(cosign(NOTE.text, WITNESS, 9)).add(cosign(NOTE.text, other, 7))
    assert cosignature_times(note, [WITNESS.key, other.key]) == {other.key: 7}


def test_a_witness_that_did_not_sign_is_not_among_the_cosigners() -> None:
    assert cosignature_times(NOTE, [WITNESS.key]) == {}


@pytest.mark.parametrize("time", [0, -1, MAX_TIME + 1])
def test_a_witness_does_not_sign_a_time_that_verifiers_refuse(time: int) -> None:
    with pytest.raises(MalformedHistory, match="is not the time of a cosignature"):
        cosign(NOTE.text, WITNESS, time)


@pytest.mark.parametrize(("kind", "public"), [(2, bytes(32)), (6, bytes(1312)), (1, bytes(31)), (1, bytes(33))])
def test_only_ed25519_keys_of_logs_and_witnesses_are_known(kind: int, public: bytes) -> None:
    with pytest.raises(MalformedHistory, match=f"has type {kind} and {len(public)} bytes"):
        NoteKey("name", kind, public)


def test_a_signer_never_shows_its_private_key() -> None:
    assert "private" not in repr(LOG)


openings = st.builds(
    Opening,
    st.just(NEXT),
    st.just(SUCCESSOR.key),
    st.sampled_from([OpeningReason.EPOCH, OpeningReason.KEY, OpeningReason.DAMAGE]),
    st.integers(0, 10**15 - 1),
    st.integers(0, 1 << 58),
    st.builds(PreviousTree, st.just(ORIGIN), st.integers(1, MAX_SIZE), hashes),
)


@given(openings)
def test_opening_entry_is_read_back(opening: Opening) -> None:
    read = read_opening_entry(opening_entry(opening, SUCCESSOR, LOG))
    assert read.opening == opening
    assert read.is_signed_by(LOG.key)
    assert not read_opening_entry(opening_entry(opening, SUCCESSOR)).is_signed_by(LOG.key)


def test_the_entry_of_an_event_is_33_bytes_and_read_back() -> None:
    digest = plain.digest(EVENT.encode())
    assert event_entry(digest) == b"\x01" + digest
    assert read_event_entry(event_entry(digest)) == digest
    with pytest.raises(MalformedHistory, match="has 32 bytes, not 31"):
        event_entry(digest[1:])


@pytest.mark.parametrize(
    "entry", [b"", b"\x00" + bytes(32), b"\x02" + bytes(32), b"\x01" + bytes(31), b"\x01" + bytes(33)]
)
def test_another_entry_is_not_that_of_an_event(entry: bytes) -> None:
    with pytest.raises(MalformedHistory):
        read_event_entry(entry)


def proof_of(event: str | None, opening: bytes, *others: bytes) -> ProofFile:
    """The proof of an event that follows others in a tree of this opening."""
    digest = plain.digest(EVENT.encode() if event is None else event.encode())
    leaves = [hash_leaf(entry) for entry in (opening, *others, event_entry(digest))]
    builder = TileBuilder()
    tiles = builder.extend(leaves)
    last, size = len(leaves) - 1, len(leaves)
    note = sign_checkpoint(Checkpoint(ORIGIN, size, builder.root()), LOG)
    leaf = LeafProof(last, tuple(inclusion_proof(last, size, tiles.__getitem__)), note)
    return ProofFile(digest, event, leaf, opening, tuple(inclusion_proof(0, size, tiles.__getitem__)))


OPENING = opening_entry(Opening(ORIGIN, LOG.key, OpeningReason.FIRST, 0, 1), LOG)


@given(st.sampled_from([EVENT, None]), st.integers(0, 20))
def test_proof_file_is_read_back_and_checked_by_both_implementations(event: str | None, others: int) -> None:
    file = proof_of(event, OPENING, *(event_entry(bytes([number]) * 32) for number in range(others)))
    assert read_proof_file(file.encode()) == file
    proven = check_proof(file.encode(), [LOG.key])
    assert (proven.digest, proven.index, proven.checkpoint.size) == (file.digest, others + 1, others + 2)
    assert (proven.event is None) == (event is None)
    assert plain.open_file(file.encode(), LOG.key.text(), []) == (file.digest, others + 1, others + 2, {})


def test_a_known_key_under_the_name_of_another_tree_is_named() -> None:
    known = NoteKey(str(LogOrigin("edge", "site-a", "o" * 16)), LOG_KEY, LOG.key.public)
    with pytest.raises(UnprovenNote, match=f"the known key of {known.name} also opens the tree") as refused:
        check_proof(proof_of(EVENT, OPENING).encode(), [known])
    assert LOG.key.text() in refused.value.message
    with pytest.raises(UnprovenNote, match="no known key is that of the tree"):
        check_proof(proof_of(EVENT, OPENING).encode(), [NoteKey(known.name, LOG_KEY, SUCCESSOR.key.public)])


def test_the_order_of_known_keys_of_one_tree_does_not_matter() -> None:
    other = signer(ORIGIN, LOG_KEY, 8).key
    for known in ([LOG.key, other], [other, LOG.key]):
        assert check_proof(proof_of(EVENT, OPENING).encode(), known).index == 1


def test_a_wrong_signature_of_the_previous_key_is_refused_by_who_knows_that_key() -> None:
    before = PreviousTree(NEXT, 5, bytes(32))
    opening = Opening(ORIGIN, LOG.key, OpeningReason.KEY, 7, 1, before)
    signed = read_opening_entry(opening_entry(opening, LOG, SUCCESSOR)).note
    wrong = SignedNote(signed.text, (signed.signatures[0], sign_text("another text", SUCCESSOR)))
    file = proof_of(EVENT, b"\x00" + wrong.encode()).encode()
    assert check_proof(file, [LOG.key]).index == 1
    with pytest.raises(UnprovenNote, match=f"a signature under the name {NEXT} .* is wrong"):
        check_proof(file, [LOG.key, SUCCESSOR.key])
    assert check_proof(proof_of(EVENT, opening_entry(opening, LOG, SUCCESSOR)).encode(), [LOG.key, SUCCESSOR.key])


def test_an_event_of_another_group_is_not_proven_by_the_tree_of_this_one() -> None:
    file = proof_of(EVENT.replace('"group":"edge"', '"group":"core"'), OPENING)
    with pytest.raises(UnprovenNote, match="the event is of the group 'core'"):
        check_proof(file.encode(), [LOG.key])


def test_a_tree_whose_opening_has_another_key_is_not_proven() -> None:
    other = signer(ORIGIN, LOG_KEY, 8)
    file = proof_of(EVENT, opening_entry(Opening(ORIGIN, other.key, OpeningReason.FIRST, 0, 1), other))
    with pytest.raises(UnprovenNote, match=r"leaf 0 of .* opens a tree with another key"):
        check_proof(file.encode(), [LOG.key])


def test_a_file_that_is_too_long_is_refused_before_it_is_read() -> None:
    with pytest.raises(MalformedHistory, match="has at most 4194304 bytes"):
        check_proof(b" " * (MAX_PROOF_FILE + 1), [LOG.key])


@given(st.data())
def test_a_proof_file_with_one_changed_byte_proves_the_same_or_nothing(data: st.DataObject) -> None:
    file = proof_of(EVENT, OPENING)
    whole = file.encode()
    at, value = data.draw(st.integers(0, len(whole) - 1)), data.draw(st.integers(0, 255))
    try:
        proven = check_proof(whole[:at] + bytes([value]) + whole[at + 1 :], [LOG.key])
    except MessageError:
        return
    assert (proven.digest, proven.index) == (file.digest, 1)


@pytest.mark.parametrize("name", ["\ud800", "a\udfff"])
def test_a_name_without_a_form_in_utf_8_is_malformed(name: str) -> None:
    with pytest.raises(MalformedHistory, match="is not the name of a key"):
        read_vkey(f"{name}+00000000+{write_base64(bytes([LOG_KEY]) + LOG.key.public)}", LOG_KEY)


@pytest.mark.parametrize("public", WEAK_KEYS, ids=bytes.hex)
@pytest.mark.parametrize("kind", [LOG_KEY, WITNESS_KEY])
def test_a_key_whose_signatures_anybody_can_make_is_refused(kind: int, public: bytes) -> None:
    with pytest.raises(MalformedHistory, match="is weak"):
        NoteKey("name", kind, public)


def test_a_key_that_is_listed_again_is_verified_once(monkeypatch: pytest.MonkeyPatch) -> None:
    verified: list[bytes] = []
    real = NoteKey.verifies
    monkeypatch.setattr(NoteKey, "verifies", lambda *args: verified.append(args[1]) or real(*args))
    note = NOTE.add(cosign(NOTE.text, WITNESS, 9))
    again = NoteKey(WITNESS.key.name, WITNESS_KEY, WITNESS.key.public)
    assert cosignature_times(note, [WITNESS.key, again] * 500) == {WITNESS.key: 9}
    assert len(verified) == 1
