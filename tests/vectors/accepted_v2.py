"""Test vectors of protocol v2 for a receiver: requests it must accept, and its mark afterwards."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

from tests.vectors.sample import (
    BATCH,
    BATCH_PARTS,
    BODY,
    MARK,
    NONCE,
    ONE,
    OWN,
    PAIR,
    PENDING,
    RANGE,
    RELAY,
    RETIRING,
    RUNS,
    SECONDS,
    SHARED,
    WINDOW,
    covering,
    digest,
    event,
    known,
    lines,
    request,
    run,
    taken,
    vector,
)

Vector = dict[str, Any]
END = MARK | {"upto": 1141}


def cases() -> Iterator[Vector]:
    """Yield every request that is accepted as a whole."""
    yield from keys()
    yield from questions()
    yield from forms()
    yield from contents()
    yield from ranges()
    yield from histories()
    yield from repetitions()


def keys() -> Iterator[Vector]:
    for name, about, key in (
        ("hmac", "The single shared secret of a group", SHARED),
        ("own_key", "A key that belongs to the sender", OWN),
        ("pending_key", "A key that is not yet used for signing here", PENDING),
        ("retiring_key", "A key that is no longer used for signing here", RETIRING),
        ("ed25519", "A key pair; the receiver holds its public half", PAIR),
    ):
        yield vector(f"accept_{name}", about, request(BODY, key=key), taken(2))


def questions() -> Iterator[Vector]:
    asked = request("{}", path="/v2/link")
    yield vector("accept_link", "Where does the link stand?", asked, {"status": 200, "mark": MARK})
    again = request('{"start":false}', path="/v2/link")
    yield vector("accept_link_again", "The same of a node that was not started", again, {"status": 200, "mark": MARK})
    nowhere = {"status": 200, "mark": None}
    yield vector("accept_link_none", "A link nothing has come over yet", asked, nowhere, mark=None)
    yield from comparisons()


def comparisons() -> Iterator[Vector]:
    """Yield queries for the events that the receiver holds: three, two of them observed in the same two minutes."""
    bodies = [
        event("evt-1"),
        event("evt-2", observedAt="2026-05-30T11:58:00Z", subject="10.88.60.10/32"),
        event("evt-3", observedAt="2026-05-30T12:00:00Z", expiresAt="2026-05-30T13:00:00Z"),
    ]
    minutes = [29669039, 29669038, 29669040]
    prints = [int.from_bytes(hashlib.sha256(body.encode()).digest()[:8], "big") for body in bodies]
    about = {"history": "Zk2", "after": 0, "upto": 3, "what": {}, "grain": {"minutes": 2, "parts": 4}}
    buckets: dict[tuple[int, int], list[int]] = {}
    for minute, number in zip(minutes, prints, strict=True):
        buckets.setdefault((minute // 2, number * 4 >> 64), []).append(number)
    sums = [[*place, len(found), f"{sum(found) % 2**64:016x}"] for place, found in sorted(buckets.items())]
    held = [known(body) for body in bodies]
    for name, words, question, reply in (
        ("sums", "What do they add up to?", {"ask": "sums"} | about, {"buckets": sums, "next": None}),
        (
            "ids",
            "Which are in these buckets?",
            {"ask": "ids"} | about | {"buckets": [[minutes[2] // 2, prints[2] * 4 >> 64]]},
            {"events": [["evt-3", f"{prints[2]:016x}"]], "next": None},
        ),
        (
            "known",
            "Which of these are not known?",
            {"ask": "known", "ids": ["evt-2", "evt-9"]},
            {"unknown": [1], "gone": [], "other": []},
        ),
    ):
        asked = request(json.dumps(question, separators=(",", ":")), path="/v2/verify")
        yield vector(f"accept_verify_{name}", words, asked, {"status": 200, "reply": reply}, events=held)
    for name, words, body, hops in (
        ("empty", "What are your links?", "{}", 0),
        ("hops", "What are your links, and those of your peers?", '{"hops":1,"more":true}', 1),
    ):
        asked = request(body, path="/v2/status")
        yield vector(f"accept_status_{name}", words, asked, {"status": 200, "hops": hops})


def forms() -> Iterator[Vector]:
    backwards = " ".join(reversed(BATCH_PARTS.split(" ")))
    times = f"expires={SECONDS + 9};created={SECONDS}"
    params = f';tag="eventd-v2";keyid="shared";alg="hmac-sha256";nonce="{NONCE}";{times}'
    made = request(BODY, parts=backwards, params=params)
    yield vector("accept_other_order", "Components and parameters in another order", made, taken(2))
    made = request(BODY)
    made["headers"] += [["signature-input", 'proxy=("date");created=1'], ["SIGNATURE", "proxy=:AAAA:"]]
    made["headers"] += [["Date", "Sat, 30 May 2026 12:00:00 GMT"]]
    yield vector("accept_other_label", "A proxy has added a signature of its own", made, taken(2))
    made = request(BODY, headers={"Content-Digest": f"sha-512=:AAAA:, {digest(BODY)}"})
    yield vector("accept_two_digests", "Another digest beside ours", made, taken(2))
    for name, now in (("past", SECONDS + WINDOW + 0.999999), ("future", SECONDS - WINDOW)):
        about = "At the edge of the replay window"
        yield vector(f"accept_window_{name}", about, request(BODY), taken(2), now=now)


def contents() -> Iterator[Vector]:
    one, two = event("evt-1", sourceNode="c"), event("evt-2", sourceNode="d")
    passed = request(lines((1042, "c", one), (1043, "z%C3%BCrich,c", two)), key=RELAY)
    yield vector("accept_relayed", "Events that passed other nodes", passed, taken(2))
    runs = run(1042, "", event("evt-1"), event("evt-2")) + run(1050, "c", event("evt-3", sourceNode="c"))
    yield vector("accept_runs", "The other form of a body", request(runs, key=RELAY, headers=dict(RUNS)), taken(3))
    mixed = run(1042, "", event("evt-1"), "broken", event("evt-3", group="core"))
    outcome = taken(1, (1043, "", "not_canonical"), (1044, "evt-3", "wrong_group"))
    yield vector("accept_runs_in_part", "Lines of a run are refused alone", request(mixed, headers=dict(RUNS)), outcome)
    expired = request(lines((1042, "", event("evt-1", expiresAt="2001-01-01T00:00:00Z"))))
    yield vector("accept_expired", "Whether it still matters is the reader's question", expired, taken(1))
    nothing = request("", headers={"Eventd-Range": covering(1041, 1190)})
    outcome = taken(0, mark=MARK | {"upto": 1190})
    yield vector("accept_empty", "A batch without lines moves the mark", nothing, outcome)


def _moved(name: str, about: str, claim: str, mark: Vector | None, new: Vector | None) -> Vector:
    outcome = taken(2) | {"mark": new}
    return vector(f"accept_{name}", about, request(BODY, headers={"Eventd-Range": claim}), outcome, mark=mark)


def ranges() -> Iterator[Vector]:
    yield _moved("first_contact", "The first batch may begin anywhere", RANGE, None, END | {"base": 1041})
    yield _moved("overlap", "A range that begins before the mark", covering(900, 1141), MARK, END)
    beyond = MARK | {"upto": 2000}
    yield _moved("inside", "A range that ends before the mark", RANGE, beyond, beyond)
    repair = 'epoch="pJ3v8Qm1", incarnation=0, repair'
    yield _moved("repair", "A redelivery leaves the mark alone", repair, MARK, MARK)
    repair = 'incarnation=0, repair, epoch="pJ3v8Qm1"'
    yield _moved("repair_first", "Even when there is none", repair, None, None)
    lost = covering(1041, 1141, more=", lost=950")
    yield _moved("lost", "The sender lost (950, 1041] and says so", lost, MARK | {"upto": 1000}, END)


def histories() -> Iterator[Vector]:
    other = covering(1041, 1141, epoch="X")
    begun = {"epoch": "X", "incarnation": 0, "upto": 1141, "base": 1041}
    yield _moved("new_epoch", "Another history begins anew", other, MARK | {"upto": 5000}, begun)
    lost = covering(1041, 1141, epoch="X", more=", lost=950")
    about = "The sender lost (950, 1041] before its new epoch's first batch, and says so"
    yield _moved("new_epoch_lost", about, lost, MARK | {"upto": 950}, begun | {"base": 950})
    back = covering(1000, 1141, incarnation=1)
    new = {"epoch": "pJ3v8Qm1", "incarnation": 1, "upto": 1141, "base": 1000}
    about = "A new incarnation of the sender begins below the end of the last one"
    yield _moved("taken_back", about, back, MARK | {"upto": 5000, "base": 4000}, new)
    on = covering(1041, 1141, incarnation=1)
    about = "A new incarnation of the sender that continues where the last one ended"
    yield _moved("new_incarnation", about, on, MARK, END | {"incarnation": 1})
    late = MARK | {"upto": 5000, "incarnation": 2}
    yield _moved("former_life", "A late request of an incarnation that has ended", RANGE, late, late)


def repetitions() -> Iterator[Vector]:
    outcome = taken(1, duplicates=1)
    about = "An event that is stored already"
    yield vector("accept_duplicate", about, request(BODY), outcome, events=[known(ONE)])
    before = event("evt-1", expiresAt="2026-05-30T12:30:00Z")
    later = event("evt-1", expiresAt="2026-05-30T13:00:00Z", observedAt="2026-05-30T12:00:00Z")
    about = "The same event with a later expiry is a record of its own"
    yield vector("accept_refresh", about, request(lines((1042, "", later))), taken(1), events=[known(before)])
    told = {"status": 200, "accepted": 7, "duplicates": 0, "refused": [], "mark": MARK}
    batch = {"id": BATCH, "digest": digest(BODY), "range": RANGE, "answer": told}
    about = "A retry with a new nonce gets the answer that was lost"
    yield vector("accept_repeated_batch", about, request(BODY), told, batches=[batch])
