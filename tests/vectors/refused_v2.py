"""Test vectors of protocol v2 for a receiver: requests it must refuse as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.vectors.sample import (
    BATCH,
    BATCH_PARTS,
    BODY,
    FOREIGN,
    LIMITS,
    MARK,
    NONCE,
    ONE,
    PAIR,
    RANGE,
    REVOKED,
    RUNS,
    SECONDS,
    SHARED,
    STRANGER,
    TWO,
    WINDOW,
    covering,
    digest,
    event,
    lines,
    parameters,
    refused,
    request,
    run,
    vector,
)

Vector = dict[str, Any]


def cases() -> Iterator[Vector]:
    """Yield every request that is refused."""
    yield from refused_early()
    yield from refused_signatures()
    yield from refused_audiences()
    yield from refused_times()
    yield from malformed()
    yield from refused_by_state()


def _ranged(text: str) -> dict[str, str | None]:
    return {"Eventd-Range": text}


def malformed_questions() -> Iterator[Vector]:
    about = '"history":"Zk2","after":0,"upto":3,"what":{},"grain":{"minutes":1,"parts":2}'
    for name, words, question in (
        ("text", "No JSON", "sums"),
        ("unknown", "A question that there is not", '{"ask":"everything"}'),
        ("backwards", "It runs backwards", f'{{"ask":"sums",{about.replace("0", "4", 1)}}}'),
        ("parts", "The parts are no power of two", f'{{"ask":"sums",{about.replace("2}", "3}")}}}'),
        ("bucket", "A part that there is not", f'{{"ask":"ids",{about},"buckets":[[29669039,2]]}}'),
        ("no_ids", "About no id", '{"ask":"known","ids":[]}'),
    ):
        asked = request(question, path="/v2/verify")
        yield vector(f"malformed_question_{name}", words, asked, refused(400, "malformed"))
    for name, words, question in (
        ("hops", "More hops than one", '{"hops":2}'),
        ("array", "A question is an object", "[]"),
    ):
        asked = request(question, path="/v2/status")
        yield vector(f"malformed_status_{name}", words, asked, refused(400, "malformed"))


def refused_early() -> Iterator[Vector]:
    yield vector("not_found", "Another path", request(BODY, path="/v2/event"), refused(404, "not_found"))
    yield vector(
        "not_found_query",
        "A query makes it another path",
        request(BODY, path="/v2/events?a=1"),
        refused(404, "not_found"),
    )
    yield vector("method_not_allowed", "Only POST", request(BODY, method="PUT"), refused(405, "method_not_allowed"))
    large = lines((1042, "", event(payload={"a": "x" * LIMITS["batch_bytes"]})))
    yield vector("too_large_bytes", "More bytes than allowed", request(large), refused(413, "too_large"))
    many = lines(*[(1042 + n, "", event(f"e{n}", subject=None)) for n in range(LIMITS["batch_events"] + 1)])
    yield vector("too_large_events", "More lines than allowed", request(many), refused(413, "too_large"))
    small = [event(f"e{n}", subject=None) for n in range(LIMITS["batch_events"] + 1)]
    made = request(run(1042, "", *small), headers=dict(RUNS))
    yield vector("too_large_runs", "More events than allowed, in one run", made, refused(413, "too_large"))
    media = refused(415, "unsupported_media_type")
    for name, headers in {
        "type": {"Content-Type": "application/json"},
        "type_parameter": {"Content-Type": "application/vnd.eventd.batch; charset=utf-8"},
        "encoding": {"Content-Encoding": "gzip"},
    }.items():
        yield vector(f"unsupported_{name}", "Another type or encoding", request(BODY, headers=dict(headers)), media)
    missing = request(BODY, after_signing={"Content-Encoding": None})
    yield vector("unsupported_no_encoding", "The encoding must be said", missing, media)


def refused_signatures() -> Iterator[Vector]:
    def unsigned(name: str, about: str, reason: str, made: Vector) -> Vector:
        return vector(name, about, made, refused(401, "unauthorized", reason))

    yield unsigned(
        "no_signature", "Nothing is signed", "no_signature", request(BODY, after_signing={"Signature": None})
    )
    other = {"Signature-Input": f"sig1=({BATCH_PARTS}){parameters(SHARED)}"}
    yield unsigned(
        "no_label", "Signed under another label only", "no_signature", request(BODY, after_signing=dict(other))
    )
    for name, headers in {
        "input": {"Signature-Input": "eventd=("},
        "bytes": {"Signature": "eventd=:#:"},
        "kinds": {"Signature-Input": 'eventd="@method"'},
    }.items():
        made = request(BODY, after_signing=dict(headers))
        yield unsigned(f"signature_syntax_{name}", "The signature cannot be read", "signature_syntax", made)
    less = BATCH_PARTS.replace(' "eventd-to"', "")
    yield unsigned("component_missing", "The receiver is not covered", "components", request(BODY, parts=less))
    more = BATCH_PARTS + ' "@authority"'
    made = request(BODY, parts=more, headers={"@authority": "b.example"})
    yield unsigned("component_unknown", "More is covered than a receiver knows", "components", made)
    made = request(BODY, after_signing={"Eventd-To": None})
    yield unsigned("header_missing", "A covered header is not there", "components", made)
    for name, changed in {
        "no_nonce": {"nonce": None},
        "short_nonce": {"nonce": "short"},
        "text_created": {"created": "now"},
        "unknown": {"extra": 1},
    }.items():
        made = request(BODY, params=parameters(SHARED, **changed))
        yield unsigned(f"parameter_{name}", "The parameters are not what they must be", "parameters", made)
    made = request(BODY, params=parameters(SHARED, tag="eventd-v2-receipt"))
    yield unsigned("wrong_tag", "A signature made for another purpose", "wrong_tag", made)
    for name, algorithm in (("unknown", "none"), ("of_another_key", "ed25519")):
        made = request(BODY, params=parameters(SHARED, alg=algorithm))
        yield unsigned(f"wrong_algorithm_{name}", "The algorithm belongs to the key", "wrong_algorithm", made)
    yield unsigned("unknown_key", "A key the ring does not have", "unknown_key", request(BODY, key=STRANGER))
    yield unsigned("revoked_key", "A key that counts no more", "revoked_key", request(BODY, key=REVOKED))
    yield unsigned("wrong_digest", "The body is not the one signed", "wrong_digest", request(BODY, sent=BODY + BODY))
    made = request(BODY, after_signing={"Content-Digest": "sha-512=:AAAA:"})
    yield unsigned("wrong_digest_kind", "A digest, but not SHA-256", "wrong_digest", made)
    made = request(BODY, after_signing={"Eventd-Range": covering(1041, 9999)})
    yield unsigned("bad_signature_header", "A covered header was changed", "bad_signature", made)
    made = request(BODY, after_signing={"Content-Digest": digest("other")}, sent="other")
    yield unsigned("bad_signature_body", "Body and digest were changed together", "bad_signature", made)
    made = request(BODY, key=STRANGER, params=parameters(SHARED))
    yield unsigned("bad_signature_secret", "Made with another secret under a known id", "bad_signature", made)
    made = request(BODY, key=SHARED, params=parameters(PAIR))
    yield unsigned("bad_signature_pair", "No signature of the key pair", "bad_signature", made)


def refused_audiences() -> Iterator[Vector]:
    for name, about, headers, key in (
        ("wrong_audience", "Captured on the way to another node", {"Eventd-To": "c"}, SHARED),
        ("wrong_group", "Captured in another group with the same secret", {"Eventd-Group": "core"}, SHARED),
        ("wrong_sender", "A key of c used by a", {}, FOREIGN),
        ("wrong_sender_self", "The receiver's own name as the sender", {"Eventd-From": "b"}, SHARED),
    ):
        made = request(BODY, headers=dict(headers), key=key)
        yield vector(name, about, made, refused(403, name.removesuffix("_self")))


def refused_times() -> Iterator[Vector]:
    for name, now in (("stale", SECONDS + WINDOW + 1), ("ahead", SECONDS - WINDOW - 0.000001)):
        yield vector(
            f"clock_skew_{name}", "Outside the replay window", request(BODY), refused(401, "clock_skew", name), now=now
        )
    made = request(BODY, params=parameters(SHARED, expires=SECONDS + 5))
    yield vector(
        "clock_skew_expired", "Past its own expiry", made, refused(401, "clock_skew", "expired"), now=SECONDS + 6
    )


def malformed() -> Iterator[Vector]:
    yield from malformed_questions()
    bad = refused(400, "malformed")
    for name, headers in {
        "batch_id": {"Eventd-Batch": "019e78a1-7000-4abc-8def-0123456789ab"},
        "batch_id_case": {"Eventd-Batch": BATCH.upper()},
        "sender_name": {"Eventd-From": "a b"},
        "sender_twice": {"Eventd-From": "a, a"},
        "range_text": _ranged("1041-1141"),
        "range_backwards": _ranged(covering(1141, 1041)),
        "range_mixed": _ranged(RANGE + ", repair"),
        "range_repair_false": _ranged('epoch="pJ3v8Qm1", incarnation=0, repair=?0'),
        "range_half": _ranged('epoch="pJ3v8Qm1", incarnation=0, after=1'),
        "range_epoch": _ranged(RANGE.replace('"pJ3v8Qm1"', "pJ3v8Qm1")),
        "range_number": _ranged(RANGE.replace("upto=1141", "upto=1141.0")),
        "range_negative": _ranged(RANGE.replace("after=1041", "after=-1")),
        "range_parameter": _ranged(RANGE + ";x"),
        "range_lost": _ranged(covering(1041, 1141, more=", lost=1042")),
    }.items():
        yield vector(f"malformed_{name}", "A header that cannot be read", request(BODY, headers=dict(headers)), bad)
    for name, body in {
        "no_end": BODY[:-1],
        "no_tabs": "1042\n",
        "blank_line": BODY + "\n",
        "position_text": lines((1042, "", ONE)).replace("1042", "x"),
        "position_zeros": "0" + BODY,
        "position_sign": "+" + BODY,
        "position_repeated": lines((1042, "", ONE), (1042, "", TWO)),
        "position_back": lines((1100, "", ONE), (1042, "", TWO)),
        "position_before": lines((1041, "", ONE)),
        "position_after": lines((1042, "", ONE), (1142, "", TWO)),
    }.items():
        yield vector(f"malformed_{name}", "A body that cannot be taken apart", request(body), bad)
    one, both = run(1042, "", ONE), run(1042, "", ONE, TWO)
    for name, body in {
        "lines": BODY,
        "no_end": one[:-1],
        "short": one.replace("\t1\t", "\t2\t"),
        "long": both.replace("\t2\t", "\t1\t"),
        "bytes_short": one.replace(f"\t{len(ONE) + 1}\t", f"\t{len(ONE)}\t"),
        "bytes_long": one.replace(f"\t{len(ONE) + 1}\t", f"\t{len(ONE) + 2}\t"),
        "none": one + "1050\t0\t0\t\n",
        "zeros": "0" + one,
        "path_tab": run(1042, "c\td", ONE),
        "position_back": both + run(1043, "", ONE),
        "position_before": run(1041, "", ONE, TWO),
        "position_after": run(1141, "", ONE, TWO),
    }.items():
        about = "Runs that cannot be taken apart"
        yield vector(f"malformed_runs_{name}", about, request(body, headers=dict(RUNS)), bad)


def refused_by_state() -> Iterator[Vector]:
    replayed = refused(409, "replayed")
    yield vector("replayed", "The very same request again", request(BODY), replayed, nonces=[["shared", NONCE]])
    taken_before = {"id": BATCH, "digest": digest(BODY), "range": RANGE, "answer": {}}
    conflict = refused(409, "batch_conflict")
    for name, changed in (("digest", {"digest": digest("")}), ("range", {"range": covering(1, 2)})):
        about = "A batch id that was used for another batch"
        yield vector(f"batch_conflict_{name}", about, request(BODY), conflict, batches=[taken_before | changed])
    ahead = refused(409, "range_ahead")
    behind = MARK | {"upto": 1000}
    yield vector("range_ahead", "A batch before this one is missing", request(BODY), ahead, mark=behind)
    claim = covering(1041, 1141, more=", lost=1001")
    made = request(BODY, headers=_ranged(claim))
    yield vector("range_ahead_lost", "What is missing is more than the sender says it lost", made, ahead, mark=behind)
    made = request(BODY, headers=_ranged(covering(1041, 1141, incarnation=1)))
    yield vector("range_ahead_incarnation", "Another life of the sender fills no gap", made, ahead, mark=behind)
