"""Checks values before they are sent: only those that JSON can express reach the readers unchanged.

The encoder would turn the others into something else without a word, such as bytes into base64 and NaN into null, or
fail when the event has already been queued.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime, time
from enum import Enum
from math import isfinite
from typing import Any, Final

import msgspec
from msgspec import Raw

from eventd.client.values import NewEvent
from eventd.errors import Invalid

MOST_LEVELS: Final = 61
"""Maximum nesting of a record's data: a node accepts bodies of 64 levels, of which the request itself has three."""
LONGEST_KEY: Final = 40
LONGEST_PLACE: Final = 80
_LARGE_INT: Final = 1 << 64
"""From this on, integers are checked: Python limits the digits of those that it writes as text."""

# Numbers as text: those that no float can hold are taken, as they are by a node.
_decode_raw = msgspec.json.Decoder(float_hook=str).decode


def require_event(event: NewEvent) -> None:
    """Raise `Invalid` for an event without a type, or with a member that a node cannot take."""
    if (
        type(event.type)
        is type(event.subject)
        is type(event.id)
        is type(event.source_node)
        is type(event.dedupe_key)
        is type(event.ttl)
        is str
    ):
        if not event.type or not (
            event.type.isascii()
            and event.subject.isascii()
            and event.id.isascii()
            and event.source_node.isascii()
            and event.dedupe_key.isascii()
            and event.ttl.isascii()
        ):
            _require_texts(event)
    else:
        _require_texts(event)
    require_payload(event.payload)
    if event.observed_at is not None:
        _require_time(event.observed_at, "observed_at")
    if event.expires_at is not None:
        _require_time(event.expires_at, "expires_at")


def require_payload(payload: object) -> None:
    """Raise `Invalid` for the payload of an event that is not a dict of texts."""
    if not isinstance(payload, dict):
        raise Invalid(
            f"payload is {name_type(payload)}, not a dict of texts", hint='NewEvent(TYPE, SUBJECT, {"KEY": "TEXT"})'
        )
    for key, value in payload.items():
        if type(key) is type(value) is str and key.isascii() and value.isascii():
            continue  # nearly always
        _require_key(key, "payload")
        where = _member("payload", key)
        if not _is_text(value):
            raise Invalid(f"{where} is {name_type(value)}: each value of a payload is a text", hint=_text_advice(value))
        _require_text(value, where)


def require_json(value: object, where: str, levels: int = MOST_LEVELS) -> None:
    """Raise `Invalid` for a value that JSON cannot express, or nested more than `levels` deep. `where` is its place."""
    if not _is_plain(value, levels):  # rarely
        _require_json(value, where, levels)


def _is_plain(value: Any, levels: int) -> bool:
    """Return whether a value consists of common values only: to know the place of each takes much longer."""
    kind = type(value)
    if kind is str:
        return _is_utf8(value)
    if kind is dict:
        if not levels:
            return False
        for key, member in value.items():
            if type(key) is not str or not _is_utf8(key) or not _is_plain(member, levels - 1):
                return False
        return True
    if kind is list:
        return levels > 0 and all(_is_plain(member, levels - 1) for member in value)
    if kind is int:
        return bool(-_LARGE_INT < value < _LARGE_INT)
    if kind is float:
        return isfinite(value)
    return value is None or kind is bool


def _is_utf8(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _require_json(value: object, where: str, levels: int) -> None:
    kind = type(value)
    if value is None or kind is bool:
        return
    if isinstance(value, Enum):
        _require_json(value.value, where, levels)  # the encoder writes the value
    elif isinstance(value, dict | list | tuple):
        if not levels:
            raise Invalid(
                f"{_cut_place(where)} is nested more than {MOST_LEVELS} levels deep",
                hint="send less of it, and no list or dict that contains itself",
            )
        for key, member in value.items() if isinstance(value, dict) else enumerate(value):
            if isinstance(value, dict):
                _require_key(key, where)
            _require_json(member, _member(where, key), levels - 1)
    elif isinstance(value, Raw):
        _require_raw(value, where, levels)
    elif kind not in (str, int, float):
        raise Invalid(f"{_cut_place(where)} is {name_type(value)}, which JSON cannot express", hint=_advice(value))
    else:
        _require_scalar(value, where)


def _require_scalar(value: Any, where: str) -> None:
    if type(value) is str:
        _require_text(value, where)
    elif type(value) is float:
        if not isfinite(value):
            raise Invalid(
                f"{_cut_place(where)} is {value}, which JSON cannot express", hint="send None or a text instead"
            )
    elif abs(value) >= _LARGE_INT:
        try:
            str(value)
        except ValueError:
            raise Invalid(
                f"{_cut_place(where)} is an int of too many digits to write", hint="send hex(value)"
            ) from None


def _require_raw(raw: Raw, where: str, levels: int) -> None:
    try:
        decoded = _decode_raw(raw)
    except RecursionError:
        raise Invalid(f"{_cut_place(where)} is a Raw that is nested too deep", hint="send less of it") from None
    except msgspec.ValidationError:  # a decoder without a type has no other objection to JSON
        raise Invalid(
            f"{_cut_place(where)} is a Raw that has an integer of too many digits", hint="send it as a text"
        ) from None
    except ValueError as error:
        raise Invalid(
            f"{_cut_place(where)} is a Raw that does not hold a JSON value: {error}",
            hint="write it with msgspec.json.encode, or send the value itself",
        ) from None
    require_json(decoded, where, levels)


def _require_texts(event: NewEvent) -> None:
    for name in ("type", "subject", "id", "source_node", "dedupe_key", "ttl"):
        value = getattr(event, name)
        if not _is_text(value):
            raise Invalid(f"{name} is {name_type(value)}, not a text", hint=_text_advice(value))
        _require_text(value, name)
    if not event.type:
        raise Invalid("type is empty: an event has a type", hint="NewEvent(TYPE, SUBJECT)")


def _require_time(value: object, name: str) -> None:
    if isinstance(value, str):  # as JSON has it
        return
    if not isinstance(value, datetime):
        raise Invalid(f"{name} is {name_type(value)}, not a datetime", hint="send datetime.now(UTC)")
    if value.utcoffset() is None:
        raise Invalid(
            f"{name} is {value.isoformat()}, without a time zone",
            hint=f"send {name}.replace(tzinfo=UTC) if it is in UTC, {name}.astimezone() if it is in local time",
        )


def _require_key(key: object, where: str) -> None:
    if not isinstance(key, str):
        raise Invalid(
            f"{_cut_place(where)} has the key {_cut(key)}, {name_type(key)}: keys are texts", hint=_key_advice(key)
        )
    _require_text(key, f"a key of {where}")


def _require_text(text: str, where: str) -> None:
    if not _is_utf8(text):
        raise Invalid(
            f"{_cut_place(where)} contains a lone surrogate, which UTF-8 cannot express",
            hint="decode its bytes with errors='replace', or send them as base64",
        )


def _is_text(value: object) -> bool:
    """Return whether the encoder writes the value as a text: it refuses other subclasses of str."""
    return type(value) is str or (isinstance(value, str) and isinstance(value, Enum))


def _member(where: str, key: object) -> str:
    return f"{where}[{_cut(key)}]"


def _cut(key: object) -> str:
    words = ascii(key)
    return words if len(words) <= LONGEST_KEY else f"{words[:LONGEST_KEY]}…"


def _cut_place(where: str) -> str:
    half = LONGEST_PLACE // 2
    return where if len(where) <= LONGEST_PLACE else f"{where[:half]}…{where[-half:]}"


def name_type(value: object) -> str:
    """Return the name of the value's type with its article, as it is read aloud: an int, a UUID, an HTTPError."""
    if value is None:
        return "None"
    name = type(value).__name__
    is_spelled = name[:2].isupper()  # one letter, or an abbreviation
    return f"an {name}" if name[0] in ("AEFHILMNORSX" if is_spelled else "aeiouAEIOU") else f"a {name}"


def _advice(value: object) -> str:
    """Return what to send in data instead of a value that JSON cannot express."""
    match value:
        case str():
            return "send str(value)"
        case int():
            return "send int(value)"
        case float():
            return "send float(value)"
        case Mapping():
            return "send dict(value)"
        case set() | frozenset():
            return "send sorted(value)"
    return _bytes_or_time_advice(value)


def _key_advice(key: object) -> str:
    match key:
        case Enum():
            return "write key.value" if isinstance(key.value, str) else "write str(key.value)"
        case int() | float():
            return f'write "{_cut(key)}"'
    return "write a text"


def _text_advice(value: object) -> str:
    """Return what to send where only a text is taken."""
    match value:
        case Enum():
            return "send str(value.value)"
        case bool():
            return 'send "true" or "false"'
        case None:
            return "leave it out, or send an empty text"
        case str() | int() | float():
            return "send str(value)"
        case dict() | list() | tuple():
            return "send json.dumps(value)"
        case Mapping():
            return "send json.dumps(dict(value))"
        case set() | frozenset():
            return "send json.dumps(sorted(value))"
    return _bytes_or_time_advice(value)


def _bytes_or_time_advice(value: object) -> str:
    match value:
        case bytes() | bytearray() | memoryview():
            return "send base64.b64encode(value).decode(), or value.decode() if the bytes are text"
        case datetime() | date() | time():
            return "send value.isoformat()"
    return "send a text, such as str(value)"
