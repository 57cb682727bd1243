"""Signing and verifying in the format of Standard Webhooks 1.0, and the text forms of its secrets.

A signature covers the id, the time and the body of a request, so that a receiver can refuse repeated, old and altered
ones. Source: https://github.com/standard-webhooks/standard-webhooks, spec/standard-webhooks.md.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

from federation.errors import BadKey, ClockSkew, Malformed, Unauthorized
from federation.keys import Algorithm, Key, KeyState
from federation.peers import ANY, SECOND

ID: Final = "webhook-id"
"""Header: the id of the message, which is the same on every attempt."""
TIMESTAMP: Final = "webhook-timestamp"
"""Header: when this attempt was sent, in whole Unix seconds."""
SIGNATURE: Final = "webhook-signature"
"""Header: one signature for each key, separated by blanks."""
TOLERANCE: Final = 300
"""Seconds by which the timestamp may differ from the receiver's clock, in either direction."""

SECRET, SEED, PUBLIC = "whsec_", "whsk_", "whpk_"
"""Prefixes of an HMAC secret, of the private and of the public part of an Ed25519 key; base64 follows."""
SHORTEST_SECRET, LONGEST_SECRET = 24, 64
"""Bytes of an HMAC secret."""
_SEED_BYTES = 32
_VERSIONS = {Algorithm.HMAC_SHA256: "v1", Algorithm.ED25519: "v1a"}
_SENT_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
# A dot separates the id from the timestamp: with one in the id, two messages could have the same signature.
_RECEIVED_ID = re.compile(r"[!-\-/-~]{1,256}")
_SECONDS = re.compile(r"[0-9]{1,12}")
_MOST_SIGNATURES = 32
_LONGEST_SIGNATURES = 8192


class Webhook(NamedTuple):
    """A verified request: its id, and when it was sent, in Unix seconds."""

    id: str
    timestamp: int


def read_key(id: str, material: str | bytes, *, state: str = KeyState.ACTIVE) -> Key:
    """Return the key `id` of a text: `whsec_…`, `whsk_…` (also seed and public part together), `whpk_…`, or PEM.

    The HMAC key is the decoded bytes, not the base64 text. Raises BadKey; the message does not contain the text.
    """
    try:
        text = (material.decode() if isinstance(material, bytes) else material).strip()
    except UnicodeDecodeError:
        raise BadKey(f"key {id!r} is not text") from None
    if text.startswith(SECRET):
        secret = _decode(id, text.removeprefix(SECRET))
        if not SHORTEST_SECRET <= len(secret) <= LONGEST_SECRET:
            size = f"{len(secret)} bytes, and must have {SHORTEST_SECRET} to {LONGEST_SECRET}"
            raise BadKey(f"the secret of key {id!r} has {size}")
        return Key(id=id, algorithm=Algorithm.HMAC_SHA256, state=KeyState(state), secret=secret)
    if text.startswith(SEED):
        raw = _decode(id, text.removeprefix(SEED))
        if len(raw) not in (_SEED_BYTES, 2 * _SEED_BYTES):
            raise BadKey(f"the private part of key {id!r} has {len(raw)} bytes, not 32 (64 with the public)")
        public = b64encode(raw[_SEED_BYTES:]) or None
        return Key.ed25519(id, private=b64encode(raw[:_SEED_BYTES]), public=public, owner=ANY, state=state)
    if text.startswith(PUBLIC):
        return Key.ed25519(id, public=text.removeprefix(PUBLIC), owner=ANY, state=state)
    if "-----BEGIN" not in text:
        raise BadKey(f"key {id!r} is neither a {SECRET}, {SEED} or {PUBLIC} text nor an Ed25519 key as PEM")
    if "PRIVATE KEY-----" in text:
        return Key.ed25519(id, private=text, owner=ANY, state=state)
    return Key.ed25519(id, public=text, owner=ANY, state=state)


def _decode(id: str, text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except ValueError:
        raise BadKey(f"key {id!r} is not valid base64 after its prefix") from None


def format_secret(raw: bytes) -> str:
    """Return the text form of an HMAC secret of 24 to 64 random bytes. Raises BadKey for another length."""
    text = SECRET + b64encode(raw).decode()
    read_key("new", text)
    return text


def format_seed(raw: bytes) -> str:
    """Return the text form of the private part of an Ed25519 key, from 32 random bytes. Raises BadKey."""
    text = SEED + b64encode(raw).decode()
    read_key("new", text)
    return text


def format_public(key: Key) -> str:
    """Return the text form of the public part of an Ed25519 key. Raises BadKey for an HMAC key."""
    if key.public is None:
        raise BadKey(f"key {key.id!r} has no public part")
    return PUBLIC + b64encode(key.public.public_bytes_raw()).decode()


def sign(keys: Iterable[Key], id: str, timestamp: int, body: bytes) -> str:
    """Return the value of the header `webhook-signature`: one signature for each active key, then each retiring one.

    Both sign during a rotation, because the receiver may know only one of them. `timestamp` is in Unix seconds. Raises
    ValueError for an id that is not 1 to 64 letters, digits, `_` or `-`, and `NoSigningKey` for a key without its
    private part. Without a key that signs, the value is empty.
    """
    if not _SENT_ID.fullmatch(id):
        raise ValueError(f"{id!r} is not a message id: 1 to 64 letters, digits, '_' or '-'")
    signed = _signed(id, str(timestamp), body)
    rank = {KeyState.ACTIVE: 0, KeyState.RETIRING: 1}
    signing = sorted((key for key in keys if key.state in rank), key=lambda key: rank[key.state])
    return " ".join(f"{_VERSIONS[key.algorithm]},{b64encode(key.sign(signed)).decode()}" for key in signing)


def verify(
    keys: Collection[Key], headers: Mapping[str, str], body: bytes, *, now: int, tolerance: int = TOLERANCE
) -> Webhook:
    """Return the id and the time of a request that one of the keys has signed. `now` in microseconds.

    The names of `headers` may be in upper or lower case. Raises `Malformed` for a missing or invalid header,
    `Unauthorized` without a valid signature, and `ClockSkew` if a validly signed timestamp is more than `tolerance`
    seconds from `now`. The receiver still has to ignore ids that it has seen within this time.
    """
    found = {name.lower(): value for name, value in headers.items()}
    id, timestamp, signatures = (_header(found, name) for name in (ID, TIMESTAMP, SIGNATURE))
    if not _RECEIVED_ID.fullmatch(id):
        raise Malformed(f"{ID} must be 1 to 256 printable ASCII characters without a dot", reason="bad_id")
    if not _SECONDS.fullmatch(timestamp):
        raise Malformed(f"{TIMESTAMP} must be whole Unix seconds", reason="bad_timestamp")
    if not _is_signed(keys, signatures, _signed(id, timestamp, body)):
        raise Unauthorized(f"no signature in {SIGNATURE} is valid for this body and these keys", reason="bad_signature")
    skew = int(timestamp) - now // SECOND
    if abs(skew) > tolerance:
        where = f"{abs(skew)} s {'ahead of' if skew > 0 else 'behind'} this clock; {tolerance} s are allowed"
        raise ClockSkew(f"{TIMESTAMP} is {where}", server_time=now)
    return Webhook(id, int(timestamp))


def _header(headers: Mapping[str, str], name: str) -> str:
    value = headers.get(name, "").strip()
    if not value:
        raise Malformed(f"the header {name} is missing", reason="missing_header")
    return value


def _signed(id: str, timestamp: str, body: bytes) -> bytes:
    return b".".join((id.encode(), timestamp.encode(), body))


def _is_signed(keys: Collection[Key], signatures: str, signed: bytes) -> bool:
    """Return whether one of the keys has made one of the signatures; unknown versions are skipped. Raises Malformed."""
    if len(signatures) > _LONGEST_SIGNATURES:
        raise Malformed(f"{SIGNATURE} has more than {_LONGEST_SIGNATURES} characters", reason="bad_signature")
    entries = signatures.split()
    if len(entries) > _MOST_SIGNATURES:
        raise Malformed(f"{SIGNATURE} has more than {_MOST_SIGNATURES} signatures", reason="bad_signature")
    for entry in entries:
        version, _, text = entry.partition(",")
        # A key makes signatures of one version only: the public part of a pair must not serve as an HMAC secret.
        eligible = [key for key in keys if key.usable and _VERSIONS[key.algorithm] == version]
        if (raw := _raw(text)) and any(key.verifies(raw, signed) for key in eligible):
            return True
    return False


def _raw(text: str) -> bytes:
    """Return the bytes of a signature; empty if it is not base64."""
    try:
        return b64decode(text, validate=True)
    except ValueError:
        return b""
