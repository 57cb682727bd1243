"""Hashes of batches: of their ids, and of their receipts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from eventd.audit.arrays.columns import Columns, Numbers, Words
from eventd.audit.arrays.row_hash import ODD
from federation.digest import fingerprint


def hash_of(text: str) -> int:
    """Return a signed 64-bit hash of a text."""
    return fingerprint(text)


def batch_hashes(table: Columns) -> Numbers:
    """Return a hash of the id of each row's batch."""
    return table.computed("batch hashes", b"", lambda: _hashes_of(table.words("batch_id"), hash_of))


def receipt_hashes(table: Columns) -> Numbers:
    """Return a hash of the receipt and the range of each batch in rows of `receipts` or `inbound`.

    Both nodes record both, but the receiver records no range of a repair.
    """
    ranges = table.numbers("after") * ODD + table.numbers("upto") * ODD * ODD
    return digest_hashes(table) ^ np.where(table.booleans("repair"), 0, ranges)


def digest_hashes(table: Columns) -> Numbers:
    """Return a hash of the digest of each row's receipt."""
    return table.computed("digest hashes", b"", lambda: _hashes_of(table.words("receipt_digest"), _first_bits))


def _hashes_of(words: Words, hashed: Callable[[str], int]) -> Numbers:
    found: Numbers = np.array([hashed(value) for value in words.values], np.int64)[words.codes]
    return found


def _first_bits(digest: str) -> int:
    """Return the first 64 bits of a digest in hex, as a signed number; a hash of a text that is not hex."""
    try:
        return int.from_bytes(bytes.fromhex(digest[:16]), "big", signed=True)
    except ValueError:
        return hash_of(digest)
