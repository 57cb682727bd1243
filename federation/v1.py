"""The older protocol, byte for byte: one event per request, one signature over a time and the body.

    signature = hex(HMAC-SHA256(secret, decimal(unix seconds) LF body))

A request names no sender, receiver or key, and replays are not detected; v2 was made to fix that. This module is for
exchanging events with nodes that speak only v1.
"""

from __future__ import annotations

import hmac
import json
import re
from contextlib import suppress
from typing import Final

import msgspec

from federation.errors import BadEvent, InvalidEvent, V1Refused
from federation.event import Event, decode_canonical, normalise
from federation.keys import Key, KeyRing
from federation.lenient import decode_lenient
from federation.peers import JSON_TYPE, SECOND, V1_MAX_BODY, V1_SIGNATURE_HEADER, V1_TIMESTAMP_HEADER

# A signed 64-bit number: leading zeros, then no more digits than such a number can have.
_DECIMAL: Final = re.compile(r"([+-]?)(?=[0-9])0*([0-9]{0,19})")
# Go's JSON encoder escapes these so that its output can be embedded in HTML.
_HTML: Final = str.maketrans({c: f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"})


def sign_v1(secret: bytes, timestamp: int, body: bytes) -> str:
    """Return the signature of a body sent at `timestamp` (seconds since 1970), as lower-case hex."""
    return hmac.new(secret, b"%d\n" % timestamp + body, "sha256").hexdigest()


def sign_request_v1(body: bytes, key: Key, *, now: int) -> dict[str, str]:
    """Return the headers of one attempt to deliver an event. `key` is an HMAC key, `now` in microseconds."""
    timestamp = now // SECOND
    return {
        "Content-Type": JSON_TYPE,
        V1_TIMESTAMP_HEADER: str(timestamp),
        V1_SIGNATURE_HEADER: sign_v1(key.secret, timestamp, body),
    }


def check_v1(
    timestamp: str | None, signature: str | None, body: bytes | None, keys: KeyRing, *, now: int, window: int
) -> Key:
    """Return the key that signed a request, from its two headers and its body (None: a body over the limit).

    `now` and `window` are in microseconds; fractions of a second are ignored, and the window includes its bounds.
    Raises V1Refused. The caller checks for which sources the key may send.
    """
    seconds = _parse_timestamp(timestamp or "")
    if abs(now // SECOND - seconds) > window // SECOND:
        raise V1Refused("stale_timestamp")
    if body is None or len(body) > V1_MAX_BODY:
        raise V1Refused("bad_signature")
    given = (signature or "").encode("utf-8", "surrogateescape")
    matching = None
    for key in keys.secrets():
        # All are tried, so that the time taken does not reveal which one matches.
        fits = hmac.compare_digest(sign_v1(key.secret, seconds, body).encode(), given)
        matching = key if fits and matching is None else matching
    if matching is None:
        raise V1Refused("bad_signature")
    return matching


def _parse_timestamp(text: str) -> int:
    match = _DECIMAL.fullmatch(text)
    if not match:
        raise V1Refused("bad_timestamp")
    seconds = int(match[1] + (match[2] or "0"))
    if not -(1 << 63) <= seconds < 1 << 63:
        raise V1Refused("bad_timestamp")
    return seconds


def decode_v1(body: bytes, *, now: int) -> Event:
    """Return the normalised event of a verified body; `now` replaces a missing `observedAt`. Raises V1Refused."""
    # Most senders write the canonical form, which is read four times as fast.
    with suppress(BadEvent):
        return decode_canonical(body)
    try:
        return normalise(decode_lenient(body), now=now)
    except InvalidEvent as error:
        raise V1Refused("validation", error.message) from None
    except BadEvent as error:
        raise V1Refused("bad_body", error.message) from None


def encode_answer_v1(id: str, *, duplicate: bool) -> bytes:
    """Return the body of a 200 for an accepted event; `duplicate`: it was stored already."""
    text = json.dumps(id, ensure_ascii=False).translate(_HTML)
    return f'{{"accepted":true,"duplicate":{str(duplicate).lower()},"id":{text}}}\n'.encode()


class AnswerV1(msgspec.Struct, frozen=True):
    """The body of a 2xx: what the receiver reports about a delivered event."""

    accepted: bool = False
    duplicate: bool = False
    id: str = ""


def read_answer_v1(body: bytes) -> AnswerV1:
    """Read the body of a 2xx; an unreadable one gives an empty AnswerV1, because any 2xx means delivered."""
    try:
        return msgspec.json.decode(body, type=AnswerV1)
    except (ValueError, RecursionError):
        return AnswerV1()


def is_page(content_type: str, body: bytes) -> bool:
    """Return whether an answer looks like an HTML page: a proxy or sign-in portal answered instead of a receiver."""
    return content_type.strip().lower().startswith("text/html") or body.lstrip().startswith(b"<")


def refuses_event_v1(status: int, body: bytes) -> bool:
    """Return whether an answer refuses the event itself, so that sending the event again is useless.

    Every other answer that is not a 2xx concerns the link: the secret, the clock, the address, the receiver's health.
    """
    return status == 400 and body.startswith((b"bad event body", b"invalid event:"))
