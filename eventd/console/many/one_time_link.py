"""Who may look at the console of many nodes: a browser of this machine that has opened the one-time link."""

from __future__ import annotations

import hashlib
import hmac
from typing import Final, NamedTuple

from aiohttp import web

from eventd.api.keys.cross_site import require_local_name, require_own_page
from eventd.errors import Forbidden
from eventd.net.peer_address import peer_address
from eventd.runtime.chance import Chance

_TOKEN_BYTES: Final = 32
_AGAIN: Final = "`routerctl console --link` prints a new one"
ENTRY: Final = (
    "Open the address that routerctl console has printed in its terminal. It lets one browser in:"
    " `routerctl console --link` prints a new address, for this one or another."
)


class Operator(NamedTuple):
    """The operator, who may see what the keys of the contexts may."""

    name: str = "this machine"

    @property
    def session_id(self) -> str:
        """Return nothing: the sessions of this console are not listed."""
        return ""

    @property
    def mark(self) -> str:
        """Return the value that decides which rendered views are shared: the same for all browsers, because they
        belong to one operator."""
        return self.name


class OneTimeLink:
    """A token in a URL, which one browser exchanges for a cookie. Both are known to this process alone.

    The link is used up by the first request that has the cookie: a preview of the link, or an answer that is lost,
    leaves it valid. Each exchange makes another cookie and ends the one before, so that two browsers cannot both be let
    in. The cookie's name has a random part: ports of one host share cookies.
    """

    def __init__(self, chance: Chance) -> None:
        self.token = chance.token(_TOKEN_BYTES).hex()
        self._cookie = f"__Host-eventd-{chance.token(4).hex()}"
        self._chance = chance
        self._value = ""  # none was given out yet
        self._used = False

    def renew(self) -> None:
        """Make a new link. The browser that used the one before is let in until the new one is used."""
        self.token = self._chance.token(_TOKEN_BYTES).hex()
        self._used = False

    def exchange(self, given: str, response: web.Response) -> None:
        """Set the cookie on the answer to a request with the token. Raises `Forbidden` once the link is used up."""
        if self._used or not _equal(given, self.token):
            raise Forbidden("this link was used already, or is not the one that was printed", hint=_AGAIN)
        self._value = self._chance.token(_TOKEN_BYTES).hex()
        response.set_cookie(self._cookie, self._value, path="/", secure=True, httponly=True, samesite="Lax")

    def identify(self, request: web.Request) -> Operator | None:
        """Return the operator if the request has the cookie, which uses up the link."""
        if not self._value or not _equal(request.cookies.get(self._cookie, ""), self._value):
            return None
        self._used = True
        return Operator()


def require_this_machine(request: web.Request) -> None:
    """Raises `Forbidden` unless the request comes from this machine, under its own name and from no foreign page."""
    peer, host = peer_address(request.transport), request.headers.get("Host", "")
    if peer is None or not peer.is_loopback:
        raise Forbidden("this console is for the machine on which it runs")
    try:
        require_own_page(request.headers)
        require_local_name(host)
    except Forbidden:  # its message is about an API
        raise Forbidden(
            "this console answers to addresses of this machine and to localhost, and to no page of another origin",
            hint="open the link that routerctl console has printed",
        ) from None


def _equal(one: str, other: str) -> bool:
    return hmac.compare_digest(_digest(one), _digest(other))


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode(errors="surrogateescape")).digest()
