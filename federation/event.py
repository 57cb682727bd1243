"""The event: a statement that something was observed, with its canonical form, its ids and its expiry.

A node stores an event as the bytes from `encode`, and sends these bytes unchanged.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

from federation.errors import InvalidEvent, NotCanonical
from federation.peers import MAX_TEXT, SECOND

UNSET: Final = datetime(1, 1, 1, tzinfo=UTC)
"""The zero time. As `expires_at` it means never, as `observed_at` that the time is unknown."""
ZERO_TIME: Final = "0001-01-01T00:00:00Z"

WHITE_SPACE: Final = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)
"""The characters trimmed off names: Unicode's White_Space. `str.strip()` alone would also remove U+001C to U+001F."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TEXTS: Final = ("id", "group", "source_node", "type", "subject", "dedupe_key")

RequiredText = Annotated[str, Meta(min_length=1, max_length=MAX_TEXT)]
OptionalText = Annotated[str, Meta(max_length=MAX_TEXT)]


class Event(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False):
    """An event. `UNSET` stands for a missing time.

    The constructor checks nothing; `normalise` and `decode_canonical` do, and give times in UTC.
    """

    id: RequiredText
    group: RequiredText
    source_node: OptionalText = ""
    type: RequiredText
    subject: OptionalText = ""
    dedupe_key: OptionalText = ""
    payload: dict[str, str] = msgspec.field(default_factory=dict)
    # A default factory keeps msgspec from omitting the times, which are always on the wire.
    observed_at: datetime = msgspec.field(default_factory=lambda: UNSET)
    expires_at: datetime = msgspec.field(default_factory=lambda: UNSET)


ENCODER: Final = msgspec.json.Encoder(order="deterministic")
DECODER: Final = msgspec.json.Decoder(Event)


class Outline(Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """Some fields of an event, enough to list and expire it, decoded at half the cost of all of them."""

    id: str
    source_node: str = ""
    type: str
    subject: str = ""
    observed_at: datetime
    expires_at: datetime


_OUTLINES: Final = msgspec.json.Decoder(Outline)


def read_outlines(bodies: Sequence[str]) -> list[Outline]:
    """Return the outlines of events in their canonical form."""
    return _OUTLINES.decode_lines("\n".join(bodies))


class _Name(Struct, frozen=True, gc=False):
    id: str


_NAMES: Final = msgspec.json.Decoder(_Name)


def read_ids(lines: bytes) -> list[str]:
    """Return the ids of events in their canonical form, one in each line."""
    return [event.id for event in _NAMES.decode_lines(lines)]


def encode(event: Event) -> bytes:
    """Return the canonical bytes of a normalised event. Raises InvalidEvent for text that UTF-8 cannot encode."""
    try:
        return ENCODER.encode(event)
    except UnicodeEncodeError:
        raise InvalidEvent("event text holds a lone surrogate") from None


def written(text: str) -> str:
    """Return the text as a JSON string, with its quotes, exactly as a canonical event contains it."""
    return ENCODER.encode(text).decode()


def decode_canonical(line: bytes | str) -> Event:
    """Decode an event whose canonical form is exactly `line`.

    Raises NotCanonical for invalid JSON or another form of an event, InvalidEvent for JSON that breaks a rule.
    """
    try:
        event = DECODER.decode(line)
        same = ENCODER.encode(event) == (line if isinstance(line, bytes) else line.encode())
    except msgspec.ValidationError as error:
        raise InvalidEvent(f"event does not fit its form: {error}") from None
    except (ValueError, RecursionError):
        raise NotCanonical("not JSON, or nested too deeply") from None
    # An offset from UTC would survive decoding and encoding unnoticed.
    if not (same and event.observed_at.tzinfo is UTC and event.expires_at.tzinfo is UTC):
        raise NotCanonical("not the canonical form of this event")
    _require_normalised(event)
    return event


def _require_normalised(event: Event) -> None:
    if not event.dedupe_key or any(_has_edges(getattr(event, name)) for name in _TEXTS):
        raise NotCanonical(
            "not the canonical form of this event: a dedupe key is missing, or a text begins or ends with white space"
        )
    check_rules(event)


def _has_edges(text: str) -> bool:
    return text.strip(WHITE_SPACE) != text


def check_rules(event: Event) -> None:
    """Raise InvalidEvent for no time of observation, U+0000 or a lone surrogate anywhere, or a text over MAX_TEXT.

    The texts of `payload` may be longer.
    """
    if event.observed_at == UNSET:
        raise InvalidEvent("federation event observedAt is required")
    texts = (event.id, event.group, event.source_node, event.type, event.subject, event.dedupe_key)
    # All texts are checked at once: one by one they cost as much as decoding. Only on a fault is the field located.
    if not is_plain("".join((*texts, *event.payload, *event.payload.values()))) or max(map(len, texts)) > MAX_TEXT:
        _name_flaw(event)


def _name_flaw(event: Event) -> None:
    for name in _TEXTS:
        text = getattr(event, name)
        _check_text(name, text)
        if len(text) > MAX_TEXT:
            raise InvalidEvent(f"federation event {_wire_name(name)} is longer than {MAX_TEXT} characters")
    for key, value in event.payload.items():
        _check_text("payload", key)
        _check_text("payload", value)


def _check_text(name: str, text: str) -> None:
    if not is_plain(text):
        raise InvalidEvent(f"federation event {_wire_name(name)} holds U+0000 or a lone surrogate")


def is_plain(text: str) -> bool:
    """Return whether a text can be stored: databases reject U+0000, and a lone surrogate has no UTF-8 form."""
    if "\0" in text:
        return False
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False


def _wire_name(name: str) -> str:
    return {"source_node": "sourceNode", "dedupe_key": "dedupeKey"}.get(name, name)


def normalise(event: Event, *, now: int) -> Event:
    """Return the event as it is stored: all texts but the payload's trimmed, and missing values filled in.

    The dedupe key defaults to the id, the time of observation to `now` (microseconds). Raises InvalidEvent, with the
    text that v1 senders know for a missing id, group or type.
    """
    event_id, group, kind = event.id.strip(WHITE_SPACE), event.group.strip(WHITE_SPACE), event.type.strip(WHITE_SPACE)
    for name, text in (("id", event_id), ("group", group), ("type", kind)):
        if not text:
            raise InvalidEvent(f"federation event {name} is required")
    observed = _in_utc(event.observed_at)
    normal = Event(
        id=event_id,
        group=group,
        source_node=event.source_node.strip(WHITE_SPACE),
        type=kind,
        subject=event.subject.strip(WHITE_SPACE),
        dedupe_key=event.dedupe_key.strip(WHITE_SPACE) or event_id,
        payload=event.payload,
        observed_at=from_micros(now) if observed == UNSET else observed,
        expires_at=_in_utc(event.expires_at),
    )
    check_rules(normal)
    return normal


def _in_utc(time: datetime) -> datetime:
    if time.tzinfo is UTC:
        return time
    if time.tzinfo is None:
        raise InvalidEvent("federation event time has no time zone")
    try:
        return time.astimezone(UTC)
    except OverflowError:
        raise InvalidEvent("federation event time is outside the years 1 to 9999") from None


DIGEST_BYTES: Final = 16
"""The size of the digest of an event's content."""
_CONTENT_END: Final = b',"observedAt":"'


def content_of(line: str) -> str:
    """Return a canonical event's text up to `observedAt`, which is not complete JSON. A refresh has the same."""
    # The last one: a payload may have a key of that name, but only expiresAt follows the event's own.
    return line[: line.rindex(',"observedAt":"')]


def content_digest(line: str) -> bytes:
    """Return the first `DIGEST_BYTES` of the SHA-256 of `content_of(line)`."""
    return hashlib.sha256(content_of(line).encode()).digest()[:DIGEST_BYTES]


def content_digests(lines: Sequence[bytes]) -> bytes:
    """Return the digests of the contents of many lines, one after the other, each of `DIGEST_BYTES`."""
    sha256, end = hashlib.sha256, _CONTENT_END
    return b"".join([sha256(line[: line.rindex(end)]).digest()[:DIGEST_BYTES] for line in lines])


def micros(time: datetime) -> int:
    """Convert an aware time to microseconds since 1970."""
    past = time - _EPOCH
    return (past.days * 86400 + past.seconds) * SECOND + past.microseconds


FIRST_TIME: Final = micros(datetime.min.replace(tzinfo=UTC))
"""The first microsecond of the year 1."""
LAST_TIME: Final = micros(datetime.max.replace(tzinfo=UTC))
"""The last microsecond of the year 9999."""


def require_moment(time: datetime) -> None:
    """Raise ValueError for a time without a zone, or outside the years 1 to 9999 in UTC."""
    if time.tzinfo is None:
        raise ValueError(f"{time.isoformat()} has no zone")
    if not FIRST_TIME <= micros(time) <= LAST_TIME:
        raise ValueError(f"{time.isoformat()} is outside the years 1 to 9999 in UTC")


def from_micros(time: int) -> datetime:
    """Convert microseconds since 1970 to an aware time. Raises OverflowError outside the years 1 to 9999."""
    return _EPOCH + timedelta(microseconds=time)


def format_time(time: int | None) -> str:
    """Format a time (microseconds since 1970) as events write it; None gives the zero time."""
    return ZERO_TIME if time is None else from_micros(time).isoformat().replace("+00:00", "Z")


def expiry_micros(event: Event | Outline) -> int | None:
    """Return when the event expires, in microseconds; None for never."""
    return None if event.expires_at == UNSET else micros(event.expires_at)


def is_alive(expires: int | None, now: int) -> bool:
    """Return whether an event that expires at `expires` (None: never) is alive at `now`, also if both are equal."""
    return expires is None or now <= expires


def new_event_id(now: int, random: bytes) -> str:
    """Return a UUID version 7 from a time in microseconds and at least 8 random bytes.

    Ids of a later microsecond sort later: inserting ascending ids into a large table costs a seventh of inserting
    random ones.
    """
    tail = f"{2 << 62 | int.from_bytes(random[:8], 'big') & (1 << 62) - 1:016x}"
    return f"{_begin_id(now)}{tail[:4]}-{tail[4:]}"


def new_event_ids(now: int, count: int, random: Callable[[int], bytes]) -> list[str]:
    """Return `count` ascending ids of one time, at most 2^24. `random` returns bytes, as `secrets.token_bytes` does.

    All have the same 38 random bits, followed by a counter of 24: random bits for each would cost three times as much.
    """
    begin = new_event_id(now, random(8))[:-6]
    return [f"{begin}{number:06x}" for number in range(count)]


def _begin_id(now: int) -> str:
    millis, micro = divmod(now, 1000)
    text = f"{(millis & (1 << 48) - 1) << 16 | 7 << 12 | micro * 4096 // 1000:016x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:]}-"
