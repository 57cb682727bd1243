"""Identifies callers by HTTP Basic: the user name is a token or the administrator's key, the password is ignored."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence

from aiohttp import web

from eventd.api.keys.api_key import ApiKey
from eventd.api.routemaster.answers import WrongCaller
from eventd.api.routemaster.surface import Caller, Kind, SurfaceContext
from eventd.errors import Unauthorized
from eventd.store.rows.keys import ROUTEMASTER

_ROOT = ApiKey(hashlib.sha256(b"administrator of the Routemaster surface").digest(), frozenset(), (), name="root")
"""The key under which the administrator's requests are counted; it admits no request."""


def identify(surface: SurfaceContext, request: web.Request, kinds: Sequence[Kind]) -> Caller:
    """Return the caller of a route for these kinds, and trust its connection if it has proven who it is.

    Raises `WrongCaller`.
    """
    header = request.headers.get("Authorization")
    caller = Caller("none") if header is None else _find(surface, read_user(header))
    if caller is None or caller.kind not in kinds:
        raise WrongCaller(kinds)
    if caller.kind != "none":
        surface.limiter.trust(request.transport, caller.key.digest.hex(), by_address=False)
    return caller


def _find(surface: SurfaceContext, user: str | None) -> Caller | None:
    if user is None:
        return None
    if surface.root.matches(user):
        return Caller("root", _ROOT)
    try:
        return Caller("client", surface.keys.find(user, ROUTEMASTER), user)
    except Unauthorized:
        return None


def read_user(header: str) -> str | None:
    """Return the user name of HTTP Basic in an `Authorization` header; None for anything else."""
    scheme, _, value = header.partition(" ")
    value = value.strip()
    if scheme.lower() != "basic":
        return None
    try:
        text = base64.b64decode(value + "=" * (-len(value) % 4), validate=True).decode()
    except ValueError:
        return None
    user, colon, _ = text.partition(":")
    return user if colon else None
