"""Keys and key rings: which node may sign, whose signature counts, and for which sources a key may send events.

The algorithm belongs to the key: a message cannot choose another. Keys are rotated by state: add the new key as
pending on every node, make it active and the old one retiring, then revoke the old one. No event is lost meanwhile,
because pending, active and retiring keys all verify.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Literal

from federation.errors import BadKey, NoSigningKey
from federation.peers import ANY, KEY_ID, NODE_NAME, SHARED_KEY_ID

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey


class KeyState(StrEnum):
    """The state of a key: pending and retiring keys only verify, active ones also sign, revoked do neither."""

    PENDING = "pending"
    ACTIVE = "active"
    RETIRING = "retiring"
    REVOKED = "revoked"


class Algorithm(StrEnum):
    """The signature algorithm of a key."""

    HMAC_SHA256 = "hmac-sha256"
    ED25519 = "ed25519"


Sources = frozenset[str] | Literal["*"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """A key of a group. Create one with `Key.hmac` or `Key.ed25519`; its repr never shows the secret.

    `owner` is the one node that may send with it, or "*": any. `speaks_for` are the sources whose events it may send,
    or "*": all except the receiver's own. In `hmac` and `ed25519` it defaults to the owner, and so to all for "*".
    """

    id: str
    algorithm: Algorithm
    state: KeyState = KeyState.ACTIVE
    owner: str = ANY
    speaks_for: Sources = "*"
    secret: bytes = field(default=b"", repr=False)
    private: Ed25519PrivateKey | None = field(default=None, repr=False)
    public: Ed25519PublicKey | None = field(default=None, repr=False)

    @classmethod
    def hmac(
        cls,
        id: str,
        secret: str | bytes,
        *,
        owner: str = ANY,
        state: str = KeyState.ACTIVE,
        speaks_for: Iterable[str] | None = None,
    ) -> Key:
        """Create a key from a secret, after trimming it. Raises BadKey for a blank secret, wrong id, owner or state."""
        raw = (secret.encode() if isinstance(secret, str) else secret).strip()
        if not raw:
            raise BadKey(f"the secret of key {id!r} is empty")
        sources = _sources(owner, speaks_for)
        state = _checked(id, owner, state)
        return cls(id=id, algorithm=Algorithm.HMAC_SHA256, state=state, owner=owner, speaks_for=sources, secret=raw)

    @classmethod
    def ed25519(
        cls,
        id: str,
        *,
        private: str | bytes | None = None,
        public: str | bytes | None = None,
        owner: str,
        state: str = KeyState.ACTIVE,
        speaks_for: Iterable[str] | None = None,
    ) -> Key:
        """Create a key from a private part, a public one, or both: PEM (PKCS #8, SPKI) or the 32 bytes in base64.

        Raises BadKey.
        """
        secret: Ed25519PrivateKey | None = _ed25519().read_private(id, private) if private is not None else None
        if secret is None and public is None:
            raise BadKey(f"key {id!r} has neither a private nor a public part")
        shared: Ed25519PublicKey | None = _ed25519().read_public(id, public) if public is not None else None
        derived = secret.public_key() if secret else None
        if shared and derived and shared != derived:
            raise BadKey(f"the private and the public part of key {id!r} do not belong together")
        return cls(
            id=id,
            algorithm=Algorithm.ED25519,
            state=_checked(id, owner, state),
            owner=owner,
            speaks_for=_sources(owner, speaks_for),
            private=secret,
            public=shared or derived,
        )

    @property
    def usable(self) -> bool:
        """Whether its signatures are accepted: in every state but revoked."""
        return self.state is not KeyState.REVOKED

    @property
    def signs(self) -> bool:
        """Whether new signatures may be made with it here: it is active, and its secret or private part is known."""
        return self.state is KeyState.ACTIVE and (bool(self.secret) or self.private is not None)

    def belongs_to(self, node: str) -> bool:
        """Return whether `node` may send with it."""
        return self.owner in (node, ANY)

    def may_speak_for(self, source: str) -> bool:
        """Return whether it may send events of `source`. Events of the receiver itself are checked elsewhere."""
        return self.speaks_for == ANY or source in self.speaks_for

    def sign(self, data: bytes) -> bytes:
        """Return the signature over `data`, in any state. Raises NoSigningKey for a key pair without a private part."""
        if self.algorithm is Algorithm.HMAC_SHA256:
            return hmac.digest(self.secret, data, "sha256")
        if self.private is None:
            raise NoSigningKey(f"key {self.id!r} has no private part here, so it cannot sign")
        return self.private.sign(data)

    def verifies(self, signature: bytes, data: bytes) -> bool:
        """Return whether `signature` over `data` is this key's, in any state. HMACs are compared in constant time."""
        if self.algorithm is Algorithm.HMAC_SHA256:
            return hmac.compare_digest(hmac.digest(self.secret, data, "sha256"), signature)
        return self.public is not None and bool(_ed25519().verifies(self.public, signature, data))


def _checked(id: str, owner: str, state: str) -> KeyState:
    if not KEY_ID.fullmatch(id):
        raise BadKey(f"{id!r} is not a key id: 1 to 128 printable ASCII characters without quote and backslash")
    if owner != ANY and not NODE_NAME.fullmatch(owner):
        raise BadKey(f"the owner {owner!r} of key {id!r} is neither a node name nor *")
    try:
        return KeyState(state)
    except ValueError:
        raise BadKey(f"key {id!r}: state is one of {', '.join(KeyState)}, not {state!r}") from None


def _sources(owner: str, speaks_for: Iterable[str] | None) -> Sources:
    if speaks_for is None:
        return ANY if owner == ANY else frozenset({owner})
    sources = frozenset(speaks_for)
    return ANY if ANY in sources else sources


@cache
def dummy_of(algorithm: Algorithm) -> Key:
    """Return a key for the verification of a message with an unknown key id, so that it takes as long as with a known
    one.

    `algorithm` is the one that the message names.
    """
    if algorithm is Algorithm.HMAC_SHA256:
        return Key(id="", algorithm=algorithm, secret=b"no key of this id")
    return Key(id="", algorithm=algorithm, public=_ed25519().dummy())


def _ed25519() -> ModuleType:
    """Return the module of this algorithm. It loads a library of 7 MB, which groups with secrets do not need."""
    from federation import ed25519

    return ed25519


class KeyRing:
    """The keys of one group, in the given order. Raises BadKey for two with the same id."""

    def __init__(self, keys: Iterable[Key]) -> None:
        self.keys = tuple(keys)
        self._by_id = {key.id: key for key in self.keys}
        if len(self._by_id) != len(self.keys):
            raise BadKey(f"the key ids of the key ring are not unique: {', '.join(key.id for key in self.keys)}")

    @classmethod
    def shared(cls, secret: str | bytes) -> KeyRing:
        """Return the ring of a group with a single secret, under the id that every node gives it."""
        return cls([Key.hmac(SHARED_KEY_ID, secret)])

    def __repr__(self) -> str:
        return f"KeyRing({list(self.keys)!r})"

    def find(self, id: str) -> Key | None:
        """Return the key with this id, in any state; None if the ring has none."""
        return self._by_id.get(id)

    def signer(self, node: str, algorithm: Algorithm | None = None) -> Key:
        """Return the key that `node` signs with: its own first active one, else the first active key for all nodes.

        Protocol v1 needs `algorithm` HMAC_SHA256. Raises NoSigningKey.
        """
        able = [key for key in self.keys if key.signs and algorithm in (None, key.algorithm)]
        for owner in (node, ANY):
            for key in able:
                if key.owner == owner:
                    return key
        kind = f"{algorithm} " if algorithm else ""
        raise NoSigningKey(f"the key ring has no active {kind}key that {node} may sign with")

    def secrets(self) -> tuple[Key, ...]:
        """Return the usable HMAC keys: protocol v1 names no key, so all are tried."""
        return tuple(key for key in self.keys if key.usable and key.algorithm is Algorithm.HMAC_SHA256)
