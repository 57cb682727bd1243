"""URLs of events and of callbacks."""

from __future__ import annotations

import re
from ipaddress import AddressValueError, IPv6Address
from typing import Final, NamedTuple

from eventd.api.routemaster.answers import BadRequest
from eventd.net.literal_address import literal_address
from eventd.text.hosts import is_host_name

MOST_BYTES: Final = 8192
_CHAR = r"(?:[A-Za-z0-9\-._~!$&'()*+,;=:@]|%[0-9A-Fa-f]{2})"
_NAME = r"(?:[A-Za-z0-9\-._~!$&'()*+,;=]|%[0-9A-Fa-f]{2})"
_URL = re.compile(
    rf"(?P<scheme>[A-Za-z][A-Za-z0-9+.\-]*):"
    rf"(?://(?:(?:{_NAME}|:)*@)?(?P<host>\[[0-9A-Fa-f:.]+\]|{_NAME}*)(?::(?P<port>[0-9]*))?(?=[/?\#]|\Z))?"
    rf"(?!//)(?:{_CHAR}|/)*(?P<query>\?(?:{_CHAR}|[/?])*)?(?:\#(?:{_CHAR}|[/?])*)?"
)
"""RFC 3986; the first character after an authority is that of a path, a query or a fragment."""


class ParsedUrl(NamedTuple):
    """The parts of a URL that decide whether it is accepted; None if it has no such part."""

    scheme: str
    host: str | None
    port: str | None
    query: str | None


def parse_url(text: object) -> ParsedUrl | None:
    """Return the parts of a URL; None for a text that is not a URL, or is longer than `MOST_BYTES`."""
    if not isinstance(text, str) or len(text) > MOST_BYTES:
        return None
    found = _URL.fullmatch(text)
    if found is None or not _is_ip_literal(found["host"] or ""):
        return None
    return ParsedUrl(found["scheme"].lower(), found["host"], found["port"], found["query"])


def _is_ip_literal(host: str) -> bool:
    """Return whether a host in brackets contains an IPv6 address; True for other hosts."""
    try:
        return not host.startswith("[") or bool(IPv6Address(host[1:-1]))
    except AddressValueError:
        return False


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
    if not _can_be_reached(url.host or "", url.port or "443"):
        raise BadRequest("URL is invalid")
    return str(text)


def _can_be_reached(host: str, port: str) -> bool:
    """Return whether a connection to this host and port may exist; `port` consists of digits, of any number."""
    digits = port.lstrip("0")
    if not digits or len(digits) > 5 or int(digits) > 65535:
        return False
    return host.startswith("[") or is_host_name(host) or literal_address(host) is not None
