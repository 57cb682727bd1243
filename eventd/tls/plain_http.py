"""The answer to a client that speaks plain HTTP where the port speaks TLS.

Commands load this module on every run: it imports nothing slow.
"""

from __future__ import annotations

from typing import Final

PLAIN_HTTP_BODY: Final = b"this port speaks TLS: write https:// in its address\n"
_HEAD: Final = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
)
PLAIN_HTTP_ANSWER: Final = _HEAD % len(PLAIN_HTTP_BODY) + PLAIN_HTTP_BODY


def wants_tls(status: int, body: bytes) -> bool:
    """Return whether this is the answer of a TLS port to plain HTTP, by which links and commands recognise the
    mistake."""
    return status == 400 and body == PLAIN_HTTP_BODY
