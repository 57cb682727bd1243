"""The address of a node's API."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from eventd.errors import Invalid

DEFAULT_PORT = 8780


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a node's API. `secure`: over HTTPS. `prefix`: a path in front of the API's own paths."""

    secure: bool
    host: str
    port: int
    prefix: str

    @classmethod
    def parse(cls, text: str) -> Address:
        """Return the address in a URL with http or https, or in `HOST[:PORT]`, also with a path. Raises `Invalid`.

        The default port is 443 for https, otherwise `DEFAULT_PORT`.
        """
        hint = f"write http://HOST:PORT, such as http://127.0.0.1:{DEFAULT_PORT}"
        try:
            parts = urlsplit(text if "://" in text else f"http://{text}")
            port = parts.port
        except ValueError:
            raise Invalid("the server's address cannot be read", hint=hint) from None
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise Invalid("the server's address is not a valid API address", hint=hint)
        if "@" in parts.netloc:
            raise Invalid(
                "the server's address must not contain a user name or a password",
                hint="remove them; routerctl sends an API key with --key-file",
            )
        secure = parts.scheme == "https"
        return cls(secure, parts.hostname, port or (443 if secure else DEFAULT_PORT), parts.path.rstrip("/"))

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.secure else 'http'}://{host}:{self.port}{self.prefix}"
