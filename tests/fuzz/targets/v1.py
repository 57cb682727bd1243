"""Protocol v1: which heads and bodies are accepted, by the rules that its vectors show."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path

from federation.errors import BadEvent, V1Refused
from federation.event import decode_canonical, encode, normalise
from federation.keys import Key, KeyRing
from federation.lenient import decode_lenient
from federation.peers import SECOND
from federation.v1 import check_v1, decode_v1, encode_answer_v1, read_answer_v1, sign_v1
from tests.fuzz.target import FuzzTarget

SECRET = "0123456789abcdef0123456789abcdef"
NOW = 1780142400 * SECOND
WINDOW = 300
RING = KeyRing([Key.hmac("shared", SECRET)])
_WHOLE = re.compile(rb"[+-]?[0-9]+")


def check_head(data: bytes) -> None:
    """A timestamp, a line feed, a signature; then the same timestamp with the right signature."""
    stamp, _, signature = data.partition(b"\n")
    wanted = _expected(stamp)
    right = sign_v1(SECRET.encode(), int(stamp), b"body") if wanted is None else ""
    given = signature.decode("latin-1")
    assert _reason(stamp, given) == ("" if right and given == right else wanted or "bad_signature")
    assert _reason(stamp, right) == (wanted or "")


def _expected(stamp: bytes) -> str | None:
    """Return why a timestamp is refused, by the rule: a decimal number of 64 bits, within the window."""
    digits = stamp.lstrip(b"+-").lstrip(b"0")
    if not _WHOLE.fullmatch(stamp) or len(digits) > 19 or not -(2**63) <= int(stamp) < 2**63:
        return "bad_timestamp"
    return "stale_timestamp" if abs(NOW // SECOND - int(stamp)) > WINDOW else None


def _reason(stamp: bytes, signature: str) -> str:
    try:
        check_v1(stamp.decode("latin-1"), signature, b"body", RING, now=NOW, window=WINDOW * SECOND)
    except V1Refused as error:
        return error.reason
    return ""


def check_body(data: bytes) -> None:
    try:
        event = decode_v1(data, now=NOW)
    except V1Refused:
        return
    # The quick way for canonical bodies reads them as the lenient way does.
    assert event == normalise(decode_lenient(data), now=NOW)
    line = encode(event)
    assert decode_canonical(line) == event
    assert decode_v1(line, now=NOW + 1) == event
    assert read_answer_v1(encode_answer_v1(event.id, duplicate=False)).id == event.id


def check_lenient(data: bytes) -> None:
    """What is normalised has a canonical form, which is read as the same event; all else is a BadEvent."""
    try:
        event = normalise(decode_lenient(data), now=NOW)
    except BadEvent:
        return
    assert normalise(event, now=NOW + 1) == event
    assert decode_lenient(encode(event)) == event


def _vectors() -> Iterable[dict[str, object]]:
    for line in (Path(__file__).parents[2] / "vectors" / "v1.jsonl").read_text().splitlines():
        yield json.loads(line)["request"]


def head_seeds() -> Iterable[bytes]:
    for stamp in (b"1780142400", b"+1780142300", b"-5", b"000", b"9" * 20, b"1e3"):
        yield stamp + b"\n" + sign_v1(SECRET.encode(), 1780142400, b"body").encode()


def body_seeds() -> Iterable[bytes]:
    for request in _vectors():
        body = request.get("body")
        if isinstance(body, str) and len(body) < 2000:
            yield body.encode("utf-8", "surrogateescape")


_WORDS = (
    *('"id":"', '"group":"', '"sourceNode":"', '"type":"', '"subject":"', '"dedupeKey":"', '"payload":{', "null"),
    *('"observedAt":"2025-05-30T10:13:20Z"', '"expiresAt":"0001-01-01T00:00:00Z"', "\\u0000", "\\ud800", "+09:00"),
)
TARGETS = (
    FuzzTarget("v1-head", check_head, head_seeds),
    FuzzTarget("v1-body", check_body, body_seeds, _WORDS),
    FuzzTarget("lenient-events", check_lenient, body_seeds, _WORDS),
)
