"""Payloads as records: a stream carries bytes, and the topic behind it holds JSON.

Text is stored as a JSON text, everything else as `{"$b64": "…"}`, so each payload comes back byte for byte. A record
that was written otherwise has its JSON text as payload.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import Final

import msgspec

MARK: Final = "$b64"
"""The only member of the object that stands for bytes which are not text."""


def record_of(payload: bytes) -> str:
    """Return the record of a payload, as JSON. U+0000 counts as no text, because some databases do not store it."""
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        return f'{{"{MARK}":"{b64encode(payload).decode()}"}}'
    return msgspec.json.encode(text).decode()


def payload_of(record: str) -> bytes:
    """Return the payload of a record, which must be JSON."""
    if record.startswith('"'):
        return str(msgspec.json.decode(record)).encode()
    if record.startswith("{") and MARK in record:
        found = msgspec.json.decode(record)
        value = found.get(MARK) if isinstance(found, dict) and len(found) == 1 else None
        if isinstance(value, str) and (payload := _read(value)) is not None:
            return payload
    return record.encode()


def _read(text: str) -> bytes | None:
    try:
        payload = b64decode(text, validate=True)
    except ValueError:
        return None
    return payload if b64encode(payload).decode() == text else None
