"""A receiver of v2 as a pure function over plain data: the input of a test vector goes in, the expected output comes
out.

It follows the order of checks on the protocol's page and nothing else; a node does the same around a database.
"""

from __future__ import annotations

import json
from base64 import b64decode
from typing import Any

import msgspec

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
from federation.errors import BatchConflict, Conflict, MessageError
from federation.event import content_digest
from federation.keys import Key, KeyRing
from federation.peers import SECOND, Limits
from federation.ranges import Mark, follow
from federation.signing import Receiver, Request, VerifiedRequest, verify_request
from federation.status import read_status_question
from federation.wire import BatchHeader, Refusal, StatusQuery, VerifyQuery


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
        return {"status": error.status, "code": error.code, "reason": error.reason}


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
