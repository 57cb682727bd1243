"""Handles emitted events by columns, a request at a time: decode, fill in, check, encode. No I/O.

If an event needs a closer check, its request is left to `emitted`, which reports wrong events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct

from eventd.api.bodies.bodies import LIGHT_BYTES
from eventd.log.core.values import Drafts
from eventd.resources.group_configuration import GroupConfig
from federation.errors import BadEvent
from federation.event import (
    ENCODER,
    WHITE_SPACE,
    ZERO_TIME,
    OptionalText,
    format_time,
    micros,
    new_event_ids,
)
from federation.lenient import parse_time
from federation.lines import Bodies, BodyRun, size_of

MOST: Final = 10_000
"""The largest number of events in one request."""

MOST_VALUES: Final = 500_000
"""The largest number of JSON values in one request."""

_TOGETHER: Final = 256
"""Maximum number of events that are encoded as one text; a few texts make a block of the log."""

_NUL: Final = "\\u0000"
"""How JSON writes U+0000, which no database accepts."""


class PlainEvent(Struct, kw_only=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """An event of a request, without a `ttl`. With all members filled in, its encoding is the canonical one."""

    id: OptionalText = ""
    group: OptionalText = ""
    source_node: OptionalText = ""
    type: OptionalText = ""
    subject: OptionalText = ""
    dedupe_key: OptionalText = ""
    payload: dict[str, str] = msgspec.field(default_factory=dict)
    observed_at: str | None = None
    expires_at: str | None = None


class EmitBody(Struct, forbid_unknown_fields=True):
    """The body of an emit request whose events all fit `PlainEvent`."""

    events: Annotated[list[PlainEvent], Meta(min_length=1, max_length=MOST)]
    brief: bool = False
    exceptions: bool = False


_DECODER: Final = msgspec.json.Decoder(EmitBody)
_TIMES: Final = msgspec.json.Decoder(list[datetime])
_TEXTS: Final = msgspec.json.Decoder(list[str])


def is_bounded(text: bytes | bytearray) -> bool:
    """Return whether a text may be decoded as `PlainEvent`s before its values are counted one by one.

    No more objects than those of the largest request become events or payloads, as each begins with a brace. Other
    nesting ends the decoding at once.
    """
    if len(text) <= LIGHT_BYTES:
        return True
    opened = text.count(b"{")
    return opened <= 2 * MOST + 1 and opened + text.count(b",") < MOST_VALUES


def read_events(body: bytes | bytearray) -> EmitBody | None:
    """Return the decoded body of an emit request; None if it is not JSON that fits `EmitBody`, as with a `ttl`.

    None also for a body that has to be looked through before it is decoded: it has too many values, or may have.
    """
    if not is_bounded(body):
        return None
    try:
        return _DECODER.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def are_plain(events: Sequence[Any]) -> bool:
    """Return whether all of the events, at least one, are decoded as `PlainEvent`s already, as is usual."""
    return {*map(type, events)} == {PlainEvent}


def convert_events(events: Sequence[Any]) -> Sequence[PlainEvent] | None:
    """Convert decoded JSON to `PlainEvent`s; a `PlainEvent` is returned as it is. None if any value does not fit."""
    if are_plain(events):
        return events
    try:
        return msgspec.convert(events, list[PlainEvent])
    except (msgspec.ValidationError, RecursionError):
        return None


def drafts_of(
    events: Sequence[PlainEvent], group: GroupConfig, *, now: int, random: Callable[[int], bytes]
) -> Drafts | None:
    """Return the drafts of the events; None if one of them needs a closer check. `now` in microseconds.

    Missing members of the events are filled in; some may be even if None is returned, but not `source_node`, so that
    the next attempt uses the group's node name of that time.
    """
    try:
        expires_first = _set_times(events, now)
    except BadEvent:
        return None
    kinds, sources = {event.type for event in events}, {event.source_node for event in events}
    texts = [event.id for event in events], [event.subject for event in events], [event.dedupe_key for event in events]
    groups = {event.group for event in events}
    if "" in kinds or not groups <= {"", group.name} or any(map(_has_edges, (kinds, sources, *texts))):
        return None
    _fill_in(events, group.name, now, random)
    sourceless = [event for event in events if not event.source_node] if "" in sources else []
    try:
        _set_source(sourceless, group.node_name)
        bodies = _encode(events)
    except UnicodeEncodeError:
        return None
    finally:
        _set_source(sourceless, "")
    if any(_needs_closer_check(piece.text, group.limits.max_event_bytes) for piece in bodies.pieces):
        return None
    return Drafts(
        [event.id for event in events],
        [""] * len(events),
        bodies,
        frozenset(kinds),
        frozenset(sources - {""} | ({group.node_name} if "" in sources else set())),
        expires_first,
    )


def _encode(events: Sequence[PlainEvent]) -> Bodies:
    parts = (events[start : start + _TOGETHER] for start in range(0, len(events), _TOGETHER))
    return Bodies([BodyRun(ENCODER.encode_lines(part).decode(), len(part)) for part in parts])


def _needs_closer_check(text: str, most: int) -> bool:
    """Return whether a U+0000 may be in the text, or a line longer than `most` bytes."""
    if "\\" in text and _NUL in text:
        return True
    return size_of(text) > most and max(map(size_of, text.split("\n"))) > most


def _has_edges(texts: Iterable[str]) -> bool:
    """Return whether any text begins or ends with white space.

    Usually no text contains any white space, which a single search over all texts shows.
    """
    joined = "".join(texts)
    return joined != "" and joined.split(None, 1) != [joined] and any(text.strip(WHITE_SPACE) != text for text in texts)


def _fill_in(events: Sequence[PlainEvent], group: str, now: int, random: Callable[[int], bytes]) -> None:
    nameless = [event for event in events if not event.id]
    for event, event_id in zip(nameless, new_event_ids(now, len(nameless), random), strict=True):
        event.id = event_id
    for event in events:
        event.group = group
        if not event.dedupe_key:
            event.dedupe_key = event.id


def _set_source(events: Iterable[PlainEvent], node: str) -> None:
    for event in events:
        event.source_node = node


def _set_times(events: Sequence[PlainEvent], now: int) -> int | None:
    """Set both times of each event in canonical form; return the earliest expiry (microseconds), None if none expires.

    An event without a time of observation gets `now`. Raises BadEvent.
    """
    at = format_time(now)
    observed = [at if event.observed_at is None else event.observed_at for event in events]
    expiring = [event for event in events if event.expires_at is not None and event.expires_at != ZERO_TIME]
    observed_texts, _ = _read_times(observed)
    for event, text in zip(events, observed_texts, strict=True):
        event.observed_at = at if text == ZERO_TIME else text
        if event.expires_at is None:
            event.expires_at = ZERO_TIME
    texts, times = _read_times([event.expires_at or "" for event in expiring])
    for event, text in zip(expiring, texts, strict=True):
        event.expires_at = text
    return min((micros(time) for text, time in zip(texts, times, strict=True) if text != ZERO_TIME), default=None)


def _read_times(texts: list[str]) -> tuple[list[str], list[datetime]]:
    """Return the times as texts in canonical form, and as datetimes. Raises BadEvent.

    msgspec accepts more forms than the protocol: unless it writes all times back unchanged, `parse_time` reads them.
    """
    encoded = msgspec.json.encode(texts)
    try:
        times = _TIMES.decode(encoded)
    except msgspec.ValidationError:
        times = []
    if len(times) == len(texts) and msgspec.json.encode(times) == encoded and all(time.tzinfo is UTC for time in times):
        return texts, times
    times = [*map(parse_time, texts)]
    return _TEXTS.decode(msgspec.json.encode(times)), times
