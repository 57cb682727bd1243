"""Tokens of OpenID Connect issuers, and the key sets that verify them: RS256, ES256 and EdDSA.

The clock is handed in; times are in seconds since 1970.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeGuard

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ec import (
    ECDSA,
    SECP256R1,
    EllipticCurvePublicKey,
    EllipticCurvePublicNumbers,
)
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey, RSAPublicNumbers
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256

from eventd.streams.base64_text import decode_url
from eventd.streams.tokens import (
    LEEWAY,
    BadToken,
    TokenHeader,
    list_keys,
    read_header,
    read_public_key,
    split_token,
)

PublicKey = RSAPublicKey | EllipticCurvePublicKey | Ed25519PublicKey
ALGORITHMS: Final = {"RSA": "RS256", "EC": "ES256", "OKP": "EdDSA"}
"""The one algorithm that is accepted for each type of key."""
SHORTEST_RSA: Final = 2048
LONGEST_RSA: Final = 8192
"""Maximum number of bits of an RSA key: the time of a verification grows with the square of this number."""


class IssuerKey(NamedTuple):
    """A public key of an issuer and its algorithm; `id` is empty if the set gives it none."""

    id: str
    algorithm: str
    public: PublicKey


class IssuerKeySet(NamedTuple):
    """The usable keys of an issuer's set, and what is wrong with each of the others."""

    keys: tuple[IssuerKey, ...]
    problems: tuple[str, ...] = ()


_CLAIMS: Final = msgspec.json.Decoder(dict[str, Any])


def read_issuer_keys(text: bytes) -> IssuerKeySet:
    """Return the keys of a JSON Web Key Set; an unusable key does not affect the others. Raises `BadKeySet`."""
    keys, problems = list_keys(text, _read_key)
    return IssuerKeySet(keys, problems)


def _read_key(given: Mapping[str, Any]) -> IssuerKey:
    kind = given.get("kty")
    algorithm = ALGORITHMS.get(kind) if isinstance(kind, str) else None
    if algorithm is None:
        raise ValueError(f"kty is not one of {', '.join(ALGORITHMS)}")
    if given.get("alg", algorithm) != algorithm:
        raise ValueError(f"alg is not {algorithm}")
    if given.get("use", "sig") != "sig":
        raise ValueError("use is not sig")
    id = given.get("kid", "")
    if not isinstance(id, str):
        raise ValueError("kid is not a text")
    return IssuerKey(id, algorithm, _READERS[algorithm](given))


def _number(given: Mapping[str, Any], name: str, longest: int) -> int:
    value = given.get(name)
    if not isinstance(value, str) or len(value) > longest * 2:
        raise ValueError(f"{name} is missing, or too long")
    return int.from_bytes(decode_url(value), "big")


def _read_rsa(given: Mapping[str, Any]) -> RSAPublicKey:
    modulus, exponent = _number(given, "n", LONGEST_RSA // 8), _number(given, "e", 8)
    if not SHORTEST_RSA <= modulus.bit_length() <= LONGEST_RSA:
        raise ValueError(f"n has {modulus.bit_length()} bits, not {SHORTEST_RSA} to {LONGEST_RSA}")
    if exponent.bit_length() > 32:
        raise ValueError("e is too large")
    return RSAPublicNumbers(exponent, modulus).public_key()


def _read_ec(given: Mapping[str, Any]) -> EllipticCurvePublicKey:
    if given.get("crv") != "P-256":
        raise ValueError("crv is not P-256")
    return EllipticCurvePublicNumbers(_number(given, "x", 32), _number(given, "y", 32), SECP256R1()).public_key()


def _read_ed25519(given: Mapping[str, Any]) -> Ed25519PublicKey:
    public = given.get("x")
    if given.get("crv") != "Ed25519" or not isinstance(public, str):
        raise ValueError("crv is not Ed25519, or x is missing")
    return read_public_key(public)


_READERS: Final[Mapping[str, Any]] = {"RS256": _read_rsa, "ES256": _read_ec, "EdDSA": _read_ed25519}


def verify_issuer_token(
    token: str, issuer: str, audience: str, keys: Sequence[IssuerKey], now: float
) -> dict[str, Any]:
    """Return the claims of a token of the issuer that is for the audience and valid now. Raises `BadToken`.

    Keys with another id than the token names, or with another algorithm, are not tried.
    """
    parts = split_token(token)
    try:
        header = read_header(parts.head)
        _require_signer(parts.signed.encode(), decode_url(parts.signature), header, keys)
        claims = _CLAIMS.decode(decode_url(parts.body))
    except BadToken:
        raise
    except (ValueError, RecursionError):
        raise BadToken("it is not readable") from None
    _check(claims, issuer, audience, now)
    return claims


def _require_signer(signed: bytes, signature: bytes, header: TokenHeader, keys: Iterable[IssuerKey]) -> None:
    """Raises `BadToken` unless one of the keys has signed."""
    for key in keys:
        is_tried = header.kid is None or not key.id or key.id == header.kid
        if is_tried and key.algorithm == header.alg and _has_signed(key.public, signature, signed):
            return
    raise BadToken("none of the issuer's keys has signed it")


def _has_signed(key: PublicKey, signature: bytes, signed: bytes) -> bool:
    try:
        if isinstance(key, RSAPublicKey):
            key.verify(signature, signed, PKCS1v15(), SHA256())
        elif isinstance(key, Ed25519PublicKey):
            key.verify(signature, signed)
        else:  # RFC 7518 section 3.4: the two numbers, one after the other
            if len(signature) != 64:
                return False
            numbers = (int.from_bytes(half, "big") for half in (signature[:32], signature[32:]))
            key.verify(encode_dss_signature(*numbers), signed, ECDSA(SHA256()))
    except InvalidSignature:
        return False
    return True


def _check(claims: Mapping[str, Any], issuer: str, audience: str, now: float) -> None:
    aud = claims.get("aud")
    if claims.get("iss") != issuer:
        raise BadToken("it is of another issuer")
    if aud != audience and not (isinstance(aud, list) and audience in aud):
        raise BadToken("it is for another audience")
    expires, begins = claims.get("exp"), claims.get("nbf")
    if not _is_moment(expires) or now > expires + LEEWAY:
        raise BadToken("it has expired, or has no exp")
    if begins is not None and (not _is_moment(begins) or now < begins - LEEWAY):
        raise BadToken("it is not valid yet")


def _is_moment(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
