"""Test vectors of protocol v1: the two headers, the body, the clock, and the literal answer."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator
from typing import Any

NOW = 1780142400
WINDOW = 300
SECRET = "0123456789abcdef0123456789abcdef"
GO_BODY = (
    '{"id":"evt-1","group":"edge","sourceNode":"onprem","type":"routerd.client.ipv4.observed",'
    '"subject":"10.88.60.9/32","dedupeKey":"evt-1","payload":{"a":"é","z":"\\u003c\\u0026\\u003e"},'
    '"observedAt":"2025-05-30T10:13:20Z","expiresAt":"0001-01-01T00:00:00Z"}'
)
CANONICAL = GO_BODY.replace("\\u003c\\u0026\\u003e", "<&>")


def sign(secret: str, timestamp: int, body: str) -> str:
    """Return the signature. Deliberately not the product's code: a vector must be an independent check of it."""
    return hmac.new(secret.encode(), f"{timestamp}\n{body}".encode(), hashlib.sha256).hexdigest()


def case(
    name: str,
    about: str,
    expect: dict[str, Any],
    *,
    body: str = GO_BODY,
    timestamp: str | None = str(NOW),
    signature: str | None = "",
    signed_at: int = NOW,
    now: int = NOW,
    window: float = WINDOW,
    secrets: tuple[str, ...] = (SECRET,),
) -> dict[str, Any]:
    headers = {"X-Routerd-Timestamp": timestamp}
    headers["X-Routerd-Signature"] = sign(SECRET, signed_at, body) if signature == "" else signature
    return {
        "name": name,
        "about": about,
        "protocol": "v1",
        "secrets": list(secrets),
        "nowSeconds": now,
        "replayWindowSeconds": window,
        "request": {
            "method": "POST",
            "path": "/v1/events",
            "headers": [[name, value] for name, value in headers.items() if value is not None],
            "body": body,
        },
        "expect": expect,
    }


def accepted(event: str = CANONICAL) -> dict[str, Any]:
    return {"status": 200, "event": event}


def refused(status: int, body: str, reason: str) -> dict[str, Any]:
    return {"status": status, "body": f"{body}\n", "reason": reason}


def event(text: str) -> str:
    """Return a body with the required members and `text`."""
    return f'{{"id":"e","group":"g","type":"t","observedAt":"2025-05-30T10:13:20Z"{text}}}'


def canonical(subject: str = "", payload: str = "", expires: str = "0001-01-01T00:00:00Z") -> str:
    """Return the canonical form of `event` with these members."""
    middle = (f',"subject":"{subject}"' if subject else "") + ',"dedupeKey":"e"'
    middle += f',"payload":{payload}' if payload else ""
    times = f'"observedAt":"2025-05-30T10:13:20Z","expiresAt":"{expires}"'
    return f'{{"id":"e","group":"g","type":"t"{middle},{times}}}'


TOLERATED = (
    ("other_case", "Member names match in any case", '"SUBJECT":"s"', canonical("s")),
    ("folded", "The long s and the Kelvin sign are s and k", '"ſubject":"s","dedupe\u212aey":"e"', canonical("s")),
    ("unknown_members", "Others are ignored, whatever they hold", '"x":[1e999,{"id":null}]', canonical()),
    ("last_wins", "The last of several wins", '"id":"f","id":"e"', canonical()),
    ("null_text", "null leaves a text as it is", '"id":null,"subject":null', canonical()),
    ("null_times", "null leaves a time as it is", '"observedAt":null,"expiresAt":null', canonical()),
    ("null_payload", "null empties the payload", '"payload":{"a":"1"},"payload":null', canonical()),
    ("null_payload_value", "A null value is an empty one", '"payload":{"a":null}', canonical(payload='{"a":""}')),
    (
        "payload_twice",
        "A second payload adds to the first",
        '"payload":{"b":"1"},"payload":{"a":"2"}',
        canonical(payload='{"a":"2","b":"1"}'),
    ),
    ("trimmed", "White space at the edges goes", '"id":" e\\u00a0","group":"\\tg","dedupeKey":" "', canonical()),
    (
        "time_offset",
        "Times move to UTC",
        '"expiresAt":"2025-05-30T19:13:20+09:00"',
        canonical(expires="2025-05-30T10:13:20Z"),
    ),
    (
        "time_nanoseconds",
        "And are cut to microseconds",
        '"expiresAt":"2025-05-30T10:13:20.123456789Z"',
        canonical(expires="2025-05-30T10:13:20.123456Z"),
    ),
    (
        "already_expired",
        "An expired event is an event",
        '"expiresAt":"2001-01-01T00:00:00Z"',
        canonical(expires="2001-01-01T00:00:00Z"),
    ),
)


def cases() -> Iterator[dict[str, Any]]:
    yield from _signatures()
    yield from _times()
    yield from _tolerance()
    yield from _bodies()


def _signatures() -> Iterator[dict[str, Any]]:
    bad = refused(401, "bad signature", "bad_signature")
    yield case(
        "signature_of_existing_nodes",
        "A signature made by the existing nodes' own code",
        accepted(),
        signature="33a0516f34c4e818e5fbb25627f970502c82adbe8fb068fe54d1dae053cabae9",
    )
    yield case(
        "signature_short_secret",
        "Made by the existing nodes' own code; the body lacks a group, which is noticed after the signature",
        refused(400, "invalid event: federation event group is required", "validation"),
        body='{"id":"evt-1","type":"routerd.client.ipv4.observed"}',
        secrets=("shared-key",),
        timestamp="1748600000",
        signature="feaf85c8afb7fabd6ce806146c34e30f2088092f9a88a0a192ed3f9613dee5dc",
        now=1748600000,
    )
    yield case(
        "signature_empty_body",
        "Made by the existing nodes' own code over an empty body, which is no event",
        refused(400, "bad event body", "bad_body"),
        body="",
        secrets=("routerd-test-secret",),
        timestamp="1",
        signature="5aac0ef986a4379b191a857ac5b77ccd4c613063a6d66ca98f7f33e06e46e454",
        now=1,
    )
    yield case("second_key", "Any usable key of the ring will do", accepted(), secrets=("another", SECRET))
    yield case("signature_missing", "No signature header", bad, signature=None)
    yield case("signature_wrong", "A made-up signature", bad, signature="deadbeef")
    yield case("signature_wrong_secret", "Signed with another secret", bad, secrets=("another",))
    right = sign(SECRET, NOW, GO_BODY)
    yield case("signature_upper_case", "The right digits in upper case", bad, signature=right.upper())
    yield case("body_tampered", "The body is not the one signed", bad, body="tampered", signature=right)
    yield case("signed_other_time", "Signed for another second than the header names", bad, signed_at=NOW + 1)


def _times() -> Iterator[dict[str, Any]]:
    bad = refused(400, "bad timestamp", "bad_timestamp")
    stale = refused(403, "stale timestamp", "stale_timestamp")
    yield case("timestamp_plus_sign", "A leading + is read away before signing", accepted(), timestamp=f"+{NOW}")
    yield case("timestamp_leading_zeros", "So are leading zeros", accepted(), timestamp=f"000{NOW}")
    for name, value in {
        "missing": None,
        "empty": "",
        "word": "now",
        "space": f" {NOW}",
        "underscore": "1_780_142_400",
        "decimal": f"{NOW}.0",
        "too_large": str(1 << 63),
    }.items():
        yield case(f"timestamp_{name}", "Not a signed 64-bit decimal", bad, timestamp=value)
    yield case("window_edge_past", "Exactly as old as allowed", accepted(), now=NOW + WINDOW)
    yield case("window_edge_future", "Exactly as far ahead as allowed", accepted(), now=NOW - WINDOW)
    yield case("window_past", "A second older than allowed", stale, now=NOW + WINDOW + 1)
    yield case("window_future", "A second further ahead than allowed", stale, now=NOW - WINDOW - 1)
    yield case(
        "window_fraction_inside", "Parts of a second of the window do not count", accepted(), now=NOW + 1, window=1.5
    )
    yield case("window_fraction_outside", "So 1.5 s allow 1 s", stale, now=NOW + 2, window=1.5)
    yield case("window_below_second", "And half a second allows none", stale, now=NOW + 1, window=0.5)
    yield case("window_before_signature", "The window comes first", stale, now=NOW + WINDOW + 1, signature="deadbeef")


def _tolerance() -> Iterator[dict[str, Any]]:
    for name, about, members, expected in TOLERATED:
        yield case(f"body_{name}", about, accepted(expected), body=event(f",{members}"))
    yield case(
        "body_unset_time",
        "A missing time of observation becomes the receiver's own",
        accepted(canonical().replace("2025-05-30T10:13:20Z", "2026-05-30T12:00:00Z")),
        body=event(',"observedAt":"0001-01-01T00:00:00Z"'),
    )


def _bodies() -> Iterator[dict[str, Any]]:
    bad = refused(400, "bad event body", "bad_body")
    for name, text in {
        "not_json": "nonsense",
        "array": "[]",
        "trailing": event("") + " {}",
        "number_for_text": event(',"subject":5'),
        "number_in_payload": event(',"payload":{"a":1}'),
        "list_payload": event(',"payload":[]'),
        "empty_time": event(',"expiresAt":""'),
        "bad_time": event(',"expiresAt":"2025-05-30 10:13:20Z"'),
        "number_time": event(',"expiresAt":0'),
        "nan": event(',"x":NaN'),
        "control_character": event(',"x":"\x01"'),
        "byte_order_mark": "\ufeff" + event(""),
    }.items():
        yield case(f"bad_body_{name}", "Not an event that can be decoded", bad, body=text)
    for name, text, reason in (
        ("null", "null", "federation event id is required"),
        ("no_id", '{"group":"g","type":"t"}', "federation event id is required"),
        ("blank_group", '{"id":"e","group":" ","type":"t"}', "federation event group is required"),
        ("no_type", '{"id":"e","group":"g"}', "federation event type is required"),
        ("nul", event(',"subject":"a\\u0000"'), "federation event subject holds U+0000 or a lone surrogate"),
        ("surrogate", event(',"payload":{"a":"\\ud800"}'), "federation event payload holds U+0000 or a lone surrogate"),
        ("long_id", event(f',"id":"{"x" * 513}"'), "federation event id is longer than 512 characters"),
    ):
        yield case(
            f"invalid_{name}",
            "An event that breaks a rule",
            refused(400, f"invalid event: {reason}", "validation"),
            body=text,
        )
