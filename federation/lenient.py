"""Reads events as leniently as the nodes of protocol v1.

Those nodes read JSON the way Go's standard library fills a struct: member names match in any case, unknown members are
ignored, the last of repeated texts and times wins, `null` leaves these unchanged, repeated payloads are merged, `null`
empties the payload, and bytes that are not UTF-8 become U+FFFD one by one. The code that emits events uses only
`parse_time` of this module, so that the same text means the same time everywhere.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NoReturn

from federation.errors import BadEvent
from federation.event import UNSET, Event

_TEXTS: Final = {
    "id": "id",
    "group": "group",
    "sourcenode": "source_node",
    "type": "type",
    "subject": "subject",
    "dedupekey": "dedupe_key",
}
_TIMES: Final = {"observedat": "observed_at", "expiresat": "expires_at"}
_NOT_UTF8: Final = re.compile("[\udc80-\udcff]")
_RFC3339: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:\.(\d+))?(?:Z|([+-])([01]\d|2[0-3]):([0-5]\d))", re.ASCII
)

_USUAL: Final = re.compile(r"\d{4}-\d\d-\d\dT([01]\d|2[0-3]):\d\d:\d\d(\.\d{1,6})?Z", re.ASCII)
"""Matches the usual form of a time, which the library reads faster."""


class _Object(list[tuple[str, Any]]):
    """A JSON object as its members in order, repeated ones included."""


class _Number:
    """Stands for any number in the JSON: no member of an event is a number, so its digits are never converted."""


def decode_lenient(body: bytes) -> Event:
    """Decode the event in `body`, not yet normalised: texts untrimmed, required ones possibly empty.

    The body `null` gives an empty event. Raises BadEvent for any other text that is not one JSON object, a member of
    the wrong type, or a wrong time.
    """
    value = _parse(body)
    if value is None:
        return Event(id="", group="", type="")
    if not isinstance(value, _Object):
        raise BadEvent("an event is a JSON object")
    fields: dict[str, Any] = {"id": "", "group": "", "type": "", "payload": {}}
    for name, member in value:
        # casefold() also maps the long s and the Kelvin sign to s and k, as v1 nodes do.
        _take(fields, name.casefold(), member)
    return Event(**fields)


def _parse(body: bytes) -> object:
    text = _NOT_UTF8.sub("\N{REPLACEMENT CHARACTER}", body.decode("utf-8", "surrogateescape"))
    try:
        return json.loads(
            text, object_pairs_hook=_Object, parse_int=_number, parse_float=_number, parse_constant=_no_json
        )
    except json.JSONDecodeError as error:
        raise BadEvent(f"not JSON: {error.msg} at line {error.lineno} column {error.colno}") from None
    except RecursionError:
        raise BadEvent("not JSON we can read: too deeply nested") from None


def _number(_: str) -> _Number:
    return _Number()


def _no_json(word: str) -> NoReturn:
    raise BadEvent(f"not JSON: {word} is not a value")


def _take(fields: dict[str, Any], name: str, member: object) -> None:
    if name in _TEXTS:
        if member is not None:
            fields[_TEXTS[name]] = _text(name, member)
    elif name in _TIMES:
        if member is not None:
            fields[_TIMES[name]] = parse_time(_text(name, member))
    elif name == "payload":
        # Unlike a text, null empties it, and a second object adds to the first, as Go fills one map.
        fields["payload"] = {} if member is None else fields["payload"] | _payload(member)


def _text(name: str, member: object) -> str:
    if isinstance(member, str):
        return member
    raise BadEvent(f'member "{name}" must be a string')


def _payload(member: object) -> dict[str, str]:
    if not isinstance(member, _Object):
        raise BadEvent('member "payload" must be an object of strings')
    return {key: "" if value is None else _text(f"payload.{key}", value) for key, value in member}


def parse_time(text: str) -> datetime:
    """Parse an RFC 3339 time to UTC, truncated to microseconds. Raises BadEvent."""
    if _USUAL.fullmatch(text):
        with suppress(ValueError):  # a 30th of February is reported below
            usual = datetime.fromisoformat(text)
            return UNSET if usual == UNSET else usual
    match = _RFC3339.fullmatch(text)
    if not match:
        raise BadEvent(f"{text[:40]!r} is not an RFC 3339 time such as 2026-05-30T10:13:20Z")
    year, month, day, hour, minute, second, fraction, sign, hours, minutes = match.groups()
    micro = int((fraction or "0")[:6].ljust(6, "0"))
    try:
        time = datetime(int(year), int(month), int(day), int(hour), int(minute), int(second), micro, tzinfo=UTC)
        offset = timedelta(hours=int(hours or 0), minutes=int(minutes or 0))
        time += offset if sign == "-" else -offset
    except (ValueError, OverflowError):
        raise BadEvent(f"{text[:40]!r} is not a time that exists in the years 1 to 9999") from None
    # An offset can also result in the zero time; it means the same then.
    return UNSET if time == UNSET else time
