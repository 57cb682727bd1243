"""Payloads as records: a stream carries bytes, and the topic behind it holds JSON.

Text is stored as a JSON text, everything else as `{"$b64": "…"}`, so each payload comes back byte for byte. A record
that was written otherwise has its JSON text as payload.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from eventd.streams.base64_text import read_bytes, write_bytes

MARK: Final = "$b64"
"""The only member of the object that stands for bytes which are not text."""
_BYTES: Final = f'{{"{MARK}":"'
_TEXTS: Final = msgspec.json.Decoder(list[str])


def record_of(payload: bytes) -> str:
    """Return the record of a payload, as JSON. U+0000 counts as no text, because some databases do not store it."""
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        return f'{{"{MARK}":"{write_bytes(payload)}"}}'
    return msgspec.json.encode(text).decode()


class PayloadTexts(NamedTuple):
    """Records as JSON texts, each with a prefix and a suffix, and the number of bytes of each record without these."""

    texts: list[str]
    sizes: list[int]


def texts_of(payloads: Sequence[bytes], before: str = "", after: str = "") -> PayloadTexts:
    """Return the records of payloads, as `record_of` does for each, but faster where nothing has to be escaped."""
    sizes = [len(payload) + 2 for payload in payloads]
    try:
        texts = [*map(bytes.decode, payloads)]
    except UnicodeDecodeError:
        return _one_by_one(payloads, before, after)
    if len(msgspec.json.encode(texts)) != sum(sizes) + max(1, len(sizes)) + 1:  # with commas and brackets
        return _one_by_one(payloads, before, after)
    return PayloadTexts([f'{before}"{text}"{after}' for text in texts], sizes)


def _one_by_one(payloads: Sequence[bytes], before: str, after: str) -> PayloadTexts:
    texts = [*map(record_of, payloads)]
    sizes = [len(text.encode()) for text in texts]
    return PayloadTexts([f"{before}{text}{after}" for text in texts], sizes)


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


def payloads_of(records: Sequence[str]) -> list[bytes]:
    """Return the payloads of records, as `payload_of` does for each, but faster where all are texts."""
    try:
        texts = _TEXTS.decode(f"[{','.join(records)}]")
    except ValueError:
        return [*map(payload_of, records)]
    return [*map(str.encode, texts)]
