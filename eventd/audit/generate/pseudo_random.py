"""Pseudo-random numbers that depend on a key and an index: any part of a ledger can be made alone and repeatably."""

from __future__ import annotations

import hashlib
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

Ints: TypeAlias = NDArray[np.int64]
Smalls: TypeAlias = NDArray[np.int32]
Words: TypeAlias = NDArray[np.uint64]
Bytes: TypeAlias = NDArray[np.uint8]
Mask: TypeAlias = NDArray[np.bool_]

_STEP: Final = np.uint64(0x9E3779B97F4A7C15)
_FIRST: Final = np.uint64(0xBF58476D1CE4E5B9)
_SECOND: Final = np.uint64(0x94D049BB133111EB)
_MOST_62: Final = np.uint64((1 << 62) - 1)
_VARIANT: Final = np.uint64(2 << 62)
_PAIRS: Final = np.frombuffer(b"".join(b"%02x" % value for value in range(256)), np.uint16)
_SPREAD: Final = np.array([*range(8), 0, *range(8, 12), 0, *range(12, 16), 0, *range(16, 20), 0, *range(20, 32)])
"""Where each character of a UUID comes from; dashes come from nowhere."""


def key_of(seed: int, *parts: int | str) -> int:
    """The key of a stream of pseudo-random numbers, by purpose."""
    text = "/".join(map(str, (seed, *parts)))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def random_of(seed: int, *parts: int | str) -> np.random.Generator:
    """A generator for what is drawn once and as a whole."""
    return np.random.default_rng(key_of(seed, *parts))


def mix(values: Words) -> Words:
    """Every bit of each value spread over all 64: the finish of splitmix64. Another value never gives the same."""
    mixed = values ^ (values >> np.uint64(30))
    mixed *= _FIRST
    mixed ^= mixed >> np.uint64(27)
    mixed *= _SECOND
    mixed ^= mixed >> np.uint64(31)
    return mixed


def chance(key: int, places: Ints) -> Words:
    """64 pseudo-random bits for every index of a stream."""
    return mix(places.astype(np.uint64) * _STEP + np.uint64(key))


def uuids(at: Ints, random: Words) -> Words:
    """UUIDs version 7, [n, 2], of times in microseconds and 62 bits of chance: as `federation.event` makes them."""
    millis, micros = np.divmod(at, 1000)
    words = np.empty((len(at), 2), np.uint64)
    words[:, 0] = ((millis << 16) | (7 << 12) | (micros * 4096 // 1000)).view(np.uint64)
    words[:, 1] = (random & _MOST_62) | _VARIANT
    return words


def write_uuids(words: Words) -> Bytes:
    """Their text, [n, 36]."""
    digits = _PAIRS[words.astype(">u8").view(np.uint8)].view(np.uint8)
    text = digits[:, _SPREAD]
    for dash in (8, 13, 18, 23):
        text[:, dash] = ord("-")
    return text


def fingerprints(ids: Words) -> Ints:
    """Fingerprints of events: 64 bits mixed from their ids, so equal at both ends.

    They are not SHA-256: hashing texts of events that do not exist would prove nothing.
    """
    return mix(ids[:, 0] ^ mix(ids[:, 1])).view(np.int64)


def digests(fingerprint: Ints) -> Bytes:
    """32 bytes each, [n, 32]: they begin with the fingerprint, as a digest does."""
    words = np.empty((len(fingerprint), 4), ">i8")
    words[:, 0] = fingerprint
    for at, mask in ((1, 0x5BD1E9955BD1E995), (2, 0x1B873593CC9E2D51), (3, 0x38495AB52E5A6D01)):
        words[:, at] = fingerprint ^ np.int64(mask)
    return words.view(np.uint8)
