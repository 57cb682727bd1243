"""Refuses requests that a web page makes to an API without keys, through the browser of its visitor."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping

from eventd.errors import Forbidden


def require_local_name(host: str) -> None:
    """Raises `Forbidden` for a Host header that names neither an address nor localhost; an empty one passes.

    A web page can make its own name point at this machine and then call an API without keys through its visitor's
    browser; the name in the Host header reveals it.
    """
    name = host.rsplit(":", 1)[0] if host.count(":") <= 1 or "]:" in host else host
    name = name.strip("[]").lower()
    if not name or name == "localhost" or name.endswith(".localhost"):
        return
    try:
        ipaddress.ip_address(name)
    except ValueError:
        hint = "call it by its address or as localhost, or set EVENTD_API_KEYS"
        raise Forbidden(f"an API without keys does not answer to the name {name!r}", hint=hint) from None


def require_own_page(headers: Mapping[str, str]) -> None:
    """Raises `Forbidden` for a request that a page of another origin makes through its visitor's browser.

    Needed only without API keys: a browser asks no permission (no preflight) for a request that has no body. Pages of
    the console send no referrer: a browser writes the origin of their forms as null, and only `Sec-Fetch-Site` tells.
    """
    origin, host = headers.get("Origin", ""), headers.get("Host", "")
    if origin == "null" and headers.get("Sec-Fetch-Site") == "same-origin":
        return
    if origin and origin.partition("://")[2].lower() != host.lower():
        raise Forbidden(
            "an API without keys does not answer a page of another origin", hint="create API keys and send one"
        )
