"""Determines where a URL leads to, and the beginning of a request to it."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple
from urllib.parse import quote, urlsplit

from eventd.tls.files import SYSTEM_CAS, ClientTlsConfig

_SAFE = "/%:@!$&'()*+,;=~"


class ConnectionOrigin(NamedTuple):
    """Where a connection leads: host and port; if `secure`, over TLS as `tls` declares, to the node `node`."""

    secure: bool
    host: str
    port: int
    tls: ClientTlsConfig = SYSTEM_CAS
    node: str = ""

    @property
    def address(self) -> str:
        """Return host and port as a URL writes them, without the user and password that it may contain."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


@lru_cache(maxsize=1024)
def read_url(url: str) -> tuple[ConnectionOrigin, str]:
    """Return where a URL leads to, without its TLS, and what follows the method of a request: target and `Host`.

    Path and query are sent as they are written; user, password and fragment are not sent. Raises ValueError for a URL
    that leads nowhere: an impossible host or port.
    """
    parts = urlsplit(url)
    secure, host = parts.scheme == "https", parts.hostname or ""
    target = quote(parts.path or "/", safe=_SAFE)
    if parts.query:
        target += f"?{quote(parts.query, safe=f'{_SAFE}?')}"
    port = parts.port or (443 if secure else 80)
    if not host:
        raise ValueError("it has no host")
    authority = parts.netloc.rpartition("@")[2]
    return ConnectionOrigin(secure, host, port), f" {target} HTTP/1.1\r\nHost: {authority}\r\n"
