"""What an audit checks of receipts: the share of them, and the keys that their signatures are verified with."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Mapping
from functools import cached_property
from typing import Final

import msgspec
from msgspec.structs import replace

from eventd.lake.schema import Ledger
from federation.keys import Algorithm, Key, KeyRing

CHECKED: Final = (Ledger.RECEIPTS, Ledger.INBOUND)
"""The ledgers that hold receipts: those that a sender got, and the copies of those that a peer gave."""


class ReceiptKey(msgspec.Struct, frozen=True):
    """A key of a group. `material`: the 32 bytes of the public part (Ed25519), or the secret (HMAC); no repr shows it.

    `owner` is the node that signs with it, `*` any member.
    """

    group: str
    id: str
    owner: str
    algorithm: str
    material: bytes

    def __repr__(self) -> str:
        return f"ReceiptKey({self.group!r}, {self.id!r}, {self.owner!r}, {self.algorithm!r})"

    @classmethod
    def of(cls, group: str, key: Key) -> ReceiptKey:
        """Return a key of a group's ring, without its private part."""
        material = key.secret if key.public is None else key.public.public_bytes_raw()
        return cls(group, key.id, key.owner, key.algorithm.value, material)

    def fingerprint(self, salt: bytes) -> bytes:
        """Return what identifies the key: the public part itself, or a slow salted hash of the secret."""
        if self.algorithm == Algorithm.ED25519:
            return self.material
        return hashlib.scrypt(self.material, salt=salt, n=1 << 14, r=8, p=1, dklen=16)

    @property
    def key(self) -> Key:
        """Return the key, active: the receipts of a key that no longer signs are valid."""
        if self.algorithm == Algorithm.ED25519:
            return Key.ed25519(self.id, public=b64encode(self.material), owner=self.owner)
        return Key.hmac(self.id, self.material, owner=self.owner)


class ReceiptTerms(msgspec.Struct, frozen=True, dict=True):
    """The terms of the check: `percent` of the receipts, selected by the ids of their batches, and the `keys`."""

    percent: float = 100.0
    keys: tuple[ReceiptKey, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Return the keys as GROUP/ID."""
        return tuple(f"{key.group}/{key.id}" for key in self.keys)

    @cached_property
    def rings(self) -> Mapping[str, KeyRing]:
        """Return the keys by group."""
        groups = dict.fromkeys(key.group for key in self.keys)
        return {group: KeyRing(key.key for key in self.keys if key.group == group) for group in groups}

    def digest(self, book: Ledger, salt: bytes) -> str:
        """Return a digest of the terms, on which the result for a segment of the ledger depends; empty for none.

        The copies in `inbound` have no signatures, so keys do not matter there. The digest is stored. With
        another `salt` in each state, and a slow hash of secrets, it does not help to guess or to recognize one.
        """
        if book not in CHECKED:
            return ""
        keys = self.keys if book is Ledger.RECEIPTS else ()
        terms = (self.percent, [replace(key, material=key.fingerprint(salt)) for key in keys])
        return hashlib.blake2b(msgspec.msgpack.encode(terms), key=salt, digest_size=8).hexdigest()
