"""Filters over the ids of a run: they say for certain that an id is not in it, and save most look-ups."""

from __future__ import annotations

import hashlib
import sys
from array import array
from collections.abc import Sequence
from functools import cache
from zlib import crc32

IDS_PER_WORD = 2
"""Of each word of 32 bits an id sets four: with two ids for a word, fewer than 1 in 100 other ids seem to be there."""
_MASKS = 1024


@cache
def _masks() -> array[int]:
    """Return the words with four bits each, of which the upper bits of an id's hash select one. They never change."""
    masks = array("I")
    for number in range(_MASKS):
        bits = dict.fromkeys(byte & 31 for byte in hashlib.blake2b(number.to_bytes(2, "little")).digest())
        masks.append(sum(1 << bit for bit in [*bits][:4]))
    return masks


def hash_ids(ids: Sequence[str]) -> list[int]:
    """Return the hashes of ids, as filters use them.

    Ids that a client chose for having one hash cost that client look-ups, and others nothing: a filter proves nothing.
    """
    return [*map(crc32, map(str.encode, ids))]


class IdFilter:
    """A set of ids that may seem to contain others, in 2 bytes for each."""

    __slots__ = ("_words",)

    def __init__(self, words: array[int]) -> None:
        self._words = words

    @classmethod
    def sized(cls, entries: int) -> IdFilter:
        """Return an empty filter for this number of ids."""
        return cls(array("I", bytes(4 * (entries // IDS_PER_WORD | 1))))

    @classmethod
    def of_bytes(cls, data: bytes) -> IdFilter:
        """Return the filter that `to_bytes` stored."""
        words = array("I", data)
        if sys.byteorder == "big":
            words.byteswap()
        return cls(words)

    def to_bytes(self) -> bytes:
        words = self._words[:]
        if sys.byteorder == "big":
            words.byteswap()
        return words.tobytes()

    @property
    def bytes(self) -> int:
        return 4 * len(self._words)

    def add(self, ids: Sequence[str]) -> None:
        words, size, masks = self._words, len(self._words), _masks()
        for each in hash_ids(ids):
            words[each % size] |= masks[each >> 22]

    def among(self, hashes: Sequence[int]) -> set[int]:
        """Return those of the hashes that an id of the set may have."""
        words, size, masks = self._words, len(self._words), _masks()
        return {each for each in hashes if words[each % size] & (mask := masks[each >> 22]) == mask}
