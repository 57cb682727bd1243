"""Identifies callers by their keys or by the local socket; without a key, refuses browsers that foreign pages drive."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import lru_cache, partial
from typing import Any

from aiohttp import web

from eventd.api.framework.action_callers import ActionCaller, key_caller, socket_caller, unknown_caller
from eventd.api.keys.api_key import OWNER, ApiKey
from eventd.api.keys.cross_site import require_local_name, require_own_page
from eventd.api.keys.valid_keys import Keys
from eventd.api.listener.connection_limiter import ConnectionLimiter
from eventd.api.listener.local_connections import LocalListener
from eventd.errors import Unauthorized
from eventd.net.local_socket import SocketUnusable, peer_of
from eventd.settings.values import Endpoint
from eventd.tls.transport import client_certificate


class Callers:
    """Identifies the callers of one listener and of the `local` socket, if there is one.

    Reports trusted connections to the limiter of the listener.
    """

    def __init__(self, keys: Keys, limiter: ConnectionLimiter, local: LocalListener | None = None) -> None:
        self.keys = keys
        self._limiter = limiter
        self._local = local

    def heard(self, request: web.Request) -> None:
        """Note that the head of a request has arrived: the time for the first head no longer limits its connection.

        Raises `WrongNode` for a request over the local socket that is meant for another node.
        """
        if self._local is not None and self.is_local(request):
            self._local.heard(request.transport, request.headers)
        else:
            self._limiter.heard(request.transport)

    def is_local(self, request: web.Request) -> bool:
        """Return whether the request came over the local socket."""
        return self._local is not None and self._local.holds(request.transport)

    def describe(self, request: web.Request, key: ApiKey | None) -> ActionCaller:
        """Return the caller for the record of actions. `key`: what `identify` returned; None if it refused."""
        if self.is_local(request):
            return socket_caller(_user_of(request))
        address = request.remote or ""
        return unknown_caller(address) if key is None else key_caller(key, address)

    def recognise(self, request: web.Request) -> ApiKey | None:
        """Return the caller's key, as `identify` does, for a route that needs none; None for an unknown caller."""
        if self.is_local(request):
            return OWNER
        try:
            return self._find_key(request, request.headers.get("Authorization", ""))
        except Unauthorized:
            return None

    def identify(self, request: web.Request, *, token: str = "") -> ApiKey:
        """Return the caller's key: of the header, else of `token`, else of its client certificate.

        `OWNER` over the local socket, `ANYONE` if no key is needed. A connection over TCP is then trusted. Raises
        `Unauthorized`; if callers need no key, `Forbidden` for a page of another origin, and over the local socket or a
        loopback address for a foreign Host header.
        """
        is_local = self.is_local(request)
        if is_local or not self.keys:
            require_own_page(request.headers)
            if is_local or _is_loopback(request.transport.get_extra_info("sockname") if request.transport else None):
                _require_local_name(request.headers.get("Host", ""))
        if is_local:
            return OWNER
        authorization = request.headers.get("Authorization", "") or (f"Bearer {token}" if token else "")
        key = self._find_key(request, authorization)
        self.trust(request, key)
        return key

    def trust(self, request: web.Request, key: ApiKey) -> None:
        """Treat the connection of a request as that of a caller with this key."""
        # a proxy has one connection for all callers
        self._limiter.trust(request.transport, key.digest.hex(), by_address=False)

    def _find_key(self, request: web.Request, authorization: str) -> ApiKey:
        """Return the key of an `Authorization` header; without one, the key that the client certificate stands for.

        Raises `Unauthorized`.
        """
        certificate = None if authorization else client_certificate(request.transport)
        key = None if certificate is None else self.keys.identify_client(certificate)
        return key or self.keys.identify(authorization)

    def using(self, request: web.Request, key: ApiKey) -> AbstractContextManager[None]:
        """Close the connection of the request as soon as the key is revoked or expires while the block runs."""
        return self.keys.using(key, partial(_cut, request))


def _user_of(request: web.Request) -> int:
    """Return the id of the user at the other end of the local socket; -1 if it is not known."""
    connection = request.transport.get_extra_info("socket") if request.transport else None
    try:
        return -1 if connection is None else peer_of(connection).user
    except SocketUnusable:
        return -1


def _cut(request: web.Request) -> None:
    """Close the connection, also in the middle of a response."""
    if request.transport is not None:
        request.transport.abort()


_require_local_name = lru_cache(maxsize=64)(require_local_name)


@lru_cache(maxsize=64)
def _is_loopback(address: Any) -> bool:
    """Return whether the local `address` of a connection is a loopback address."""
    return isinstance(address, tuple) and Endpoint(address[0], address[1]).is_loopback
