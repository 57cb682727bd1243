"""Test vectors of protocol v2 for a receiver: batches it accepts except for one line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.vectors.sample import (
    LIMITS,
    ONE,
    OWN,
    SHARED,
    TWO,
    event,
    known,
    lines,
    request,
    taken,
    vector,
)

Vector = dict[str, Any]


def cases() -> Iterator[Vector]:
    """Yield every reason to refuse a single line."""
    yield from not_canonical()
    yield from invalid()
    yield from origins()


def one_refused(name: str, about: str, reason: str, text: str, **options: Any) -> Vector:
    """Return a batch of a line to be refused and a good one, which is accepted."""
    path, id, key = options.pop("path", ""), options.pop("id", "evt-1"), options.pop("key", SHARED)
    body = lines((1042, path, text), (1100, "", TWO))
    return vector(f"refuse_{name}", about, request(body, key=key), taken(1, (1042, id, reason)), **options)


def not_canonical() -> Iterator[Vector]:
    offset = event(observedAt="2026-05-30T20:59:58+09:00")
    for name, about, text, id in (
        ("space", "White space between members", ONE.replace(',"type"', ', "type"'), "evt-1"),
        ("order", "Members in another order", event(type=None)[:-1] + ',"type":"t"}', "evt-1"),
        ("escape", "An escape that is not needed", ONE.replace("/32", "\\/32"), "evt-1"),
        ("unknown", "A member that is none", ONE[:-1] + ',"x":1}', "evt-1"),
        ("twice", "A member twice", ONE.replace('"id":"evt-1"', '"id":"evt-1","id":"evt-1"'), "evt-1"),
        ("empty_member", "An empty text that should be absent", event(subject=""), "evt-1"),
        ("no_dedupe_key", "The dedupe key must be there", event(dedupeKey=None), "evt-1"),
        ("edge", "White space at an edge", event(subject="10.88.60.9/32\u3000"), "evt-1"),
        ("payload_order", "Payload keys out of order", event(payload={"b": "1", "a": "2"}), "evt-1"),
        ("time_offset", "A time that is not in UTC", offset, "evt-1"),
        ("time_local", "A time without a zone", event(observedAt="2026-05-30T11:59:58"), "evt-1"),
        ("time_fraction", "A fraction of three digits", event(observedAt="2026-05-30T11:59:58.250Z"), "evt-1"),
        ("surrogate", "Half a character", ONE.replace("10.88", "\\ud800"), ""),
        ("not_json", "No JSON at all", "nonsense", ""),
        ("tab", "A tab where none can be", ONE + "\t", "evt-1"),
        ("empty", "No event at all", "", ""),
    ):
        yield one_refused(f"not_canonical_{name}", about, "not_canonical", text, id=id)
    broken = lines((1042, "", "?"), (1100, "", TWO)).encode().replace(b"?", ONE.encode().replace(b"10", b"\xff"))
    outcome = taken(1, (1042, "", "not_canonical"))
    yield vector("refuse_not_canonical_utf8", "Bytes that are no UTF-8", request(broken), outcome)


def invalid() -> Iterator[Vector]:
    large = event(payload={"a": "x" * LIMITS["event_bytes"]})
    yield one_refused("too_large", "A single event beyond its limit", "too_large", large)
    for name, about, text, id in (
        ("no_type", "A required member is missing", event(type=None), "evt-1"),
        ("empty_id", "A required member is empty", event(""), ""),
        ("kind", "A number where a text must be", event(subject=5), "evt-1"),
        ("payload", "A payload value that is no text", event(payload={"a": 1}), "evt-1"),
        ("long", "A text beyond 512 characters", event(subject="x" * 513), "evt-1"),
        ("nul", "U+0000 in a payload", event(payload={"a": "\0"}), "evt-1"),
        ("no_time", "The time of observation is missing", event(observedAt="0001-01-01T00:00:00Z"), "evt-1"),
    ):
        yield one_refused(f"invalid_{name}", about, "invalid", text, id=id)
    for name, path in (("comma", "c,"), ("space", "c d"), ("case", "%c3%bc"), ("needless", "%41"), ("utf8", "%FF")):
        yield one_refused(f"invalid_path_{name}", "A path that cannot be read", "invalid", ONE, path=path)


def origins() -> Iterator[Vector]:
    yield one_refused("wrong_group", "Another group's event", "wrong_group", event(group="core"))
    yield one_refused("own_source", "The receiver's own name as the source", "own_source", event(sourceNode="b"))
    foreign = event(sourceNode="c")
    yield one_refused(
        "source_not_allowed", "A source the key may not speak for", "source_not_allowed", foreign, key=OWN
    )
    nobody = event(sourceNode=None)
    yield one_refused("source_missing", "No source, and a key for a only", "source_not_allowed", nobody, key=OWN)
    yield one_refused("loop", "It has been at the receiver", "loop", foreign, path="c,b,d")
    yield one_refused("loop_sender", "It has passed the sender before", "loop", foreign, path="c,a")
    yield one_refused("too_many_hops", "It has passed too many nodes", "too_many_hops", foreign, path="c,d,e,f")
    yield one_refused(
        "id_conflict", "A known id with another content", "id_conflict", ONE, events=[known(event("evt-1", type="t"))]
    )
    taken_over = known(ONE, source="c")
    yield one_refused("id_conflict_source", "A known id from another source", "id_conflict", ONE, events=[taken_over])
