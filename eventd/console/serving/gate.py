"""Decides who may see the console of a node."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address
from typing import Final, NamedTuple

from aiohttp import web

from eventd.api.framework.action_callers import ActionCaller, session_caller
from eventd.api.framework.callers import Callers
from eventd.api.keys.api_key import ANYONE, OWNER, ApiKey
from eventd.api.keys.cross_site import require_local_name
from eventd.console.serving.sessions import ConsoleSession, ConsoleSessions
from eventd.errors import Forbidden
from eventd.net.peer_address import peer_address
from eventd.tls.transport import TlsTransport

_WAY_OUT: Final = "use https://, or open the console from your own machine with `routerctl console`"


class Visitor(NamedTuple):
    """The key of a visitor, its name in the record of actions, and its session.

    Key and session are None if the API requires no keys.
    """

    key: ApiKey
    caller: ActionCaller
    session: ConsoleSession | None = None

    @property
    def name(self) -> str:
        """Return what pages call the visitor."""
        if self.key is OWNER:
            return "local socket"
        return "anyone" if self.key is ANYONE else f"key {self.key.name}" if self.key.name else "a key of the settings"

    @property
    def session_id(self) -> str:
        """Return the id of the session; empty without one."""
        return self.session.row.id if self.session else ""

    @property
    def mark(self) -> Hashable:
        """Return a value that is equal for visitors who see the same."""
        return self.key.scopes, self.key.prefixes, self.name


class Gate:
    """Identifies visitors of the console. `proxies`: whose headers about the original request count."""

    def __init__(
        self, callers: Callers, sessions: ConsoleSessions, proxies: Sequence[IPv4Network | IPv6Network]
    ) -> None:
        self._callers = callers
        self._sessions = sessions
        self._proxies = proxies

    async def identify(self, request: web.Request) -> Visitor | None:
        """Return the visitor; None for one that has to sign in. Raises `Forbidden` for pages of other origins.

        Only the cookie identifies a visitor here; a key in a header does not.
        """
        if self._callers.is_local(request) or not self._callers.keys:
            key = self._callers.identify(request)
            return Visitor(key, self._callers.describe(request, key))
        session = await self._sessions.find(request)
        if session is None:
            return None
        self._callers.trust(request, session.key)
        return Visitor(session.key, session_caller(session.key, self.address(request)), session)

    def require_private(self, request: web.Request) -> None:
        """Raise `Forbidden` if a key would be sent over an insecure connection: without TLS, and not within this
        machine."""
        if not self.is_secure(request) and not self._is_on_this_machine(request):
            raise Forbidden("the console takes no key over a connection without TLS", hint=_WAY_OUT)

    def is_secure(self, request: web.Request) -> bool:
        """Return whether the request arrived over TLS, here or at a proxy of the settings."""
        if isinstance(request.transport, TlsTransport):
            return True
        said = ",".join(request.headers.getall("X-Forwarded-Proto", [])).split(",")[-1].strip()
        return self._is_proxy(request) and said == "https"

    def address(self, request: web.Request) -> str:
        """Return the address of the browser: as stated by a proxy that the settings name, else the address of the
        connection's other end."""
        if self._is_proxy(request):
            # The last is the proxy's own: the others may have been sent by the browser.
            said = ",".join(request.headers.getall("X-Forwarded-For", [])).split(",")[-1].strip()
            try:
                return str(ip_address(said))
            except ValueError:
                pass
        return str(peer_address(request.transport) or "local")

    def _is_proxy(self, request: web.Request) -> bool:
        peer = peer_address(request.transport)
        return peer is not None and any(peer in network for network in self._proxies)

    def _is_on_this_machine(self, request: web.Request) -> bool:
        peer = peer_address(request.transport)
        if peer is None or not peer.is_loopback:
            return False
        try:
            require_local_name(request.headers.get("Host", ""))
        except Forbidden:  # a proxy on this machine: the browser is elsewhere
            return False
        return True
