"""Keys and tokens of tenants of streams, and tokens of OpenID Connect issuers, for tests."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ec import (
    ECDSA,
    SECP256R1,
    EllipticCurvePrivateKey,
    generate_private_key,
)
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key as generate_rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from eventd.streams.permissions import read_permissions
from eventd.streams.tokens import StreamKey, StreamToken, sign

PrivateKey = Ed25519PrivateKey | RSAPrivateKey | EllipticCurvePrivateKey
KEY, OTHER = (Ed25519PrivateKey.from_private_bytes(bytes([filler]) * 32) for filler in (1, 2))
"""Two signing keys, the same in every run."""


def b64(value: bytes) -> str:
    """Bytes as base64url without padding."""
    return urlsafe_b64encode(value).rstrip(b"=").decode()


def stream_key(key: Ed25519PrivateKey = KEY, id: str = "k1") -> StreamKey:
    """The public half of a key of a tenant."""
    return StreamKey(id, key.public_key())


def jwk(key: PrivateKey = KEY, id: str = "k1") -> dict[str, Any]:
    """The public half of a key as a member of a key set."""
    named = {"kid": id} if id else {}
    if isinstance(key, Ed25519PrivateKey):
        return {"kty": "OKP", "crv": "Ed25519", "x": b64(key.public_key().public_bytes_raw()), **named}
    if isinstance(key, RSAPrivateKey):
        rsa = key.public_key().public_numbers()
        n, e = (number.to_bytes((number.bit_length() + 7) // 8, "big") for number in (rsa.n, rsa.e))
        return {"kty": "RSA", "n": b64(n), "e": b64(e), "alg": "RS256", "use": "sig", **named}
    point = key.public_key().public_numbers()
    return {
        "kty": "EC",
        "crv": "P-256",
        "x": b64(point.x.to_bytes(32, "big")),
        "y": b64(point.y.to_bytes(32, "big")),
        **named,
    }


def jwks(*keys: Mapping[str, Any]) -> bytes:
    """A key set."""
    return json.dumps({"keys": keys or [jwk()]}).encode()


def pem(key: PrivateKey = KEY) -> bytes:
    """A private key as PEM."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def stream_token(
    tenant: str = "t1",
    *permissions: str,
    now: int,
    seconds: int = 600,
    key: Ed25519PrivateKey = KEY,
    key_id: str = "k1",
    subject: str = "shop",
) -> str:
    """A token of a tenant that is valid for so many seconds; `now` in seconds since 1970."""
    granted = read_permissions(permissions or (f"stream.publish:stream:{tenant}/*", f"cache.read:cache:{tenant}/*"))
    return sign(key, key_id, StreamToken(subject, tenant, now + seconds, granted, key_id), now)


def rsa_key(bits: int = 2048) -> RSAPrivateKey:
    """A new RSA key."""
    return generate_rsa(65537, bits)


def ec_key() -> EllipticCurvePrivateKey:
    """A new key of the curve P-256."""
    return generate_private_key(SECP256R1())


def issuer_token(key: PrivateKey, claims: Mapping[str, Any], *, id: str = "k1", **head: Any) -> str:
    """A token of an issuer with these claims."""
    name = "EdDSA" if isinstance(key, Ed25519PrivateKey) else "RS256" if isinstance(key, RSAPrivateKey) else "ES256"
    header = {"alg": name, **({"kid": id} if id else {}), **head}
    signed = f"{b64(json.dumps(header).encode())}.{b64(json.dumps(dict(claims)).encode())}"
    return f"{signed}.{b64(_sign(key, signed.encode()))}"


def _sign(key: PrivateKey, signed: bytes) -> bytes:
    if isinstance(key, Ed25519PrivateKey):
        return key.sign(signed)
    if isinstance(key, RSAPrivateKey):
        return key.sign(signed, PKCS1v15(), SHA256())
    return b"".join(part.to_bytes(32, "big") for part in decode_dss_signature(key.sign(signed, ECDSA(SHA256()))))
