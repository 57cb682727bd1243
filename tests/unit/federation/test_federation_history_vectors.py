"""The vectors of the verifiable history against the product's code, and against a second implementation."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from federation.errors import MessageError
from federation.history.checkpoints import open_checkpoint
from federation.history.cosignatures import cosignature_times
from federation.history.entries import read_opening_entry
from federation.history.merkle import CompactRange, hash_leaf
from federation.history.multiproofs import verify_leaves
from federation.history.notes import LOG_KEY, read_note, read_vkey, require_signed
from federation.history.proof_file import check_proof
from federation.history.proofs import verify_consistency, verify_inclusion
from federation.history.tiles import TileBuilder, read_tile_path
from tests.support import plain_history as plain
from tests.vectors import generate
from tests.vectors.history import entry

Vector = dict[str, Any]
FILE = Path(generate.__file__).parent / "history.jsonl"
CASES = [json.loads(line) for line in FILE.read_text(encoding="utf-8").split("\n")[:-1]]


def of(*kinds: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        "case", [case for case in CASES if case["kind"] in kinds], ids=lambda case: case["name"]
    )


def root(size: int) -> bytes:
    tree = CompactRange()
    for index in range(size):
        tree.append(hash_leaf(entry(index)))
    return tree.root()


@of("root")
def test_root_is_that_of_the_vector(case: Vector) -> None:
    assert root(case["size"]).hex() == case["root"]


@of("inclusion")
def test_inclusion_proof_of_the_vector_is_verified(case: Vector) -> None:
    index, size, hashes = case["index"], case["size"], list(map(bytes.fromhex, case["path"]))
    verify_inclusion(hash_leaf(entry(index)), index, size, hashes, root(size))
    assert plain.root_by_path(plain.digest(b"\x00" + entry(index)), index, size, hashes) == root(size)


@of("consistency")
def test_consistency_proof_of_the_vector_is_verified(case: Vector) -> None:
    old, new, hashes = case["old"], case["new"], list(map(bytes.fromhex, case["proof"]))
    verify_consistency(old, root(old), new, root(new), hashes)
    assert plain.roots_by_proof(old, new, hashes, root(old)) == (root(old), root(new))


@of("multiproof")
def test_multiproof_of_the_vector_is_verified(case: Vector) -> None:
    size, hashes = case["size"], list(map(bytes.fromhex, case["proof"]))
    leaves = {index: hash_leaf(entry(index)) for index in case["indices"]}
    verify_leaves(leaves, size, hashes, root(size))
    assert plain.root_by_multiproof(leaves, 0, size, hashes) == root(size)
    assert hashes == []


@of("tiles")
def test_tiles_are_those_of_the_vector(case: Vector) -> None:
    tiles = TileBuilder().extend([hash_leaf(entry(index)) for index in range(case["size"])])
    assert {tile.path(): sha256(hashes).hexdigest() for tile, hashes in tiles.items()} == case["sha256"]


def outcome(act: Callable[[], Vector]) -> Vector:
    try:
        return {"ok": True} | act()
    except MessageError as error:
        return {"ok": False, "reason": error.reason}


def second_outcome(act: Callable[[], Vector]) -> Vector:
    """What the second implementation finds: it knows no reasons."""
    try:
        return {"ok": True} | act()
    except (ValueError, IndexError, RecursionError, KeyError):
        return {"ok": False}


def without_reason(expect: Vector) -> Vector:
    return {name: value for name, value in expect.items() if name != "reason"}


@of("tile_path")
def test_path_of_a_tile_has_one_spelling(case: Vector) -> None:
    def read() -> Vector:
        assert read_tile_path(case["path"]).path() == case["path"]
        return {}

    assert outcome(read) == case["expect"]


@of("vkey")
def test_verifier_key_is_read_or_refused(case: Vector) -> None:
    def read() -> Vector:
        assert read_vkey(case["vkey"], case["type"]).text() == case["vkey"]
        return {}

    def read_plainly() -> Vector:
        plain.need(plain.open_vkey(case["vkey"])[1] == case["type"], "another type")
        return {}

    assert outcome(read) == case["expect"]
    assert second_outcome(read_plainly) == without_reason(case["expect"])


@of("note")
def test_note_is_opened_or_refused(case: Vector) -> None:
    data = b64decode(case["note"])

    def read() -> Vector:
        note = read_note(data)
        assert note.encode() == data
        for key in case["vkeys"]:
            require_signed(note, read_vkey(key, LOG_KEY))
        return {"signed": case["vkeys"]}

    def read_plainly() -> Vector:
        _, signed = plain.open_note(data, case["vkeys"])
        plain.need(list(signed) == case["vkeys"], "unsigned")
        return {"signed": list(signed)}

    assert outcome(read) == case["expect"]
    assert second_outcome(read_plainly) == without_reason(case["expect"])


@of("checkpoint")
def test_checkpoint_is_opened_or_refused(case: Vector) -> None:
    data = b64decode(case["note"])

    def read() -> Vector:
        note = read_note(data)
        size = open_checkpoint(note, read_vkey(case["vkey"], LOG_KEY)).size
        times = cosignature_times(note, [read_vkey(key, 4) for key in case["witnesses"]])
        return {"size": size, "cosigned": {key.text(): time for key, time in times.items()}}

    def read_plainly() -> Vector:
        size, _, signed = plain.open_checkpoint(data, case["vkey"], case["witnesses"])
        return {"size": size, "cosigned": signed}

    assert outcome(read) == case["expect"]
    assert second_outcome(read_plainly) == without_reason(case["expect"])


@of("opening")
def test_opening_entry_is_read_or_refused(case: Vector) -> None:
    def read() -> Vector:
        entry = read_opening_entry(b64decode(case["entry"]))
        return {
            "signedByPrevious": entry.is_signed_by(read_vkey(case["previous"], LOG_KEY))
            and bool(entry.opening.previous)
        }

    assert outcome(read) == case["expect"]


@of("file")
def test_proof_file_is_checked(case: Vector) -> None:
    def read() -> Vector:
        keys = [read_vkey(key, LOG_KEY) for key in case["vkeys"]]
        proven = check_proof(case["file"].encode(), keys, [read_vkey(key, 4) for key in case["witnesses"]])
        times = {key.text(): time for key, time in proven.cosigned.items()}
        return {"digest": proven.digest.hex(), "index": proven.index, "size": proven.checkpoint.size, "cosigned": times}

    def read_plainly() -> Vector:
        plain.need(case["vkeys"], "no key")
        digest, index, size, signed = plain.open_file(case["file"].encode(), case["vkeys"][0], case["witnesses"])
        return {"digest": digest.hex(), "index": index, "size": size, "cosigned": signed}

    assert outcome(read) == case["expect"]
    if case["name"] not in LENIENT:
        assert second_outcome(read_plainly) == without_reason(case["expect"])


LENIENT = {f"history_file_{name}" for name in ("unknown_member", "member_twice", "digest_upper", "not_canonical")}
"""What the second implementation takes: it reads JSON as its library does, and does not know the form of events."""
