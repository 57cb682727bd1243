"""A receiver of v2 as a pure function over plain data: the input of a test vector goes in, the expected output comes
out.

It follows the order of checks on the protocol's page and nothing else; a node does the same around a database.
"""

from __future__ import annotations

import json
from base64 import b64decode
from typing import Any

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from federation.batch import Batch, read_batch
from federation.compare import (
    Ids,
    IdsQuery,
    KnownEvents,
    KnownQuery,
    ListedEvent,
    Question,
    Reply,
    SumsQuery,
    add_up,
    encode_reply,
    places_of,
    read_question,
    show_fingerprint,
    show_sums,
)
from federation.errors import (
    BatchConflict,
    Conflict,
    MalformedHistory,
    MessageError,
    OtherCheckpoint,
    UnprovenNote,
    WrongSender,
)
from federation.event import content_digest
from federation.history.checkpoints import read_checkpoint
from federation.history.cosignatures import cosign
from federation.history.entries import event_entry, read_opening_entry
from federation.history.exchange import (
    ConsistencyAnswer,
    ConsistencyQuestion,
    HistoryReply,
    KeysAnswer,
    NoteQuestion,
    ProveAnswer,
    ProveQuestion,
    RangeAnswer,
    RangeQuestion,
    WitnessAnswer,
    WitnessQuestion,
    answer_note,
    encode_history,
    read_history_question,
    read_offer,
    write_hashes,
)
from federation.history.lake_checkpoints import read_lake_checkpoint
from federation.history.lake_witnessing import check_files_offer, is_of_files
from federation.history.merkle import hash_leaf
from federation.history.notes import LOG_KEY, WITNESS_KEY, NoteSigner, read_note, read_vkey
from federation.history.tiles import TileBuilder, consistency_proof, inclusion_proof, multiproof
from federation.history.witnessing import (
    HeldCheckpoint,
    HeldRoot,
    KeySource,
    KnownKey,
    Offer,
    check_offer,
    follow_rotations,
    read_rotations,
    take_successor,
    witness_name,
)
from federation.keys import Key, KeyRing
from federation.peers import SECOND, Limits
from federation.ranges import Mark, follow
from federation.signing import Receiver, Request, VerifiedRequest, verify_request
from federation.status import read_status_question
from federation.wire import BatchHeader, HistoryQuery, Refusal, StatusQuery, VerifyQuery


def read_key(data: dict[str, Any]) -> Key:
    about = {"owner": data["owner"], "state": data["state"], "speaks_for": data.get("speaksFor")}
    if data["algorithm"] == "hmac-sha256":
        return Key.hmac(data["id"], data["secret"], **about)
    return Key.ed25519(data["id"], public=data["publicKey"], **about)


def read_ring(keys: list[dict[str, Any]]) -> KeyRing:
    return KeyRing(map(read_key, keys))


def read_request(data: dict[str, Any]) -> Request:
    headers = [(name, value) for name, value in data["headers"]]
    return Request(data["method"], data["path"], headers, read_body(data))


def read_body(data: dict[str, Any]) -> bytes:
    return b64decode(data["bodyBase64"]) if "bodyBase64" in data else data["body"].encode()


def receive(vector: dict[str, Any]) -> dict[str, Any]:
    """The outcome of a request vector, in the form of its `expect`."""
    try:
        return _receive(vector)
    except MessageError as error:
        outcome = {"status": error.status, "code": error.code, "reason": error.reason}
        return outcome | ({"note": error.note} if isinstance(error, OtherCheckpoint) else {})


def _receive(vector: dict[str, Any]) -> dict[str, Any]:
    who, state = vector["receiver"], vector["state"]
    receiver = Receiver(
        who["node"],
        who["group"],
        read_ring(vector["keys"]),
        who["replayWindowSeconds"] * SECOND,
        Limits(**who["limits"]),
    )
    verified = verify_request(read_request(vector["request"]), receiver, now=vector["nowMicros"])
    mark = msgspec.convert(state["mark"], Mark) if state["mark"] else None
    if isinstance(verified.header, VerifyQuery):
        return {"status": 200, "reply": _reply(read_question(read_body(vector["request"])), state["events"])}
    if isinstance(verified.header, StatusQuery):
        return {"status": 200, "hops": read_status_question(read_body(vector["request"])).hops}
    if isinstance(verified.header, HistoryQuery):
        return {"status": 200, "reply": _witness(vector)}
    if not isinstance(verified.header, BatchHeader):
        return {"status": 200, "mark": state["mark"]}
    batch = read_batch(read_body(vector["request"]), verified.header, verified.key, receiver.limits)
    if [verified.key.id, verified.nonce] in state["nonces"]:
        raise Conflict("this request was accepted before (replay)")
    return _store(verified, verified.header, batch, mark, state)


def _reply(question: Question, events: list[dict[str, Any]]) -> dict[str, Any]:
    """The answer of a node that holds these events of the sender, and nothing besides."""
    found: Reply = KnownEvents()
    if isinstance(question, KnownQuery):
        known = {event["id"] for event in events}
        found = KnownEvents(tuple(at for at, each in enumerate(question.ids) if each not in known))
    elif isinstance(question, SumsQuery):
        totals: dict[int, int] = {}
        add_up([event["event"] for event in events], question.grain, totals, since=question.what.since)
        found = show_sums(dict(sorted(totals.items())), question.grain, None)
    elif isinstance(question, IdsQuery):
        keys = {question.grain.key(bucket) for bucket in question.buckets}
        places, numbers = places_of([event["event"] for event in events], question.grain)
        held = zip(events, places, numbers, strict=True)
        found = Ids(
            tuple(ListedEvent(event["id"], show_fingerprint(number)) for event, key, number in held if key in keys)
        )
    answer: dict[str, Any] = json.loads(encode_reply(found))
    return answer


def _witness(vector: dict[str, Any]) -> dict[str, Any]:
    """The answer to a question about histories, of a node that holds one tree of the sender at most."""
    question, state, who = (
        read_history_question(read_body(vector["request"])),
        vector["state"]["witness"],
        vector["receiver"],
    )
    name, held = witness_name(who["group"], who["node"]), state["held"]
    signer = NoteSigner(name, WITNESS_KEY, Ed25519PrivateKey.from_private_bytes(bytes.fromhex(state["seed"])))
    found: HistoryReply = KeysAnswer(witness_key=signer.key.text(), notes=(held["note"],) if held else ())
    if isinstance(question, ConsistencyQuestion):
        tiles = TileBuilder().extend([hash_leaf(b64decode(one)) for one in state["leaves"]])
        found = ConsistencyAnswer(
            write_hashes(tuple(consistency_proof(question.old, question.size, tiles.__getitem__)))
        )
    elif isinstance(question, NoteQuestion):
        entries = [b64decode(one) for one in state["leaves"]]
        tiles, size = TileBuilder().extend([hash_leaf(one) for one in entries]), len(entries)
        note, old = read_note(state["note"].encode()), question.old
        path = tuple(inclusion_proof(0, size, tiles.__getitem__))
        proof = tuple(consistency_proof(old, size, tiles.__getitem__)) if old else ()
        found = answer_note(Offer(note, old, proof) if old else Offer(note, 0, (), entries[0], path))
    elif isinstance(question, RangeQuestion | ProveQuestion):
        found = _prove_many(question, state)
    elif isinstance(question, WitnessQuestion):
        offer = read_offer(question)
        if is_of_files(question.note):
            _require_witnessed_files(offer, held, state.get("files"), "a")
        else:
            _require_witnessed(offer, held, (who["group"], "a"))
        found = WitnessAnswer(cosignature=cosign(offer.note.text, signer, vector["nowMicros"] // SECOND).line())
    answer: dict[str, Any] = json.loads(encode_history(found))
    return answer


def _prove_many(question: RangeQuestion | ProveQuestion, state: dict[str, Any]) -> HistoryReply:
    """The proof of a part of the receiver's own tree, of which one checkpoint is signed."""
    leaves = [hash_leaf(b64decode(one)) for one in state["leaves"]]
    signed = read_checkpoint(read_note(state["note"].encode()).text)
    if question.tree != str(signed.origin) or question.size not in (0, signed.size):
        raise MalformedHistory("no such checkpoint", reason="size")
    tiles = TileBuilder().extend(leaves)
    if isinstance(question, RangeQuestion):
        proof = multiproof(question.indices, signed.size, tiles.__getitem__)
        return RangeAnswer(proof=write_hashes(tuple(proof)), note=state["note"])
    places = {hash_leaf(event_entry(b64decode(one))): 0 for one in question.digests}
    places |= {leaf: index for index, leaf in enumerate(leaves) if leaf in places}
    indices = (*places.values(), *(index if index < signed.size else 0 for index in question.indices))
    proven = sorted({*indices} - {0})
    proof = multiproof(proven, signed.size, tiles.__getitem__) if proven else []
    return ProveAnswer(indices=indices, proof=write_hashes(tuple(proof)), note=state["note"])


def _require_witnessed(offer: Offer, held: dict[str, Any] | None, sender: tuple[str, str]) -> None:
    stated = read_checkpoint(offer.note.text)
    if stated.origin[:2] != sender:
        raise WrongSender("the tree of another node")
    known = read_vkey(held["vkey"], LOG_KEY) if held else None
    if held and known and known.name == str(stated.origin):
        last = read_checkpoint(read_note(held["note"].encode()).text)
        check_offer(offer, known, HeldCheckpoint(last, held["note"]))
        return
    if not offer.opening:
        raise OtherCheckpoint("nothing is held")
    entry = read_opening_entry(offer.opening)
    check_offer(offer, entry.opening.key, None)
    held_key = KnownKey(known.public, KeySource.SHARED) if known else None
    followed = follow_rotations(read_rotations(offer, stated.origin), held_key)
    take_successor(entry, followed, KeySource.SHARED)


def _require_witnessed_files(offer: Offer, held: dict[str, Any] | None, files: str | None, sender: str) -> None:
    if read_lake_checkpoint(offer.note.text).origin.node != sender:
        raise WrongSender("the files of another node")
    if held is None:
        raise UnprovenNote("no key is known", reason="no_key")
    last = read_lake_checkpoint(read_note(files.encode()).text) if files else None
    known = HeldRoot(last.size, last.root, files) if last and files else None
    check_files_offer(offer, read_vkey(held["vkey"], LOG_KEY).public, known)


def _store(
    verified: VerifiedRequest, header: BatchHeader, batch: Batch, mark: Mark | None, state: dict[str, Any]
) -> dict[str, Any]:
    for known in state["batches"]:
        if known["id"] == header.batch_id:
            if (known["digest"], known["range"]) != (verified.digest, header.range.to_header()):
                raise BatchConflict("a batch id used for two batches")
            return known["answer"]
    new = follow(mark, header.range).mark
    known_ids = {known["id"]: known for known in state["events"]}
    duplicates, refused = 0, list(batch.refused)
    for line in batch.lines:
        known = known_ids.get(line.event.id)
        if known and [line.event.source_node, content_digest(line.body).hex()] != [known["source"], known["digest"]]:
            refused.append(Refusal(line.position, line.event.id, "id_conflict"))
        elif known and line.body == known["event"]:
            duplicates += 1
    return {
        "status": 200,
        "accepted": len(batch.lines) + len(batch.refused) - len(refused) - duplicates,
        "duplicates": duplicates,
        "refused": [msgspec.to_builtins(refusal) for refusal in sorted(refused, key=lambda one: one.position)],
        "mark": msgspec.to_builtins(new),
    }
