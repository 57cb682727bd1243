"""Tokens of clients: JSON Web Tokens signed with Ed25519 (RFC 7519, RFC 8037), and the key sets that verify them.

The clock is handed in; times are in seconds since 1970.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, TypeVar

import msgspec
from msgspec import Meta, Struct

from eventd.streams.base64_text import decode_url, encode_url
from eventd.streams.permissions import BadPermission, Permission, read_permissions
from federation.weak_keys import is_weak

if TYPE_CHECKING:  # the functions load the cryptography: kinds and commands without a key do without
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

ISSUER: Final = "felix-auth"
AUDIENCE: Final = "felix-broker"
LEEWAY: Final = 60
"""Seconds by which the clocks of issuer and node may differ."""
LONGEST: Final = 16 << 10
"""Maximum bytes of a token."""
MOST_KEYS: Final = 100
"""Maximum number of keys of a set that are used."""
_LATEST: Final = 2**53

T = TypeVar("T")
Moment = Annotated[int, Meta(ge=-_LATEST, le=_LATEST)]


class BadToken(ValueError):
    """A token that is not accepted. The text is for the node's log: clients do not get the reason."""


class BadKeySet(ValueError):
    """A text that is not a key set at all."""


class StreamKey(NamedTuple):
    """A public key of a tenant; `id` is empty if the set gives it none."""

    id: str
    public: Ed25519PublicKey


class KeySet(NamedTuple):
    """The usable keys of a set, and what is wrong with each of the others."""

    keys: tuple[StreamKey, ...]
    problems: tuple[str, ...] = ()


class StreamToken(NamedTuple):
    """A verified token: its holder, its expiry (without leeway), its permissions, and the id of the key that signed
    it."""

    subject: str
    tenant: str
    expires_at: int
    permissions: tuple[Permission, ...]
    key_id: str


class TokenHeader(Struct):
    """The header of a token: its algorithm, and the id of the key that has signed it, if it names one."""

    alg: str
    kid: str | None = None


class TokenParts(NamedTuple):
    """The parts of a token, still encoded. `signed` is the text that the signature covers: head and body."""

    signed: str
    head: str
    body: str
    signature: str


class _Claims(Struct, kw_only=True):
    iss: str
    aud: str
    sub: str
    tid: str
    exp: Moment
    iat: Moment
    perms: list[str]
    nbf: Moment | None = None


_HEADER: Final = msgspec.json.Decoder(TokenHeader)
_CLAIMS: Final = msgspec.json.Decoder(_Claims)


def read_key_set(text: bytes) -> KeySet:
    """Return the keys of a JSON Web Key Set (RFC 7517); an unusable key does not affect the others.

    Raises `BadKeySet`.
    """
    return KeySet(*list_keys(text, _read_key))


def list_keys(text: bytes, read: Callable[[Mapping[str, Any]], T]) -> tuple[tuple[T, ...], tuple[str, ...]]:
    """Return the result of `read` for each key of a set, and the problems of the keys for which it raises ValueError.

    Raises `BadKeySet` for a text that is not a set of keys.
    """
    try:
        listed = msgspec.json.decode(text)["keys"]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, TypeError, KeyError):
        raise BadKeySet('it is not a JSON object with "keys"') from None
    if not isinstance(listed, list):
        raise BadKeySet('"keys" is not a list')
    keys, problems = [], []
    for number, each in enumerate(listed[:MOST_KEYS], 1):
        try:
            if not isinstance(each, dict):
                raise ValueError("it is not an object")
            keys.append(read(each))
        except ValueError as error:
            problems.append(f"key {number}: {error}")
    if len(listed) > MOST_KEYS:
        problems.append(f"only the first {MOST_KEYS} of {len(listed)} keys are used")
    return tuple(keys), tuple(problems)


def _read_key(given: Mapping[str, Any]) -> StreamKey:
    for name, wanted in {"kty": "OKP", "crv": "Ed25519", "alg": "EdDSA"}.items():
        if given.get(name, wanted if name == "alg" else None) != wanted:
            raise ValueError(f"{name} is not {wanted}")
    if given.get("use", "sig") != "sig":
        raise ValueError("use is not sig")
    id, public = given.get("kid", ""), given.get("x")
    if not isinstance(id, str) or not isinstance(public, str):
        raise ValueError("kid or x is not a text")
    return StreamKey(id, read_public_key(public))


def read_public_key(x: str) -> Ed25519PublicKey:
    """Return the public key in the member `x` of a key. Raises ValueError, which says what is wrong with `x`."""
    raw = decode_url(x)
    if len(raw) != 32:
        raise ValueError(f"x has {len(raw)} bytes, not 32")
    if is_weak(raw):
        raise ValueError("x is a weak key, whose signatures can be forged")
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    return Ed25519PublicKey.from_public_bytes(raw)


def verify(token: str, tenant: str, keys: Sequence[StreamKey], now: float) -> StreamToken:
    """Return a token that one of the tenant's keys has signed and that is valid now. Raises `BadToken`."""
    return verify_with_signer(token, tenant, keys, now)[0]


def key_id_of(token: str) -> str:
    """Return the id of the key that a token names, although nothing in the token is verified yet.

    Empty if it names none.
    """
    head = token.partition(".")[0]
    try:
        return read_header(head).kid or "" if len(head) <= LONGEST else ""
    except (ValueError, RecursionError):
        return ""


def split_token(token: str) -> TokenParts:
    """Return the parts of a token, of which nothing is verified. Raises `BadToken`."""
    if len(token) > LONGEST or not token.isascii():
        raise BadToken("it is too long, or not a token")
    signed, _, signature = token.rpartition(".")
    head, dot, body = signed.partition(".")
    if not dot or "." in body:
        raise BadToken("it is not a token")
    return TokenParts(signed, head, body, signature)


def read_header(head: str) -> TokenHeader:
    """Decode the header of a token. Raises ValueError, and RecursionError."""
    return _HEADER.decode(decode_url(head))


def verify_with_signer(token: str, tenant: str, keys: Sequence[StreamKey], now: float) -> tuple[StreamToken, StreamKey]:
    """Return a valid token, as `verify` does, and the key that has signed it. Raises `BadToken`."""
    parts = split_token(token)
    try:
        header = read_header(parts.head)
        if header.alg != "EdDSA":
            raise BadToken("its alg is not EdDSA")
        key = _find_signer(parts.signed.encode(), decode_url(parts.signature), header.kid, keys)
        claims = _CLAIMS.decode(decode_url(parts.body))
        permissions = read_permissions(claims.perms)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadToken(f"it is not readable: {error}") from None
    except BadPermission as error:
        raise BadToken(str(error)) from None
    except BadToken:
        raise
    except ValueError:
        raise BadToken("it is not base64url") from None
    _check(claims, tenant, now)
    return StreamToken(claims.sub, claims.tid, claims.exp, permissions, key.id), key


def _find_signer(signed: bytes, signature: bytes, id: str | None, keys: Sequence[StreamKey]) -> StreamKey:
    """Return the key that signed the token; the key with the id that the token names is tried first."""
    from cryptography.exceptions import InvalidSignature

    for key in sorted(keys, key=lambda key: key.id != id):
        try:
            key.public.verify(signature, signed)
        except InvalidSignature:
            continue
        return key
    raise BadToken("none of the tenant's keys has signed it")


def _check(claims: _Claims, tenant: str, now: float) -> None:
    if claims.iss != ISSUER or claims.aud != AUDIENCE:
        raise BadToken("it is of another issuer, or for another audience")
    if claims.tid != tenant:
        raise BadToken("it is for another tenant")
    if now > claims.exp + LEEWAY:
        raise BadToken("it has expired")
    if claims.nbf is not None and now < claims.nbf - LEEWAY:
        raise BadToken("it is not valid yet")


def sign(key: Ed25519PrivateKey, key_id: str, token: StreamToken, issued_at: int) -> str:
    """Return the text of a token, signed."""
    head = {"alg": "EdDSA", "typ": "JWT", **({"kid": key_id} if key_id else {})}
    claims = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": token.subject,
        "tid": token.tenant,
        "exp": token.expires_at,
        "iat": issued_at,
        "perms": [f"{each.action}:{each.pattern}" for each in token.permissions],
    }
    signed = f"{encode_url(msgspec.json.encode(head))}.{encode_url(msgspec.json.encode(claims))}"
    return f"{signed}.{encode_url(key.sign(signed.encode()))}"
