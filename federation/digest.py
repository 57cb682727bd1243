"""The digest of an event, and a number derived from it that can be summed, for comparing what two nodes hold.

Both are computed from the canonical form, so equal events have equal numbers at every node. A sum does not depend on
the order of its events: two nodes compare sets of events by one number.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Final

_BITS: Final = 1 << 64
_HALF: Final = 1 << 63


def digest(body: str | bytes) -> bytes:
    """Return the SHA-256 of an event in its canonical form: 32 bytes."""
    return hashlib.sha256(body if isinstance(body, bytes) else body.encode()).digest()


def fingerprint(body: str | bytes) -> int:
    """Return the first 8 bytes of the digest as a signed 64-bit number, big endian."""
    return int.from_bytes(digest(body)[:8], "big", signed=True)


def add(*numbers: int) -> int:
    """Return the sum modulo 2**64 as a signed 64-bit number, like a database whose integers wrap."""
    return (sum(numbers) + _HALF) % _BITS - _HALF


def fingerprint_of(bodies: Iterable[str | bytes]) -> int:
    """Return the sum of the fingerprints of several events, as `add` forms it; 0 for none."""
    return add(*map(fingerprint, bodies))
