"""Key pairs that sign tokens: their private part as PEM, and their public part as a member of a key set."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from hashlib import sha256
from typing import Final

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

SEED_BYTES: Final = 32
"""Random bytes from which a key pair is made."""


def make_key(seed: bytes) -> Ed25519PrivateKey:
    """Return the key pair of a seed, which must be random."""
    return Ed25519PrivateKey.from_private_bytes(seed)


def pem_of(key: Ed25519PrivateKey) -> bytes:
    """Return the private part as an unencrypted PEM, as OpenSSL writes it."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def thumbprint(key: Ed25519PrivateKey) -> str:
    """Return the id of a key that is computed from its public part (RFC 7638, RFC 8037)."""
    members = {"crv": "Ed25519", "kty": "OKP", "x": _public(key)}  # in this order
    return _encode(sha256(msgspec.json.encode(members)).digest())


def key_set_of(key: Ed25519PrivateKey, key_id: str) -> dict[str, list[dict[str, str]]]:
    """Return a JSON Web Key Set with the public part of one key (RFC 7517)."""
    about = {"kty": "OKP", "kid": key_id, "alg": "EdDSA", "use": "sig", "crv": "Ed25519", "x": _public(key)}
    return {"keys": [about]}


def _public(key: Ed25519PrivateKey) -> str:
    return _encode(key.public_key().public_bytes_raw())


def _encode(value: bytes) -> str:
    return urlsafe_b64encode(value).rstrip(b"=").decode()
