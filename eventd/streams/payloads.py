"""Payloads as records: a stream carries bytes, and the topic behind it holds JSON.

Text is stored as a JSON text, everything else as `{"$b64": "…"}`, so each payload comes back byte for byte. A record
that was written otherwise has its JSON text as payload.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from eventd.streams.base64_text import read_bytes, write_bytes

MARK: Final = "$b64"
"""The only member of the object that stands for bytes which are not text."""
_BYTES: Final = f'{{"{MARK}":"'


def record_of(payload: bytes) -> str:
    """Return the record of a payload, as JSON. U+0000 counts as no text, because some databases do not store it."""
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        return f'{{"{MARK}":"{write_bytes(payload)}"}}'
    return msgspec.json.encode(text).decode()


def texts_of(payloads: Sequence[bytes]) -> list[str]:
    """Return the records of payloads, as `record_of` does for each, but faster."""
    try:
        text = msgspec.json.encode([*map(bytes.decode, payloads)]).decode()
    except UnicodeDecodeError:
        return [*map(record_of, payloads)]
    if not payloads or "\\u0000" in text:
        return [*map(record_of, payloads)]
    # Within a JSON text each quote has a backslash before it, so these three characters part two texts.
    return [f'"{inner}"' for inner in text[2:-2].split('","')]


def payload_of(record: str) -> bytes:
    """Return the payload of a record, which must be JSON without white space between its tokens, as records are
    stored."""
    if record.startswith('"'):
        if "\\" in record:
            return str(msgspec.json.decode(record)).encode()
        return record[1:-1].encode()
    if record.startswith(_BYTES):
        try:
            return read_bytes(msgspec.json.decode(record[len(_BYTES) - 1 : -1], type=str))
        except ValueError:
            return record.encode()
    return record.encode()
