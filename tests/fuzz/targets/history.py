"""The verifiable history: each text has one form, and a proof of another leaf or size proves nothing."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from hashlib import sha256
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from federation.errors import BadAnswer, BadEvent, HistoryError, Malformed
from federation.history.checkpoints import Checkpoint, LogOrigin, read_checkpoint, read_origin, sign_checkpoint
from federation.history.entries import (
    Opening,
    OpeningReason,
    event_entry,
    opening_entry,
    read_event_entry,
    read_opening_entry,
)
from federation.history.exchange import (
    ConsistencyAnswer,
    KeysAnswer,
    NoteAnswer,
    ProveAnswer,
    RangeAnswer,
    TilesAnswer,
    WitnessAnswer,
    WitnessQuestion,
    encode_history,
    read_history_answer,
    read_history_question,
    read_offer,
)
from federation.history.fork_file import check_fork
from federation.history.lake_checkpoints import read_lake_checkpoint
from federation.history.leaf_hints import read_places, write_places
from federation.history.merkle import hash_leaf
from federation.history.multiproofs import verify_leaves
from federation.history.notes import LOG_KEY, WITNESS_KEY, NoteSigner, read_note, read_vkey
from federation.history.policy import read_policy
from federation.history.proof_file import LeafProof, ProofFile, check_proof, read_leaf_proof, read_proof_file
from federation.history.proofs import verify_consistency, verify_inclusion
from federation.history.tiles import (
    TileAddress,
    TileBuilder,
    consistency_proof,
    inclusion_proof,
    multiproof,
    read_hashes,
    read_tile_path,
    root_of,
)
from tests.fuzz.target import FuzzTarget

ORIGIN = LogOrigin("edge", "a", "0123456789abcdef")
SIGNER = NoteSigner(str(ORIGIN), LOG_KEY, Ed25519PrivateKey.from_private_bytes(bytes(range(32))))
WITNESS = NoteSigner("w", WITNESS_KEY, Ed25519PrivateKey.from_private_bytes(bytes(range(1, 33))))
OPENING = opening_entry(Opening(ORIGIN, SIGNER.key, OpeningReason.FIRST, 1, 1780142400000000), SIGNER)
LEAVES = [hash_leaf(OPENING), *(hash_leaf(event_entry(sha256(bytes([number])).digest())) for number in range(40))]


@cache
def tiles() -> dict[TileAddress, bytes]:
    return TileBuilder().extend(LEAVES)


def read_tile(address: TileAddress) -> bytes:
    level = {one: tile for one, tile in tiles().items() if (one.level, one.number) == (address.level, address.number)}
    return level[max(level, key=lambda one: one.width)]


def check_note(data: bytes) -> None:
    try:
        note = read_note(data)
    except HistoryError:
        return
    assert note.encode() == data
    assert read_note(note.encode()) == note


def check_checkpoint(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    for read in (read_checkpoint, read_lake_checkpoint):
        try:
            found = read(text)
        except HistoryError:
            continue
        assert found.text() == text
        assert found.size > 0
    with suppress(HistoryError):
        assert str(read_origin(text)) == text


def check_entry(data: bytes) -> None:
    with suppress(HistoryError):
        assert event_entry(read_event_entry(data)) == data
    try:
        entry = read_opening_entry(data)
    except HistoryError:
        return
    assert b"\x00" + entry.note.encode() == data
    assert entry.opening.text() == entry.note.text
    assert entry.opening.key.name == str(entry.opening.origin)


def check_vkey(data: bytes) -> None:
    text = data.decode("utf-8", "surrogateescape")
    for kind in (LOG_KEY, WITNESS_KEY):
        try:
            key = read_vkey(text, kind)
        except HistoryError:
            continue
        assert key.text() == text
        assert key.kind == kind


def check_tile(data: bytes) -> None:
    path, _, tile = data.partition(b"\n")
    try:
        address = read_tile_path(path.decode("utf-8", "replace"))
    except HistoryError:
        return
    assert address.path().encode() == path
    assert 1 <= address.width <= 256
    try:
        hashes = read_hashes(tile, address)
    except HistoryError:
        return
    assert len(hashes) == address.width
    assert b"".join(hashes) == tile[: 32 * address.width]


def check_proof_file(data: bytes) -> None:
    try:
        file = read_proof_file(data)
    except HistoryError:
        return
    assert read_proof_file(file.encode()) == file
    assert read_leaf_proof(file.leaf.text()) == file.leaf
    try:
        proven = check_proof(data, [SIGNER.key], [WITNESS.key])
    except (HistoryError, BadEvent):
        return
    assert LEAVES[proven.index] == hash_leaf(event_entry(proven.digest))
    assert proven.checkpoint.root == root_of(proven.checkpoint.size, read_tile)


def check_fork_file(data: bytes) -> None:
    try:
        check_fork(data, [SIGNER.key])
    except (HistoryError, BadEvent):
        return
    raise AssertionError("a fork is proven of a node that signed one tree")


def check_proofs(data: bytes) -> None:
    """Bytes 0 to 3: indices and sizes. The rest is a proof: only the right one leads to the right root."""
    if len(data) < 4:
        return
    one, other, size, kind = data[0] % 41, data[1] % 41, 1 + data[2] % 41, data[3] % 3
    proof = [data[at : at + 32] for at in range(4, len(data), 32)]
    root = root_of(size, read_tile)
    indices = sorted({one % size, other % size})
    right = (
        inclusion_proof(one % size, size, read_tile),
        consistency_proof(1 + one % size, size, read_tile),
        multiproof(indices, size, read_tile),
    )[kind]
    for given in (proof, right):
        try:
            if kind == 0:
                verify_inclusion(LEAVES[one % size], one % size, size, given, root)
            elif kind == 1:
                verify_consistency(1 + one % size, root_of(1 + one % size, read_tile), size, root, given)
            else:
                verify_leaves({index: LEAVES[index] for index in indices}, size, given, root)
        except HistoryError:
            assert given != right
        else:
            assert given == right


def check_messages(data: bytes) -> None:
    try:
        question = read_history_question(data)
        assert read_history_question(encode_history(question)) == question
        if isinstance(question, WitnessQuestion):
            _offer(question)
    except Malformed:
        pass
    for kind in (WitnessAnswer, KeysAnswer, ConsistencyAnswer, TilesAnswer, NoteAnswer, RangeAnswer, ProveAnswer):
        try:
            answer: Any = read_history_answer(data, kind)  # type: ignore[type-var]
        except BadAnswer:
            continue
        assert read_history_answer(encode_history(answer), kind) == answer  # type: ignore[type-var]
        if isinstance(answer, NoteAnswer):
            _offer(answer)


def _offer(message: WitnessQuestion | NoteAnswer) -> None:
    try:
        offer = read_offer(message)
    except HistoryError:
        return
    assert read_note(offer.note.encode()) == offer.note


def check_places(data: bytes) -> None:
    places = read_places(data.decode("latin-1"))
    if places:
        assert read_places(write_places(places)) == places


def check_policy(data: bytes) -> None:
    try:
        policy = read_policy(data.decode("utf-8", "surrogateescape"))
    except HistoryError:
        return
    held = policy.holds(policy.witnesses.values()) if isinstance(policy.witnesses, dict) else policy.holds([])
    assert isinstance(held, bool)


def _checkpoint(size: int = 9) -> Checkpoint:
    return Checkpoint(ORIGIN, size, root_of(size, read_tile))


def note_seeds() -> Iterable[bytes]:
    yield sign_checkpoint(_checkpoint(), SIGNER).encode()
    yield "text\n\nmore é\n\n— name AAAAAAEC\n— other AAAAAAEC\n".encode()


def checkpoint_seeds() -> Iterable[bytes]:
    yield _checkpoint().text().encode()
    yield str(ORIGIN).encode()


def entry_seeds() -> Iterable[bytes]:
    yield OPENING
    yield event_entry(bytes(32))


def vkey_seeds() -> Iterable[bytes]:
    yield SIGNER.key.text().encode()
    yield WITNESS.key.text().encode()


def tile_seeds() -> Iterable[bytes]:
    yield b"tile/0/x001/234.p/2\n" + bytes(64)
    yield b"tile/1/000\n" + bytes(8192)


def file_seeds() -> Iterable[bytes]:
    note = sign_checkpoint(_checkpoint(), SIGNER)
    leaf = LeafProof(3, tuple(inclusion_proof(3, 9, read_tile)), note)
    path = tuple(inclusion_proof(0, 9, read_tile))
    yield ProofFile(sha256(bytes([2])).digest(), None, leaf, OPENING, path).encode()


def proof_seeds() -> Iterable[bytes]:
    yield bytes([3, 7, 40, 0]) + b"".join(inclusion_proof(3, 41, read_tile))
    yield bytes([7, 3, 40, 1]) + b"".join(consistency_proof(8, 41, read_tile))
    yield bytes([3, 7, 40, 2]) + b"".join(multiproof([3, 7], 41, read_tile))


def message_seeds() -> Iterable[bytes]:
    note = sign_checkpoint(_checkpoint(), SIGNER).encode().decode()
    yield encode_history(WitnessQuestion(note=note, old=0, proof=()))
    yield encode_history(NoteAnswer(note=note, proof=(b64encode(bytes(32)).decode(),), opening=None))
    yield b'{"ask":"keys"}'
    yield b'{"ask":"tiles","tree":"eventd/edge/a/0123456789abcdef","first":0,"count":1,"size":9}'
    yield b'{"ask":"prove","tree":"eventd/edge/a/0123456789abcdef","size":9,"ids":["x"]}'


def place_seeds() -> Iterable[bytes]:
    yield from (b"", b'(12 3);t="0123456789abcdef", (15 0)', b"(7 0)")


def policy_seeds() -> Iterable[bytes]:
    key = WITNESS.key.text()
    yield f"log {SIGNER.key.text()}\nwitness w1 {key}\ngroup g 1 w1\nquorum g\n# x\n".encode()
    yield b"quorum none\n"


TARGETS = (
    FuzzTarget("notes", check_note, note_seeds, ("\n\n", "— ", "+")),
    FuzzTarget("checkpoints", check_checkpoint, checkpoint_seeds, ("eventd/", "/files/", "\n")),
    FuzzTarget("tree-entries", check_entry, entry_seeds, ("first", "epoch", "key", "damage", "-\n-\n-\n")),
    FuzzTarget("verifier-keys", check_vkey, vkey_seeds),
    FuzzTarget("tiles", check_tile, tile_seeds, ("tile/", "/x000", ".p/")),
    FuzzTarget("proof-files", check_proof_file, file_seeds, ('"event"', '"digest"', '"proof"', '"opening"')),
    FuzzTarget("fork-files", check_fork_file, file_seeds, ('"leaves"', '"format"', '"notes"')),
    FuzzTarget("tree-proofs", check_proofs, proof_seeds),
    FuzzTarget(
        "history-messages", check_messages, message_seeds, ('"ask":"', '"tree":"', '"opening":{', '"rotations"')
    ),
    FuzzTarget("leaf-hints", check_places, place_seeds),
    FuzzTarget("policies", check_policy, policy_seeds, ("witness ", "group ", "quorum ", "log ", "any", "none")),
)
