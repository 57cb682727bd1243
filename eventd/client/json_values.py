"""Checks values before they are sent: only those that JSON can express reach the readers unchanged.

The encoder would turn the others into something else without a word, such as bytes into base64 and NaN into null, or
fail when the event has already been queued.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime, time
from math import isfinite
from typing import Final

from msgspec import Raw

from eventd.errors import Invalid

MOST_LEVELS: Final = 61
"""Maximum nesting of a record's data: a node accepts bodies of 64 levels, of which the request itself has three."""
LONGEST_KEY: Final = 40


def require_payload(payload: object) -> None:
    """Raise `Invalid` for the payload of an event that is not a dict of texts."""
    if not isinstance(payload, dict):
        raise Invalid(
            f"payload is {_kind(payload)}, not a dict of texts", hint='NewEvent(TYPE, SUBJECT, {"KEY": "TEXT"})'
        )
    for key, value in payload.items():
        if type(key) is type(value) is str and key.isascii() and value.isascii():
            continue  # nearly always
        _require_key(key, "payload")
        where = _member("payload", key)
        if not isinstance(value, str):
            raise Invalid(f"{where} is {_kind(value)}: each value of a payload is a text", hint=_advice(value))
        _require_text(value, where)


def require_json(value: object, where: str, levels: int = MOST_LEVELS) -> None:
    """Raise `Invalid` for a value that JSON cannot express, or nested more than `levels` deep. `where` is its place."""
    kind = type(value)
    if value is None or kind is bool or kind is int or kind is Raw:
        return
    if isinstance(value, str):
        _require_text(value, where)
    elif isinstance(value, float):
        if not isfinite(value):
            raise Invalid(f"{where} is {value}, which JSON cannot express", hint="send None or a text instead")
    elif isinstance(value, dict | list | tuple):
        if not levels:
            raise Invalid(
                f"{where} is nested more than {MOST_LEVELS} levels deep",
                hint="send less of it, and no list or dict that contains itself",
            )
        for key, member in value.items() if isinstance(value, dict) else enumerate(value):
            if isinstance(value, dict):
                _require_key(key, where)
            require_json(member, _member(where, key), levels - 1)
    elif not isinstance(value, int):
        raise Invalid(f"{where} is {_kind(value)}, which JSON cannot express", hint=_advice(value))


def _require_key(key: object, where: str) -> None:
    if not isinstance(key, str):
        raise Invalid(f"{where} has the key {_cut(key)}, {_kind(key)}: keys are texts", hint=f'write "{_cut(key)}"')
    _require_text(key, f"a key of {where}")


def _require_text(text: str, where: str) -> None:
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Invalid(
            f"{where} contains a lone surrogate, which UTF-8 cannot express",
            hint="decode its bytes with errors='replace', or send them as base64",
        ) from None


def _member(where: str, key: object) -> str:
    return f"{where}[{_cut(key)}]"


def _cut(key: object) -> str:
    words = ascii(key)
    return words if len(words) <= LONGEST_KEY else f"{words[:LONGEST_KEY]}…"


def _kind(value: object) -> str:
    name = type(value).__name__
    return f"an {name}" if name[0] in "aeiouAEIOU" else f"a {name}"


def _advice(value: object) -> str:
    match value:
        case bytes() | bytearray() | memoryview():
            return "send base64.b64encode(value).decode(), or value.decode() if the bytes are text"
        case datetime() | date() | time():
            return "send value.isoformat()"
        case bool() | int() | float():
            return "send str(value)"
        case Mapping():
            return "send dict(value), or json.dumps(dict(value)) in a payload"
        case set() | frozenset():
            return "send sorted(value), or a text in a payload"
    return "send a text, such as str(value)"
