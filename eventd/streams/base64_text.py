"""Base64 with padding (RFC 4648 section 4), and base64url without (RFC 7515 section 2), in their one canonical form."""

from __future__ import annotations

from base64 import b64decode, b64encode, urlsafe_b64decode, urlsafe_b64encode


def read_bytes(text: str) -> bytes:
    """Return the bytes that a text encodes. Raises ValueError for a text that `write_bytes` would not return."""
    value = b64decode(text, validate=True)
    if write_bytes(value) != text:
        raise ValueError("it is not canonical base64")
    return value


def write_bytes(value: bytes) -> str:
    """Return bytes as text."""
    return b64encode(value).decode()


def decode_url(text: str) -> bytes:
    """Return the bytes that a text of base64url encodes.

    Raises ValueError for a text that `encode_url` would not return.
    """
    value = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if encode_url(value) != text:
        raise ValueError("it is not base64url")
    return value


def encode_url(value: bytes) -> str:
    """Return bytes as base64url."""
    return urlsafe_b64encode(value).rstrip(b"=").decode()
