"""Whether a request arrived over TLS, and where it is redirected to if it did not."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from aiohttp import web

from eventd.api.routemaster.surface import Network
from eventd.net.peer_address import peer_address
from eventd.tls.transport import TlsTransport

POLICY: Final = ("Strict-Transport-Security", "max-age=31536000")


def is_secure(request: web.Request, proxies: Iterable[Network]) -> bool:
    """Return whether a request arrived over TLS, here or at a proxy that may say so."""
    if isinstance(request.transport, TlsTransport):
        return True
    forwarded = request.headers.get("X-Forwarded-Proto", "").split(",")[0]
    return forwarded == "https" and _is_proxy(request.transport, proxies)


def _is_proxy(transport: asyncio.BaseTransport | None, proxies: Iterable[Network]) -> bool:
    address = peer_address(transport)
    return address is not None and (address.is_loopback or any(address in network for network in proxies))


def https_target(request: web.Request, public_url: str) -> str:
    """Return the URL of a request over HTTPS: of the declared public one, or else of the host that it names."""
    base = public_url or f"https://{request.headers.get('Host', '') or _own_address(request.transport)}"
    return base + target_of(request)


def _own_address(transport: asyncio.BaseTransport | None) -> str:
    own = transport.get_extra_info("sockname") if transport is not None else None
    if not isinstance(own, tuple):
        return "localhost"
    host = f"[{own[0]}]" if ":" in own[0] else own[0]
    return f"{host}:{own[1]}"


def target_of(request: web.Request) -> str:
    """Return the path and the query of a request as they were sent."""
    target = request.raw_path
    return target if target.startswith("/") else request.rel_url.raw_path_qs or "/"
