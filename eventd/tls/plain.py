"""The answer to a client that speaks plain HTTP where the port speaks TLS.

Commands load this module on every run: it imports nothing slow.
"""

from __future__ import annotations

from typing import Final


def _bad_request(text: bytes) -> bytes:
    head = b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
    return head % len(text) + text


TLS_REQUIRED: Final = b"this port speaks TLS: write https:// in its address\n"
"""The body of the answer to plain HTTP at a port that speaks TLS. Links know the mistake by it."""
TLS_REFUSED: Final = _bad_request(TLS_REQUIRED)
