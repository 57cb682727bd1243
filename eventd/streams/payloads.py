"""Payloads as records: a stream carries bytes, and the topic behind it holds JSON.

Text is stored as a JSON text, everything else as `{"$b64": "…"}`, so each payload comes back byte for byte. A record
that was written otherwise has its JSON text as payload.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

import msgspec

from eventd.streams.base64_text import read_bytes, write_bytes

MARK: Final = "$b64"
"""The only member of the object that stands for bytes which are not text."""


def record_of(payload: bytes) -> str:
    """Return the record of a payload, as JSON. U+0000 counts as no text, because some databases do not store it."""
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        return f'{{"{MARK}":"{write_bytes(payload)}"}}'
    return msgspec.json.encode(text).decode()


def payload_of(record: str) -> bytes:
    """Return the payload of a record, which must be JSON."""
    if record.startswith('"'):
        return str(msgspec.json.decode(record)).encode()
    if record.startswith("{") and MARK in record:
        found = msgspec.json.decode(record)
        value = found.get(MARK) if isinstance(found, dict) and len(found) == 1 else None
        if isinstance(value, str):
            with suppress(ValueError):
                return read_bytes(value)
    return record.encode()
