"""Hashes of ledger rows, computed column by column. Sums of them compare sets of rows by all of their content.

The hash is keyed: with a known function, rows could be changed so that their sum stays the same. The key is random,
and only the state and the history of an audit hold it. Columns are hashed by NH, a universal family that needs one
multiplication for each 8 bytes; the sum over all columns is then mixed, so that the sum changes if two rows exchange
values.

The history of an audit keeps sums of these hashes across versions: a change of the hash raises `row_sums.SUMS`.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from eventd.audit.arrays.columns import Columns, Numbers

_Words = npt.NDArray[np.uint64]
_LOW: Final = np.uint64(0xFFFFFFFF)
_HALF: Final = np.uint64(32)
_MIX: Final = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_WORD: Final = 8
"""Bytes that are hashed by one multiplication."""
_DIGEST: Final = 32
"""Bytes of a digest."""
ODD: Final = 0x9E3779B97F4A7C15 - (1 << 64)
"""An odd number of 64 bits, signed: values multiplied by it differ in all of their bits."""


OUTLINE: Final = ("id", "type", "event_at", "bytes", "fingerprint")
"""The columns that rows of `events` and of `deliveries` both have of an event, which `outlines` hashes."""
CONTENT: Final = (*OUTLINE, "subject", "expires_at", "digest")
"""The columns that rows of `events` have of an event, which `contents` hashes."""


class RowHash:
    """Collects the columns of some rows. `key`: 16 random bytes; empty where rows are compared, not sums."""

    def __init__(self, key: bytes, rows: int) -> None:
        self._key = key
        self._sum = np.zeros(rows, np.uint64)

    def add_numbers(self, name: str, values: npt.NDArray[Any], rows: Numbers | None = None, at: int = 0) -> None:
        """Add a column of numbers, or word number `at` of a column of several words.

        `rows`: the indexes of its rows.
        """
        first, second = _keys(self._key, name, at)
        words = values.astype(np.int64, copy=False).view(np.uint64)
        found = ((words + first) & _LOW) * (((words >> _HALF) + second) & _LOW)
        if rows is None:
            self._sum += found
        else:
            self._sum[rows] += found

    def add_texts(self, name: str, column: Any) -> None:
        """Add a column of texts, as an Arrow array without nulls, or None for no rows."""
        if column is None or not len(column):
            return
        offsets = np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]
        starts, lengths = offsets[:-1].astype(np.int64), np.diff(offsets).astype(np.int64)
        self.add_numbers(name, lengths, at=-1)
        first, last = int(offsets[0]), int(offsets[-1])
        if first == last:
            return
        text = np.frombuffer(column.buffers()[2], np.uint8)[first:last]
        padded = np.concatenate((text, np.zeros(_WORD, np.uint8)))
        length = int(lengths[0])
        if (lengths == length).all():
            self._add_even(name, padded, length, len(lengths))
        else:
            self._add_uneven(name, padded, starts - first, lengths)

    def _add_even(self, name: str, padded: npt.NDArray[np.uint8], length: int, rows: int) -> None:
        """Add texts that all have the same length, and whose bytes follow each other."""
        for at in range(-(-length // _WORD)):
            found = np.ndarray((rows,), "<u8", padded.data, offset=at * _WORD, strides=(length,))
            left = length - at * _WORD
            if left < _WORD:
                found = found & np.uint64((1 << 8 * left) - 1)
            self.add_numbers(name, np.ascontiguousarray(found).view(np.int64), at=at)

    def _add_uneven(self, name: str, padded: npt.NDArray[np.uint8], starts: Numbers, lengths: Numbers) -> None:
        """Add texts that begin at these bytes."""
        # All words of 8 bytes, one beginning at each byte.
        words = np.ndarray((len(padded) - _WORD + 1,), "<u8", padded.data, strides=(1,))
        rows: Numbers | None = None
        for at in range(-(-int(lengths.max()) // _WORD)):
            left = lengths - at * _WORD
            if int(left.min()) <= 0:
                inside = np.flatnonzero(left > 0)
                rows = inside if rows is None else rows[inside]
                starts, lengths, left = starts[inside], lengths[inside], left[inside]
            found = words[starts + at * _WORD]
            if int(left.min()) < _WORD:
                found &= _kept(left)
            self.add_numbers(name, found.view(np.int64), rows, at)

    def add_digests(self, name: str, column: Any) -> None:
        """Add a column of digests of 32 bytes, as an Arrow array without nulls, or None for no rows."""
        if column is None or not len(column):
            return
        words = digest_words(column)
        for at in range(words.shape[1]):
            self.add_numbers(name, np.ascontiguousarray(words[:, at]), at=at)

    def add_words(self, name: str, texts: tuple[str, ...], codes: npt.NDArray[np.int32]) -> None:
        """Add a column of few distinct texts."""
        self.add_numbers(name, np.array([_word_hash(text, self._key) for text in texts], np.int64)[codes])

    def sums(self) -> Numbers:
        """Return a signed 64-bit hash of each row."""
        found = self._sum.copy()
        for factor in _MIX:
            found ^= found >> _HALF
            found *= factor
        found ^= found >> _HALF
        return found.view(np.int64)


def digest_words(column: Any) -> npt.NDArray[np.int64]:
    """Return the digests of an Arrow array, four little-endian numbers for each row."""
    data = np.frombuffer(column.buffers()[1], np.uint8)
    first = column.offset * _DIGEST
    return data[first : first + len(column) * _DIGEST].view("<i8").reshape(len(column), _DIGEST // _WORD)


def _kept(left: Numbers) -> _Words:
    """Return masks that keep, in words of 8 bytes, the bytes that belong to the texts, of which `left` remain."""
    bits = (np.minimum(left, _WORD) * 8).astype(np.uint64)
    whole = bits >= np.uint64(64)
    return np.where(whole, ~np.uint64(0), (np.uint64(1) << np.where(whole, np.uint64(0), bits)) - np.uint64(1))


@lru_cache(maxsize=4096)
def _keys(key: bytes, name: str, at: int) -> tuple[np.uint64, np.uint64]:
    made = hashlib.blake2b(f"{name}:{at}".encode(), key=key, digest_size=16).digest()
    first, second = np.frombuffer(made, "<u8")
    return first, second


@lru_cache(maxsize=65536)
def _word_hash(text: str, key: bytes) -> int:
    """Return a signed 64-bit hash of a text. It is keyed, so that two texts with one hash cannot be searched for."""
    return int.from_bytes(hashlib.blake2b(text.encode(), key=key, digest_size=8).digest(), "little", signed=True)


def ids_hash(table: Columns) -> Numbers:
    """Return a hash of the column `id`, the same in every audit, by which the rows of an event are grouped."""
    found = RowHash(b"", table.rows)
    found.add_texts("id", table.texts("id"))
    return found.sums()


def outlines(table: Columns, key: bytes) -> Numbers:
    """Return a hash of the columns of an event that rows of `events` and of `deliveries` both have."""
    return table.computed("outlines", key, lambda: _outlines(table, key))


def _outlines(table: Columns, key: bytes) -> Numbers:
    found = RowHash(key, table.rows)
    found.add_texts("id", table.texts("id"))
    kind = table.words("type")
    found.add_words("type", kind.values, kind.codes)
    for name in ("fingerprint", "event_at", "bytes"):
        found.add_numbers(name, table.numbers(name))
    return found.sums()


def contents(table: Columns, outline: Numbers, key: bytes) -> Numbers:
    """Return a hash of all columns of an event that rows of `events` have, including those that `outlines` covers."""
    return table.computed("contents", key, lambda: _contents(table, outline, key))


def _contents(table: Columns, outline: Numbers, key: bytes) -> Numbers:
    found = RowHash(key, table.rows)
    found.add_numbers("outline", outline)
    found.add_texts("subject", table.texts("subject"))
    found.add_numbers("expires_at", table.numbers("expires_at"))
    found.add_digests("digest", table.texts("digest"))
    return found.sums()
