"""Base64 with padding (RFC 4648 section 4), in its one canonical form."""

from __future__ import annotations

from base64 import b64decode, b64encode


def read_bytes(text: str) -> bytes:
    """Return what a text stands for. Raises ValueError for a text that `write_bytes` would not return."""
    value = b64decode(text, validate=True)
    if write_bytes(value) != text:
        raise ValueError("it is not canonical base64")
    return value


def write_bytes(value: bytes) -> str:
    """Return bytes as text."""
    return b64encode(value).decode()
