"""What stands for an event's bytes where two nodes compare what they hold: a digest, and a number that adds up.

Both are of the canonical form, which is the same at every node, so equal events have equal numbers everywhere. Sums do
not depend on the order of what is summed: two nodes compare a whole stretch by one number.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Final

_BITS: Final = 1 << 64
_HALF: Final = 1 << 63


def digest(body: str | bytes) -> bytes:
    """The SHA-256 of an event in its canonical form: 32 bytes."""
    return hashlib.sha256(body if isinstance(body, bytes) else body.encode()).digest()


def fingerprint(body: str | bytes) -> int:
    """The first 8 bytes of the digest as a signed number of 64 bits, big endian."""
    return int.from_bytes(digest(body)[:8], "big", signed=True)


def add(*numbers: int) -> int:
    """The sum modulo 2**64, as a signed number of 64 bits: what a database gives that lets its integers wrap."""
    return (sum(numbers) + _HALF) % _BITS - _HALF


def fingerprint_of(bodies: Iterable[str | bytes]) -> int:
    """The sum of the fingerprints of several events; 0 for none."""
    return add(*map(fingerprint, bodies))
