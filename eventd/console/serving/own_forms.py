"""Decides which requests are accepted: forms that a page of this console sent, and no request that a page of another
origin makes by itself."""

from __future__ import annotations

from aiohttp import web

from eventd.errors import Forbidden


def require_own_form(request: web.Request) -> None:
    """Raise `Forbidden` for a POST that was not sent by a page of this console.

    Browsers state the origin of a request. Another port of this host is the same site, and its pages may send our
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


def require_no_foreign_page(request: web.Request) -> None:
    """Raise `Forbidden` for a request that a page of another origin makes by itself: a picture, a frame, a stream.

    That page could not read the answer, but would put load on the node. Following a link from another origin is
    allowed.
    """
    if request.headers.get("Sec-Fetch-Site", "") not in ("cross-site", "same-site"):
        return
    if request.headers.get("Sec-Fetch-Mode") != "navigate" or request.headers.get("Sec-Fetch-Dest") != "document":
        raise Forbidden("a page of another origin may link to this console, and request nothing from it")
