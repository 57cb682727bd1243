"""Which forms count: only those that a page of this console sent."""

from __future__ import annotations

from aiohttp import web

from eventd.errors import Forbidden


def require_own_form(request: web.Request) -> None:
    """Raises `Forbidden` for a POST that no page of this console sent.

    Browsers say where a request comes from. Another port of this host is the same site, and its pages may send our
    cookie along, so only the same origin counts.
    """
    site = request.headers.get("Sec-Fetch-Site", "")
    origin = request.headers.get("Origin", "")
    host = request.headers.get("Host", "")
    own = site == "same-origin" if site else bool(origin)
    # our pages send no referrer, and then browsers write null for their own origin, too
    if own and origin and not (site and origin == "null"):
        own = origin.partition("://")[2].lower() == host.lower()
    if not own:
        raise Forbidden("this form was not sent by a page of this console", hint="reload the page and try again")
