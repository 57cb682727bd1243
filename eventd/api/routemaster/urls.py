"""URLs of events and of callbacks."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from eventd.api.routemaster.answers import BadRequest

MOST_BYTES: Final = 8192
_CHAR = r"(?:[A-Za-z0-9\-._~!$&'()*+,;=:@]|%[0-9A-Fa-f]{2})"
_NAME = r"(?:[A-Za-z0-9\-._~!$&'()*+,;=]|%[0-9A-Fa-f]{2})"
_URL = re.compile(
    rf"(?P<scheme>[A-Za-z][A-Za-z0-9+.\-]*):"
    rf"(?://(?:(?:{_NAME}|:)*@)?(?P<host>\[[0-9A-Fa-f:.]+\]|{_NAME}*)(?::(?P<port>\d*))?(?=[/?\#]|\Z))?"
    rf"(?!//)(?:{_CHAR}|/)*(?P<query>\?(?:{_CHAR}|[/?])*)?(?:\#(?:{_CHAR}|[/?])*)?"
)
"""RFC 3986; the first character after an authority is that of a path, a query or a fragment."""


class ParsedUrl(NamedTuple):
    """The parts of a URL that decide about it; None: it has no such part."""

    scheme: str
    host: str | None
    port: str | None
    query: str | None


def parse_url(text: object) -> ParsedUrl | None:
    """Return the parts of a URL; None if it is none, or longer than `MOST_BYTES`."""
    if not isinstance(text, str) or len(text) > MOST_BYTES:
        return None
    found = _URL.fullmatch(text)
    return ParsedUrl(found["scheme"].lower(), found["host"], found["port"], found["query"]) if found else None


def is_event_url(text: object) -> bool:
    """Return whether an event may have this URL: it is of https, and has no question mark at all."""
    url = parse_url(text)
    return url is not None and url.scheme == "https" and "?" not in str(text)


def read_callback(text: object) -> str:
    """Return the URL of a callback. Raises `BadRequest`."""
    if text in (None, ""):
        raise BadRequest("URL is missing")
    url = parse_url(text)
    if url is None:
        raise BadRequest("URL is invalid")
    if url.scheme != "https":
        raise BadRequest("URL is not HTTPS")
    if url.query is not None:
        raise BadRequest("URL has query string")
    if not url.host or not 0 < int(url.port or 443) < 65536:
        raise BadRequest("URL is invalid")
    return str(text)
