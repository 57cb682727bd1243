"""For receivers of callbacks: verifies the signature and the time of a request in the Standard Webhooks format."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from eventd.runtime.clock import Clock, SystemClock
from federation.errors import BadKey, ClockSkew, Malformed, Unauthorized
from federation.keys import Key
from federation.webhooks import TOLERANCE, Webhook, read_key
from federation.webhooks import verify as verify_with

__all__ = ["BadKey", "ClockSkew", "Key", "Malformed", "Unauthorized", "Webhook", "read_secret", "verify"]


def read_secret(text: str) -> Key:
    """Return the key of a secret, `whsec_…`, `whpk_…` or PEM, for `verify`. Raises `BadKey`, which does not show it."""
    return read_key("of the receiver", text)


def verify(
    headers: Mapping[str, str],
    body: bytes,
    secrets: str | Iterable[str | Key],
    *,
    tolerance: int = TOLERANCE,
    clock: Clock | None = None,
) -> Webhook:
    """Return the id and the time of a request that is signed with one of the secrets, and at most `tolerance` s old.

    `body` is the body as received, before any decoding.
    `secrets` are `whsec_…`, `whpk_…` or PEM texts, or the keys that `read_secret` has made of them: during a rotation,
    the old and the new one. Raises `Malformed` for a missing or invalid header, `Unauthorized` without a valid
    signature, `ClockSkew` for a time too far from the clock's, and `BadKey` for an unusable secret, or without any.
    """
    if not isinstance(body, bytes | bytearray | memoryview):
        raise TypeError(f"the body must be the bytes that were received, not a {type(body).__name__} made of them")
    given = [secrets] if isinstance(secrets, str) else [*secrets]
    if not given:
        raise BadKey("no secret was given")
    keys = [read_key(str(number), one) if isinstance(one, str) else one for number, one in enumerate(given, 1)]
    return verify_with(keys, headers, body, now=(clock or SystemClock()).now(), tolerance=tolerance)
