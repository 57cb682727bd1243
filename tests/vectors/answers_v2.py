"""Test vectors of protocol v2 for a sender: which answers prove a delivery."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tests.vectors.sample import (
    ANSWER_PARTS,
    ANSWERING,
    ANSWERING_PAIR,
    BATCH,
    FOREIGN,
    LOST_ANSWERING,
    MARK,
    NONCE,
    OTHER_BATCH,
    SHARED,
    STRANGER,
    Signer,
    digest,
    event,
    lines,
    parameters,
    request,
    ring,
    signature,
)

Vector = dict[str, Any]

SENT = request(lines((1042, "", event())))
ASKED = request("{}", path="/v2/link")


def receipt(**other: Any) -> str:
    told = {
        "group": "edge",
        "from": "a",
        "to": "b",
        "batch": BATCH,
        "digest": digest(SENT["body"]),
        "epoch": "pJ3v8Qm1",
        "incarnation": 0,
        "upto": 1141,
        "accepted": 0,
        "duplicates": 0,
        "refused": [{"position": 1042, "id": "evt-1", "reason": "own_source"}],
        "recordedAt": "2026-05-30T12:00:00.125000Z",
    }
    return json.dumps(told | other, separators=(",", ":"))


def link_answer(**other: Any) -> str:
    return json.dumps({"group": "edge", "from": "a", "to": "b", "mark": MARK} | other, separators=(",", ":"))


def answer(
    body: str,
    *,
    to: Vector = SENT,
    key: Signer = ANSWERING,
    status: int = 200,
    parts: str = ANSWER_PARTS,
    **changed: Any,
) -> Vector:
    """Return a signed answer to the request `to`."""
    headers = {"Content-Type": "application/json", "Content-Digest": digest(body)}
    params = parameters(key, **({"tag": "eventd-v2-receipt", "expires": None, "nonce": None} | changed))
    of_request = dict(to["headers"])["Signature"].removeprefix("eventd=")
    values = {"@status": str(status), '"signature";req;key="eventd"': of_request}
    values |= {name.lower(): text for name, text in headers.items()}
    headers["Signature-Input"] = f"eventd=({parts}){params}"
    headers["Signature"] = f"eventd={signature(key, values, parts, params)}"
    return {"status": status, "headers": [[name, text] for name, text in headers.items()], "body": body}


def vector(name: str, about: str, made: Vector, expect: Vector, *, to: Vector = SENT) -> Vector:
    return {
        "name": f"answer_{name}",
        "about": about,
        "protocol": "v2",
        "keys": ring(to, made),
        "request": to,
        "answer": made,
        "expect": expect,
    }


def cases() -> Iterator[Vector]:
    """Yield every vector for a sender."""
    yield from accepted()
    yield from refused()
    yield from too_large()


def accepted() -> Iterator[Vector]:
    for name, about, key in (
        ("hmac", "A receipt signed with the receiver's own key", ANSWERING),
        ("ed25519", "A receipt that proves something to a third as well", ANSWERING_PAIR),
        ("shared", "A receipt signed with the shared secret", SHARED),
    ):
        yield vector(name, about, answer(receipt(), key=key), {"ok": True, "key": key.id})
    more = answer(receipt(region="x"))
    yield vector("unknown_member", "Members to come are ignored", more, {"ok": True, "key": ANSWERING.id})
    made = answer(link_answer(), to=ASKED)
    yield vector("link", "Where the link stands", made, {"ok": True, "key": ANSWERING.id, "mark": MARK}, to=ASKED)
    made = answer(link_answer(mark=None), to=ASKED)
    yield vector("link_none", "Nowhere yet", made, {"ok": True, "key": ANSWERING.id, "mark": None}, to=ASKED)


def too_large() -> Iterator[Vector]:
    """Yield answers to a batch of one record. `limit` is the largest request that the peer has proven to accept."""

    def error(limit: int, **other: Any) -> str:
        told = {"code": "too_large", "message": "too large", "limit": limit, "unit": "bytes"}
        return json.dumps({"error": told | other}, separators=(",", ":"))

    size = len(SENT["body"].encode())
    believed = {"ok": True, "key": ANSWERING.id, "limit": size - 1}
    other = {"ok": False, "reason": "other_size"}
    plain = answer(error(size - 1), status=413)
    yield vector("too_large", "The peer takes less than was sent", plain, believed)
    equal = answer(error(size), status=413)
    yield vector("too_large_other_size", "The peer takes what was sent: it got another body", equal, other)
    counted = answer(error(0, unit="events"), status=413)
    yield vector("too_large_events", "Too many lines, where there is one", counted, other)
    bare = answer("{}", status=413)
    yield vector("too_large_no_limit", "Signed, but it says nothing", bare, other)
    unsigned = plain | {"headers": plain["headers"][:2]}
    yield vector("too_large_unsigned", "Any server can answer 413", unsigned, {"ok": False, "reason": "no_signature"})


def refused() -> Iterator[Vector]:
    def worthless(name: str, about: str, reason: str, made: Vector, *, to: Vector = SENT) -> Vector:
        return vector(name, about, made, {"ok": False, "reason": reason}, to=to)

    plain = answer(receipt())
    plain["headers"] = plain["headers"][:2]
    yield worthless("unsigned", "Any server can answer 200", "no_signature", plain)
    again = request(SENT["body"], params=parameters(SHARED, nonce=NONCE[::-1]))
    yield worthless("other_attempt", "The answer to another attempt", "bad_signature", answer(receipt(), to=again))
    made = answer('{"error":{"code":"full","message":""}}', status=507) | {"status": 200}
    yield worthless("other_status", "A refusal turned into a success", "bad_signature", made)
    made = answer(receipt()) | {"body": receipt(accepted=1)}
    yield worthless("other_body", "The body is not the one signed", "wrong_digest", made)
    less = ANSWER_PARTS.replace('"@status" ', "")
    yield worthless("uncovered", "The status is not covered", "components", answer(receipt(), parts=less))
    yield worthless("request_tag", "A request's tag", "wrong_tag", answer(receipt(), tag="eventd-v2"))
    yield worthless("with_nonce", "A parameter too many", "parameters", answer(receipt(), nonce=NONCE))
    yield worthless("wrong_key", "Signed by another node", "wrong_sender", answer(receipt(), key=FOREIGN))
    yield worthless("unknown_key", "Signed by a stranger", "unknown_key", answer(receipt(), key=STRANGER))
    yield worthless("revoked_key", "Signed with a revoked key", "revoked_key", answer(receipt(), key=LOST_ANSWERING))
    for name, other in {
        "batch": {"batch": OTHER_BATCH},
        "digest": {"digest": digest("")},
        "group": {"group": "core"},
        "epoch": {"epoch": "X"},
        "incarnation": {"incarnation": 1},
        "receiver": {"to": "c"},
    }.items():
        made = answer(receipt(**other))
        yield worthless(f"about_other_{name}", "A good receipt of something else", "other_batch", made)
    yield worthless("no_receipt", "Signed, but no receipt", "no_receipt", answer("{}"))
    made = answer("[]", to=ASKED)
    yield worthless("no_link_answer", "Signed, but nothing about the link", "no_link_answer", made, to=ASKED)
    made = answer(link_answer(group="core"), to=ASKED)
    yield worthless("other_link", "About another link", "other_link", made, to=ASKED)
