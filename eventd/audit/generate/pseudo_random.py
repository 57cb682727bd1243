"""Pseudo-random numbers from a seed: by key and index, so that any part of a ledger is repeatable, or in sequence."""

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
"""The digit of each character of a UUID; dashes are written over their places."""


def key_of(seed: int, *parts: int | str) -> int:
    """Return the 64-bit key of the pseudo-random numbers for one purpose, which `parts` name."""
    text = "/".join(map(str, (seed, *parts)))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def random_of(seed: int, *parts: int | str) -> np.random.Generator:
    """Return a random generator for one purpose; its values must always be drawn in the same order."""
    return np.random.default_rng(key_of(seed, *parts))


def mix(values: Words) -> Words:
    """Mix the bits of each value (the finalizer of splitmix64). Different values give different results."""
    mixed = values ^ (values >> np.uint64(30))
    mixed *= _FIRST
    mixed ^= mixed >> np.uint64(27)
    mixed *= _SECOND
    mixed ^= mixed >> np.uint64(31)
    return mixed


def random_bits(key: int, places: Ints) -> Words:
    """Return 64 pseudo-random bits for each index in `places`, which depend on the key and the index alone."""
    return mix(places.astype(np.uint64) * _STEP + np.uint64(key))


def uuids(at: Ints, random: Words) -> Words:
    """Return UUIDs of version 7, [n, 2], from times in microseconds and 62 random bits, like `federation.event`."""
    millis, micros = np.divmod(at, 1000)
    words = np.empty((len(at), 2), np.uint64)
    words[:, 0] = ((millis << 16) | (7 << 12) | (micros * 4096 // 1000)).view(np.uint64)
    words[:, 1] = (random & _MOST_62) | _VARIANT
    return words


def write_uuids(words: Words) -> Bytes:
    """Return the text of UUIDs, [n, 36]."""
    digits = _PAIRS[words.astype(">u8").view(np.uint8)].view(np.uint8)
    text = digits[:, _SPREAD]
    for dash in (8, 13, 18, 23):
        text[:, dash] = ord("-")
    return text


def fingerprints(ids: Words) -> Ints:
    """Return fingerprints of events: 64 bits mixed from their ids, and so equal at both ends.

    They are not SHA-256, because the events have no canonical text to hash.
    """
    return mix(ids[:, 0] ^ mix(ids[:, 1])).view(np.int64)


def digests(fingerprint: Ints) -> Bytes:
    """Return digests of 32 bytes, [n, 32], that begin with the fingerprint, like real ones."""
    words = np.empty((len(fingerprint), 4), ">i8")
    words[:, 0] = fingerprint
    for at, mask in ((1, 0x5BD1E9955BD1E995), (2, 0x1B873593CC9E2D51), (3, 0x38495AB52E5A6D01)):
        words[:, at] = fingerprint ^ np.int64(mask)
    return words.view(np.uint8)
