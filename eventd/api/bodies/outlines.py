"""Decodes large JSON bodies only as far as their members, so a refused body is not in memory twice."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import Raw

from eventd.api.bodies.bodies import LIGHT_BYTES

_MEMBERS: Final = msgspec.json.Decoder(dict[str, Raw])
_ELEMENTS: Final = msgspec.json.Decoder(list[Raw])


def read_outline(body: bytes | bytearray) -> Any:
    """Return the members of a JSON object by name, decoded; None for any other value.

    A member of more than `LIGHT_BYTES` stays undecoded: it is a list of `Raw`, or a `Raw` if it is not a list. Each
    `Raw` is a view of the body, and its bytes may not be UTF-8. Raises `msgspec.DecodeError` or
    `UnicodeDecodeError` if the body is not JSON.
    """
    try:
        members = _MEMBERS.decode(body)
    except msgspec.ValidationError:
        return None
    return {name: _open(value) for name, value in members.items()}


def _open(value: Raw) -> Any:
    if len(value) <= LIGHT_BYTES:
        return msgspec.json.decode(value)
    return _ELEMENTS.decode(value) if bytes(memoryview(value)[:1]) == b"[" else value
