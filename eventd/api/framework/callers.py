"""Who calls: the key of a request, and what speaks against a caller without one."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import lru_cache, partial
from typing import Any

from aiohttp import web

from eventd.api.framework.auth import ApiKey, Keys, require_local_name, require_own_page
from eventd.api.listener.connections import Door
from eventd.settings.model import Endpoint


class Callers:
    """Tells the keys of requests that came through one door."""

    def __init__(self, keys: Keys, door: Door) -> None:
        self.keys = keys
        self._door = door

    def heard(self, request: web.Request) -> None:
        """The head of a request has come; to be said of every one."""
        self._door.heard(request.transport)

    def identify(self, request: web.Request, *, token: str = "") -> ApiKey:
        """The caller's key, also from a `token` of the query. Raises `Unauthorized` and `Forbidden`."""
        if not self.keys:
            require_own_page(request.headers.get("Origin", ""), request.headers.get("Host", ""))
            if _is_local(request.transport.get_extra_info("sockname") if request.transport else None):
                _require_local_name(request.headers.get("Host", ""))
        authorization = request.headers.get("Authorization", "") or (f"Bearer {token}" if token else "")
        key = self.keys.identify(authorization)
        self._door.trust(request.transport, key.digest.hex(), by_address=False)  # a proxy has one for all callers
        return key

    def using(self, request: web.Request, key: ApiKey) -> AbstractContextManager[None]:
        """While this is open, the request's connection is cut as soon as its key is not in force any more."""
        return self.keys.using(key, partial(_cut, request))


def _cut(request: web.Request) -> None:
    """Nothing more goes out, also of what has begun."""
    if request.transport is not None:
        request.transport.abort()


_require_local_name = lru_cache(maxsize=64)(require_local_name)


@lru_cache(maxsize=64)
def _is_local(address: Any) -> bool:
    """Whether a request came in on a loopback address of ours; `address` is that of the connection's own end."""
    return isinstance(address, tuple) and Endpoint(address[0], address[1]).is_loopback
