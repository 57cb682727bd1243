"""The test vectors against the product's code."""

from __future__ import annotations

from typing import Any

import pytest

from federation.errors import BadAnswer, V1Refused
from federation.event import encode
from federation.keys import Key, KeyRing
from federation.peers import LINK_PATH, REFUSALS, SECOND, STATUS
from federation.signing import SignedRequest, verify_answer
from federation.v1 import check_v1, decode_v1
from federation.wire import BatchHeader, read_header, read_link_answer, read_receipt, read_too_large
from tests.unit.federation.model import read_body, read_ring, receive
from tests.vectors import generate

V1, *REQUESTED, ANSWERS = ([*module.cases()] for name, module in generate.SUBJECTS.items() if name != "history")
REQUESTS = [case for cases in REQUESTED for case in cases]


def name(case: dict[str, Any]) -> str:
    return str(case["name"])


@pytest.mark.parametrize("case", REQUESTS, ids=name)
def test_receiver_reaches_the_expected_outcome(case: dict[str, Any]) -> None:
    assert receive(case) == case["expect"]


@pytest.mark.parametrize("case", ANSWERS, ids=name)
def test_sender_believes_what_it_should(case: dict[str, Any]) -> None:
    assert judge_answer(case) == case["expect"]


def judge_answer(case: dict[str, Any]) -> dict[str, Any]:
    sent, answer = case["request"], case["answer"]
    headers = {key.lower(): value for key, value in sent["headers"]}
    header = read_header(sent["path"], headers)
    signature = headers["signature"].removeprefix("eventd=")
    request = SignedRequest(header, headers, headers["content-digest"], signature)
    try:
        key = verify_answer(request, answer["status"], answer["headers"], read_body(answer), read_ring(case["keys"]))
        about: dict[str, Any] = {}
        if answer["status"] == 413:
            about = {"limit": read_too_large(read_body(answer), len(read_body(sent)))}
        elif sent["path"] == LINK_PATH:
            mark = read_link_answer(read_body(answer), header)
            about = {"mark": mark and {name: getattr(mark, name) for name in mark.__struct_fields__}}
        else:
            assert isinstance(header, BatchHeader)
            read_receipt(read_body(answer), header, request.digest)
    except BadAnswer as error:
        return {"ok": False, "reason": error.reason}
    return {"ok": True, "key": key.id} | about


@pytest.mark.parametrize("case", V1, ids=name)
def test_v1_request_is_answered_in_the_very_words(case: dict[str, Any]) -> None:
    assert receive_v1(case) == case["expect"]


def receive_v1(case: dict[str, Any]) -> dict[str, Any]:
    headers = dict(case["request"]["headers"])
    keys = KeyRing([Key.hmac(f"key-{number}", secret) for number, secret in enumerate(case["secrets"])])
    now, window = case["nowSeconds"] * SECOND, int(case["replayWindowSeconds"] * SECOND)
    body = case["request"]["body"].encode()
    timestamp, signature = headers.get("X-Routerd-Timestamp"), headers.get("X-Routerd-Signature")
    try:
        check_v1(timestamp, signature, body, keys, now=now, window=window)
        return {"status": 200, "event": encode(decode_v1(body, now=now)).decode()}
    except V1Refused as error:
        return {"status": error.status, "body": error.body.decode(), "reason": error.reason}


def test_every_reason_has_a_vector() -> None:
    outcomes = [case["expect"] for case in REQUESTS]
    codes = {outcome["code"] for outcome in outcomes if "code" in outcome}
    # The rest needs a node: its history, much to do, a database that fails, a ceiling, a stop, TLS, a declaration.
    missing = {"other_history", "too_many_requests", "internal", "unavailable", "full", "wrong_certificate"}
    missing |= {"not_shared"}
    assert codes == STATUS.keys() - missing
    lines = {refusal["reason"] for outcome in outcomes for refusal in outcome.get("refused", ())}
    assert lines == set(REFUSALS)
    v1 = {case["expect"]["reason"] for case in V1 if "reason" in case["expect"]}
    assert v1 == {"bad_timestamp", "stale_timestamp", "bad_signature", "bad_body", "validation"}


def test_every_outcome_has_the_status_of_its_code() -> None:
    for case in REQUESTS:
        if "code" in case["expect"]:
            assert case["expect"]["status"] == STATUS[case["expect"]["code"]]
