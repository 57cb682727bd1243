"""Test vectors of protocol v2 for a witness: offers of checkpoints that it cosigns, and those that it refuses.

`state.witness` is what the receiver has: the seed of its key, `held` with the last note of a tree of the sender and the
verifier key of that tree, `files` with the last note of the sender's files in a lake, if it holds one, `leaves`, the
entries of its own tree in base64, and `note` its checkpoint.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

from tests.support import plain_history as plain
from tests.vectors.history import entry
from tests.vectors.sample import SECONDS, refused, request, vector

Vector = dict[str, Any]

TREE = "eventd/edge/a/k3v9x0q2m7p1a8zd"
NEXT = "eventd/edge/a/b71mvr90kq2xw4ce"
THIRD = "eventd/edge/a/ce4wx2qk09rvm17b"
OF_ANOTHER = "eventd/edge/c/k3v9x0q2m7p1a8zd"
FILES = "eventd-lake/a/8f0c3b7a51d2e694/k3v9x0q2m7p1a8zd"
FILES_OF_ANOTHER = "eventd-lake/c/8f0c3b7a51d2e694/k3v9x0q2m7p1a8zd"
OWN = "eventd/edge/b/m7p1a8zdk3v9x0q2"
LOG_SEED, NEXT_SEED, WITNESS_SEED, THIRD_SEED = (bytes([number]) * 32 for number in (1, 2, 3, 4))
WITNESS = "eventd/edge/b/witness"


def opening(origin: str = TREE, seed: bytes = LOG_SEED, rest: str = "", *more: tuple[str, bytes]) -> bytes:
    """Return the opening entry of a tree; `more` are further signers."""
    rest = rest or f"first\n0\n{SECONDS}000000\n-\n-\n-\n"
    text = f"{origin}\n{plain.vkey(origin, 1, seed)}\n{rest}"
    lines = [plain.signature_line(text, name, 1, secret) for name, secret in ((origin, seed), *more)]
    return b"\x00" + f"{text}\n{''.join(lines)}".encode()


@cache
def leaves(first: bytes, size: int, changed: int = 0) -> list[bytes]:
    """Return the entries of a tree; the one at index `changed` is another one."""
    return [first, *(entry(index + (1000 if index == changed else 0)) for index in range(1, size))]


def note(entries: list[bytes], origin: str = TREE, seed: bytes = LOG_SEED) -> str:
    """Return the signed checkpoint of a tree with these entries."""
    text = f"{origin}\n{len(entries)}\n{plain.b64(plain.root(entries))}\n"
    return f"{text}\n{plain.signature_line(text, origin, 1, seed)}"


def offer(entries: list[bytes], old: int = 0, *, origin: str = TREE, seed: bytes = LOG_SEED, **other: Any) -> Vector:
    """Return the question that offers a tree to a witness that holds `old` leaves of it."""
    asked: Vector = {"ask": "witness", "note": note(entries, origin, seed)}
    if old:
        asked |= {"old": old, "proof": [plain.b64(one) for one in plain.proof(old, entries)]}
    else:
        path = [plain.b64(one) for one in plain.path(0, entries)]
        asked["opening"] = {"note": entries[0][1:].decode(), "path": path}
    return asked | other


def held(entries: list[bytes]) -> Vector:
    return {"note": note(entries), "vkey": plain.vkey(TREE, 1, LOG_SEED)}


def case(
    name: str, about: str, question: Vector | str, expect: Vector, kept: Vector | None = None, own: int = 0
) -> Vector:
    """Return a vector of a question to a witness that holds `kept`, and has `own` leaves in its own tree."""
    body = question if isinstance(question, str) else json.dumps(question, ensure_ascii=False, separators=(",", ":"))
    state = {"seed": WITNESS_SEED.hex(), "held": kept, "leaves": [plain.b64(one) for one in own_leaves(own)]}
    if own:
        state["note"] = note(own_leaves(own), OWN, WITNESS_SEED)
    made = vector(name, about, request(body, path="/v2/history"), expect)
    made["state"]["witness"] = state
    return made


def own_leaves(size: int) -> list[bytes]:
    return leaves(opening(OWN, WITNESS_SEED), size) if size else []


def cosigned(entries: list[bytes], origin: str = TREE, seed: bytes = LOG_SEED) -> Vector:
    """Return the answer with the cosignature of a tree."""
    text = note(entries, origin, seed).partition("\n\n")[0] + "\n"
    return {"status": 200, "reply": {"cosignature": plain.signature_line(text, WITNESS, 4, WITNESS_SEED, SECONDS)}}


def conflict(code: str, kept: Vector | None) -> Vector:
    return refused(409, code) | {"note": kept["note"] if kept else ""}


def cases() -> Iterator[Vector]:
    """Yield the questions about histories."""
    yield from cosigning()
    yield from bulk_proofs()
    yield from contradictions()
    yield from files_of_a_lake()
    yield from malformed()


def cosigning() -> Iterator[Vector]:
    first = opening()
    three, five = leaves(first, 3), leaves(first, 5)
    vkey = plain.vkey(WITNESS, 4, WITNESS_SEED)
    yield case(
        "accept_history_keys", "Which keys are yours?", {"ask": "keys"}, {"status": 200, "reply": {"witnessKey": vkey}}
    )
    answer = {"status": 200, "reply": {"witnessKey": vkey, "notes": [note(three)]}}
    yield case("accept_history_keys_held", "And what do you hold of my trees?", {"ask": "keys"}, answer, held(three))
    yield case("accept_history_first", "The first checkpoint of a tree", offer(three), cosigned(three))
    yield case("accept_history_next", "A larger one", offer(five, 3), cosigned(five), held(three))
    yield case("accept_history_same", "The one that is held", offer(five, 5), cosigned(five), held(five))
    top = plain.b64(plain.root(three))
    rest = f"key\n42\n{SECONDS}000000\n{TREE}\n3\n{top}\n"
    rotated = leaves(opening(NEXT, NEXT_SEED, rest, (TREE, LOG_SEED)), 2)
    asked = offer(rotated, origin=NEXT, seed=NEXT_SEED)
    about = "Another tree with another key, which the known one has signed"
    yield case("accept_history_rotated", about, asked, cosigned(rotated, NEXT, NEXT_SEED), held(three))
    rest = f"key\n43\n{SECONDS}000001\n{NEXT}\n2\n{plain.b64(plain.root(rotated))}\n"
    again = leaves(opening(THIRD, THIRD_SEED, rest, (NEXT, NEXT_SEED)), 2)
    asked = offer(again, origin=THIRD, seed=THIRD_SEED)
    asked["opening"]["rotations"] = [rotated[0][1:].decode()]
    about = "The tree after a second rotation, of which the witness has not seen the first"
    yield case("accept_history_rotated_twice", about, asked, cosigned(again, THIRD, THIRD_SEED), held(three))
    own = own_leaves(7)
    proof = [plain.b64(one) for one in plain.proof(3, own)]
    question = {"ask": "consistency", "tree": OWN, "old": 3, "size": 7}
    about = "Does your tree of 7 leaves begin with that of 3?"
    yield case("accept_history_consistency", about, question, {"status": 200, "reply": {"proof": proof}}, own=7)
    signed, path = note(own, OWN, WITNESS_SEED), [plain.b64(one) for one in plain.path(0, own)]
    question = {"ask": "note", "tree": OWN, "old": 3}
    reply: Vector = {"note": signed, "proof": proof}
    about = "What follows the 3 leaves of your tree that are held?"
    yield case("accept_history_note", about, question, {"status": 200, "reply": reply}, own=7)
    reply = {"note": signed, "opening": {"note": own[0][1:].decode(), "path": path}}
    about = "And to a node that holds nothing of it?"
    question = {"ask": "note", "tree": OWN}
    yield case("accept_history_note_first", about, question, {"status": 200, "reply": reply}, own=7)


def bulk_proofs() -> Iterator[Vector]:
    own = own_leaves(7)
    signed = {"note": note(own, OWN, WITNESS_SEED)}

    def proof(*indices: int) -> Vector:
        return {"proof": [plain.b64(one) for one in plain.multiproof({*indices}, own)], **signed}

    asked: Vector = {"ask": "range", "tree": OWN, "from": 2, "to": 4}
    answer = {"status": 200, "reply": proof(2, 3, 4)}
    yield case("accept_history_range", "Prove your leaves 2 to 4", asked | {"size": 7}, answer, own=7)
    answer = {"status": 200, "reply": proof(6)}
    yield case("accept_history_range_last", "And the last one", asked | {"from": 6, "to": 6}, answer, own=7)
    digests = [plain.b64(plain.digest(text)) for text in (b"5", b"unknown", b"3")]
    asked = {"ask": "prove", "tree": OWN, "digests": digests, "indices": [6, 3]}
    answer = {"status": 200, "reply": {"indices": [5, 0, 3, 6, 3], **proof(3, 5, 6)}}
    yield case("accept_history_prove", "Prove these events and these leaves together", asked, answer, own=7)
    asked = {"ask": "prove", "tree": OWN, "size": 7, "indices": [7]}
    answer = {"status": 200, "reply": {"indices": [0], "proof": [], **signed}}
    yield case("accept_history_prove_nothing", "A leaf that the tree does not have", asked, answer, own=7)


def contradictions() -> Iterator[Vector]:
    first = opening()
    three, five, other = leaves(first, 3), leaves(first, 5), leaves(first, 5, changed=1)
    kept = held(three)
    yield case("conflict_history_old", "Another size is held", offer(five, 2), conflict("conflict", kept), kept)
    yield case("conflict_history_unknown", "Nothing is held", offer(five, 3), conflict("conflict", None))
    smaller = offer(leaves(first, 2), 2) | {"old": 3, "proof": []}
    yield case(
        "conflict_history_smaller", "A smaller size than the held one", smaller, conflict("conflict", kept), kept
    )
    about = "Another root at the size that is held"
    yield case("forked_history_root", about, offer(leaves(first, 3, changed=1), 3), conflict("forked", kept), kept)
    about = "A larger tree that does not begin with the held one"
    yield case("forked_history_proof", about, offer(other, 3), conflict("forked", kept), kept)
    rest = f"key\n42\n{SECONDS}000000\n{TREE}\n3\n{plain.b64(plain.root(three))}\n"
    lost = leaves(opening(NEXT, NEXT_SEED, rest), 2)
    about = "Another tree with another key, which the known one has not signed"
    asked = offer(lost, origin=NEXT, seed=NEXT_SEED)
    yield case("key_changed_history", about, asked, refused(403, "key_changed"), kept)
    alien = leaves(opening(OF_ANOTHER), 3)
    about = "The tree of another node"
    yield case("wrong_sender_history", about, offer(alien, origin=OF_ANOTHER), refused(403, "wrong_sender"))


def files(lines: list[bytes], origin: str = FILES, seed: bytes = LOG_SEED) -> str:
    """Return the signed checkpoint of files with these lines."""
    state = plain.b64(plain.digest(b"the state"))
    text = f"{origin}\n{len(lines)}\n{plain.b64(plain.root(lines))}\nstate {state}\n"
    return f"{text}\n{plain.signature_line(text, origin, 1, seed)}"


def files_of_a_lake() -> Iterator[Vector]:
    kept, lines = held(leaves(opening(), 3)), [b"begin events 0", *(b"drop events %d" % number for number in range(8))]
    small, large = files(lines[:3]), files(lines)
    other = files([*lines[:2], b"drop events 9", *lines[3:]])
    proof = [plain.b64(one) for one in plain.proof(3, lines)]

    def asked(note: str, old: int = 0) -> Vector:
        return {"ask": "witness", "note": note} | ({"old": old, "proof": proof} if old else {})

    def answer(note: str) -> Vector:
        line = plain.signature_line(note.partition("\n\n")[0] + "\n", WITNESS, 4, WITNESS_SEED, SECONDS)
        return {"status": 200, "reply": {"cosignature": line}}

    def files_case(name: str, about: str, question: Vector, expect: Vector, note: str = "") -> Vector:
        made = case(name, about, question, expect, kept)
        made["state"]["witness"]["files"] = note or None
        return made

    about = "The files of the node in a lake, with the key of its trees"
    yield files_case("accept_history_files", about, asked(small), answer(small))
    yield files_case("accept_history_files_next", "More of them", asked(large, 3), answer(large), small)
    refusal = refused(409, "conflict")
    about = "Files of which more is held"
    yield files_case("conflict_history_files", about, asked(small), refusal | {"note": large}, large)
    yield files_case("conflict_history_files_unknown", "Nothing is held", asked(large, 3), refusal | {"note": ""})
    about = "Files that do not begin with those that are held"
    yield files_case("forked_history_files", about, asked(other, 3), refused(409, "forked") | {"note": small}, small)
    about = "Files of another node"
    alien = asked(files(lines, FILES_OF_ANOTHER))
    yield files_case("wrong_sender_history_files", about, alien, refused(403, "wrong_sender"))
    about = "Files that another key signed"
    wrong = asked(files(lines, seed=NEXT_SEED))
    yield files_case("malformed_history_files_key", about, wrong, refused(400, "malformed", "unsigned"))
    about = "Files of a node whose key is not known"
    yield case("malformed_history_files_unknown", about, asked(large), refused(400, "malformed", "no_key"))


def malformed() -> Iterator[Vector]:
    first = opening()
    three, five = leaves(first, 3), leaves(first, 5)
    good, kept = offer(five, 3), held(three)
    hash = plain.b64(bytes(32))
    for name, about, question in (
        ("text", "No JSON", "witness"),
        ("unknown", "A question that there is not", {"ask": "everything"}),
        ("old", "A size below 0", good | {"old": -1}),
        ("large", "A size of 2^48", good | {"old": 1 << 48}),
        ("proof", "64 hashes", good | {"proof": [hash] * 64}),
        ("notes", "65 notes", good | {"notes": ["x"] * 65}),
        ("consistency", "From no size", {"ask": "consistency", "tree": OWN, "old": 0, "size": 7}),
        ("note", "A size of 2^48", {"ask": "note", "tree": OWN, "old": 1 << 48}),
        ("range", "From the opening entry on", {"ask": "range", "tree": OWN, "from": 0, "to": 3}),
        ("prove", "Nothing to prove", {"ask": "prove", "tree": OWN}),
        ("entries", "1,001 entries", {"ask": "prove", "tree": OWN, "ids": ["x"] * 500, "indices": [1] * 501}),
    ):
        yield case(f"malformed_history_{name}", about, question, refused(400, "malformed"), kept)
    for name, about, question, reason in (
        ("hash", "A hash of 31 bytes", good | {"proof": [plain.b64(bytes(31))]}, "hash"),
        ("crlf", "A note with carriage returns", good | {"note": good["note"].replace("\n", "\r\n")}, "text"),
        ("unsigned", "A note that another key signed", good | {"note": note(five, TREE, NEXT_SEED)}, "unsigned"),
    ):
        yield case(f"malformed_history_{name}", about, question, refused(400, "malformed", reason), kept)
    asked = {"ask": "range", "tree": OWN, "from": 2, "to": 4}
    for name, about, question, reason in (
        ("range_end", "Leaves behind the end of the tree", asked | {"to": 7}, "index"),
        ("range_order", "Leaves from the last to the first", asked | {"from": 5}, "index"),
        ("range_size", "A size that was not signed", asked | {"size": 6}, "size"),
        ("range_tree", "The tree of another node", asked | {"tree": OF_ANOTHER}, "size"),
    ):
        yield case(f"malformed_history_{name}", about, question, refused(400, "malformed", reason), kept, own=7)
    wrong = offer(three)
    wrong["opening"]["path"] = [hash, hash]
    about = "An opening entry that is not leaf 0"
    yield case("malformed_history_path", about, wrong, refused(400, "malformed", "root"))
