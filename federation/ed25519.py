"""Keys of the algorithm Ed25519. Loads the cryptography, so `keys` imports it when there is such a key."""

from __future__ import annotations

from base64 import b64decode, b64encode
from hashlib import sha256
from typing import Final

from cryptography.exceptions import InternalError, InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from federation.errors import BadKey
from federation.weak_keys import is_weak

UNREADABLE: Final = (ValueError, TypeError, UnsupportedAlgorithm, InternalError)
"""What the library raises for a text that it cannot read as a key: InternalError if OpenSSL refuses what the library
took for valid, such as a key of X448 with too few bytes."""


def read_private(id: str, material: str | bytes) -> Ed25519PrivateKey:
    """Return the private part of a key. Raises BadKey."""
    text = material.encode() if isinstance(material, str) else material
    try:
        if b"-----BEGIN" not in text:
            return Ed25519PrivateKey.from_private_bytes(_raw(text))
        key = load_pem_private_key(text.strip(), None)
    except UNREADABLE:
        raise BadKey(
            f"the private part of key {id!r} is not an unencrypted Ed25519 key, as PEM or 32 bytes in base64"
        ) from None
    if not isinstance(key, Ed25519PrivateKey):
        raise BadKey(f"the private part of key {id!r} is of another kind than Ed25519")
    return key


def read_public(id: str, material: str | bytes) -> Ed25519PublicKey:
    """Return the public part of a key. Raises BadKey."""
    text = material.encode() if isinstance(material, str) else material
    try:
        if b"-----BEGIN" not in text:
            key: object = Ed25519PublicKey.from_public_bytes(_raw(text))
        else:
            key = load_pem_public_key(text.strip())
    except UNREADABLE:
        raise BadKey(f"the public part of key {id!r} is not an Ed25519 key, as PEM or 32 bytes in base64") from None
    if not isinstance(key, Ed25519PublicKey):
        raise BadKey(f"the public part of key {id!r} is of another kind than Ed25519")
    if is_weak(key.public_bytes_raw()):
        raise BadKey(f"the public part of key {id!r} is weak: its signatures can be forged; create another key")
    return key


def from_raw(public: bytes) -> Ed25519PublicKey:
    """Return the public key with these 32 bytes."""
    return Ed25519PublicKey.from_public_bytes(public)


def _raw(text: bytes) -> bytes:
    return b64decode(text.strip(), validate=True)


def pin(public: Ed25519PublicKey) -> str:
    """Return the pin of a key, as curl writes it: `sha256//` and the SHA-256 of its SubjectPublicKeyInfo in base64."""
    info = public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return f"sha256//{b64encode(sha256(info).digest()).decode()}"


def verifies(public: Ed25519PublicKey, signature: bytes, data: bytes) -> bool:
    """Return whether `signature` over `data` is that of the key."""
    try:
        public.verify(signature, data)
    except InvalidSignature:
        return False
    return True


def dummy() -> Ed25519PublicKey:
    """Return a public part that no signer uses."""
    return Ed25519PrivateKey.from_private_bytes(bytes(32)).public_key()
