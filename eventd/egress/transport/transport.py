"""Sends one request, and says what it means for a link if no answer comes.

Three outcomes concern the link as a whole: no answer, "not now" (429, 5xx), and a refusal (other statuses). This
module handles only the first; the sinks judge answers.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from eventd.egress.loop.sink import ADDRESS_FORBIDDEN, Blocked, LinkError, LinkUnavailable
from eventd.egress.transport.origin_limit import MOST_CONNECTIONS, OriginLimit
from eventd.egress.transport.url import ConnectionOrigin, read_url
from eventd.net.address_rules import AddressForbidden, AddressRules
from eventd.net.connecting import OpenAddress, connect, open_first
from eventd.net.exchange import IDLE_SECONDS, Answer, AnswerTooLarge, Exchange, NoAnswer, Pool
from eventd.net.name_cache import LookUp, NameCache, NameResolver
from eventd.runtime.clock import Clock
from eventd.runtime.threads import THREADS, ThreadFactory
from eventd.tls.contexts import ClientTls
from eventd.tls.files import SYSTEM_CAS, CertificateUnusable, ClientTlsConfig
from eventd.tls.reasons import HandshakeFailed, Reason, failure_at_client

MAX_ANSWER = 64 << 10
"""Maximum bytes of an answer's body, unless the request allows more."""
CONNECT_SECONDS = 10.0
_Opening = Callable[[], Awaitable[socket.socket]]
_FAILURES = (
    *(ssl.SSLError, HandshakeFailed, CertificateUnusable, AddressForbidden, AnswerTooLarge, NoAnswer),
    *(OSError, UnicodeError),
)


@dataclass(slots=True)
class _Attempt:
    """One request, which may take that many `seconds` in all, and `connect_seconds` until it has a connection.

    `step` is what it waits for: `turn`, `name` or `connection`; empty: the answer.
    """

    origin: ConnectionOrigin
    head: bytes
    body: bytes
    seconds: float
    connect_seconds: float
    most: int
    cut: bool
    rules: AddressRules | None
    limit: OriginLimit | None
    end: float
    """When the time for the whole request, or for its connection, ends, by the clock of the event loop."""
    step: str = ""
    address: str = ""

    def overdue(self) -> str:
        """Return a message that names what was late: the turn, the name, the connection, or the answer."""
        if self.step == "turn":
            return f"{MOST_CONNECTIONS} other requests to {self.origin.address} were under way for {self.seconds:g} s"
        within = f"within {self.connect_seconds:.3g} s"
        if self.step == "name":
            return f"no addresses of the name {self.origin.host!r} {within}"
        if self.step == "connection":
            kind = "TLS connection" if self.origin.secure else "connection"
            return f"no {kind} to {self.origin.address} {within}"
        return f"no answer within {self.seconds:g} s"


class Transport:
    """An HTTP client with persistent connections to peers and receivers, without cookies, redirects and proxies."""

    def __init__(
        self,
        clock: Clock,
        credentials: Path | None = None,
        find: LookUp | None = None,
        *,
        threads: ThreadFactory = THREADS,
        open_address: OpenAddress = open_first,
    ) -> None:
        """`credentials` is the folder of the service manager's secrets; `find` looks up names that rules apply to.

        Without `find`, the system's resolver looks them up, in threads of its own (`threads`). `open_address` connects
        to an address that rules allow.
        """
        self._clock = clock
        self._open_address = open_address
        self._credentials = credentials
        self._resolver = NameResolver(threads)
        self._names = NameCache(clock.monotonic, find or self._resolver.look_up)
        self._pools: defaultdict[ConnectionOrigin, Pool] = defaultdict(lambda: Pool(clock.monotonic))
        self._limits: defaultdict[ConnectionOrigin, OriginLimit] = defaultdict(OriginLimit)
        self._tls: dict[ClientTlsConfig, ClientTls] = {}
        self._swept_at = clock.monotonic()
        self._closed = False

    def tls_of(self, declared: ClientTlsConfig) -> ClientTls:
        """Return the TLS of connections that are declared like this; its files are read when it is first used."""
        if declared not in self._tls:
            self._tls[declared] = ClientTls(declared, self._credentials, self._clock.now)
        return self._tls[declared]

    def forget_tls(self, declared: Collection[ClientTlsConfig]) -> None:
        """Forget the TLS of all peers but these, which are the ones declared now."""
        self._tls = {one: tls for one, tls in self._tls.items() if one in declared}

    async def post(
        self,
        url: str,
        body: bytes,
        headers: Mapping[str, str],
        *,
        seconds: float,
        connect_seconds: float = CONNECT_SECONDS,
        most: int = MAX_ANSWER,
        cut: bool = False,
        tls: ClientTlsConfig = SYSTEM_CAS,
        node: str = "",
        rules: AddressRules | None = None,
        bounded: bool = False,
    ) -> Answer:
        """POST, and return the answer. Over https, verify the other end by `tls`, and that it is `node`.

        With `rules`, the host's addresses are judged after its look-up, and only allowed ones are connected to. `cut`:
        the rest of an answer beyond `most` bytes is dropped, and the answer counts. `bounded`: at most
        `MOST_CONNECTIONS` such requests to one scheme, host and port are under way; others wait for their turn.

        Raises `LinkUnavailable` without an answer of up to `most` bytes in time, `Blocked` if the other end is another
        one or refuses this node, its address is forbidden, or the URL is invalid, and `LinkError` if a file of `tls`
        cannot be used. The error has the `address`, if one was known.
        """
        origin, begin = _read_origin(url)
        limit = self._limits[origin] if bounded else None
        if origin.secure:
            origin = origin._replace(tls=tls, node=node)
        fields = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
        head = f"POST{begin}{fields}Content-Length: {len(body)}\r\n\r\n".encode()
        end = asyncio.get_running_loop().time() + seconds
        return await self._make(_Attempt(origin, head, body, seconds, connect_seconds, most, cut, rules, limit, end))

    async def get(
        self,
        url: str,
        headers: Mapping[str, str],
        *,
        seconds: float,
        most: int = MAX_ANSWER,
        tls: ClientTlsConfig = SYSTEM_CAS,
        rules: AddressRules | None = None,
    ) -> Answer:
        """Send a GET request and return its answer. Raises the same errors as `post`."""
        origin, begin = _read_origin(url)
        if origin.secure:
            origin = origin._replace(tls=tls)
        fields = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
        head = f"GET{begin}{fields}\r\n".encode()
        end = asyncio.get_running_loop().time() + seconds
        attempt = _Attempt(
            origin, head, b"", seconds, min(seconds, CONNECT_SECONDS), most, cut=False, rules=rules, limit=None, end=end
        )
        return await self._make(attempt)

    async def _make(self, attempt: _Attempt) -> Answer:
        limit = attempt.limit
        try:
            async with asyncio.timeout_at(attempt.end):  # unnamed: its task in a kept error would be a cycle
                return await (self._ask(attempt) if limit is None else self._take_turn(attempt, limit))
        except _FAILURES as error:
            raise _link_error(error, attempt) from None

    async def _take_turn(self, attempt: _Attempt, limit: OriginLimit) -> Answer:
        attempt.step = "turn"
        async with limit.turn():
            return await self._ask(attempt)

    async def _ask(self, attempt: _Attempt) -> Answer:
        pool = self._pools[attempt.origin]
        exchange = pool.take() if attempt.rules is None else None
        if exchange is None:
            exchange = await self._reach(attempt)
            pool = self._pools[attempt.origin]  # `_sweep` may have dropped the other one
        attempt.step, attempt.address = "", exchange.address
        try:
            return await pool.ask(exchange, attempt.head, attempt.body, attempt.most, cut=attempt.cut)
        finally:
            if attempt.limit is not None:
                attempt.limit.note_end(exchange)
            if self._closed:  # another attempt may have connected meanwhile
                pool.close()

    async def _reach(self, attempt: _Attempt) -> Exchange:
        """Return a new connection; with rules, also a kept one to an address that is allowed now."""
        now = asyncio.get_running_loop().time()
        attempt.connect_seconds = min(attempt.connect_seconds, attempt.end - now)
        attempt.end = now + attempt.connect_seconds
        async with asyncio.timeout_at(attempt.end):
            if attempt.rules is None:
                return await self._connect(attempt)
            attempt.step = "name"
            host, port = attempt.origin.host, attempt.origin.port
            addresses = attempt.rules.select(await self._names.addresses(host, port), host, port)
            kept = self._pools[attempt.origin].take(addresses)
            return kept or await self._connect(attempt, partial(self._open_allowed, attempt, attempt.rules, addresses))

    async def _connect(self, attempt: _Attempt, opening: _Opening | None = None) -> Exchange:
        self._sweep()
        if attempt.limit is not None:
            attempt.limit.make_room()
        attempt.step = "connection"
        origin = attempt.origin
        tls = self.tls_of(origin.tls) if origin.secure else None
        return await connect(Exchange, origin.host, origin.port, tls, origin.node, opening)

    async def _open_allowed(self, attempt: _Attempt, rules: AddressRules, addresses: tuple[str, ...]) -> socket.socket:
        """Connect to one of these addresses, and check the address at the other end again."""

        def trying(address: str) -> None:
            attempt.address = address

        opened, address = await self._open_address(addresses, attempt.origin.port, attempt.end, trying)
        reason = rules.judge(address, attempt.origin.host, attempt.origin.port)
        if reason is not None:
            opened.close()
            raise AddressForbidden(address, reason)
        return opened

    def _sweep(self) -> None:
        """At intervals, close idle connections, and forget origins without connections, because receivers change over
        time."""
        now = self._clock.monotonic()
        if now - self._swept_at < IDLE_SECONDS:
            return
        self._swept_at = now
        for origin, pool in list(self._pools.items()):
            pool.close_idle()
            if pool.is_empty:
                del self._pools[origin]
        for origin, limit in list(self._limits.items()):
            if limit.is_unused:
                del self._limits[origin]

    async def close(self) -> None:
        """Close every connection."""
        self._closed = True
        self._resolver.close()
        for pool in self._pools.values():
            pool.close()


def _read_origin(url: str) -> tuple[ConnectionOrigin, str]:
    """Return what `read_url` does. Raises `Blocked`; the error does not show the URL, which may have a password."""
    try:
        return read_url(url)
    except ValueError:
        raise Blocked("invalid_url", "the host or port of the URL is not valid: correct the URL") from None


def _link_error(error: Exception, attempt: _Attempt) -> LinkError:
    """Return what a failed request means for the link."""
    found = _judge(error, attempt)
    found.address = error.address if isinstance(error, AddressForbidden) else attempt.address
    return found


def _judge(error: Exception, attempt: _Attempt) -> LinkError:
    origin = attempt.origin
    if isinstance(error, ssl.SSLError | HandshakeFailed):
        failure = failure_at_client(error)
        if failure.reason is Reason.NOT_SPOKEN and not attempt.step:  # it spoke TLS, and then did not
            return LinkUnavailable(Reason.FAILED, f"{origin.address} answered with invalid TLS")
        return _blocked(failure, origin)
    if isinstance(error, CertificateUnusable):
        return LinkError(Reason.FILES, str(error))
    if isinstance(error, AddressForbidden):
        return Blocked(ADDRESS_FORBIDDEN, str(error))
    if isinstance(error, AnswerTooLarge):
        return LinkUnavailable("answer_too_large", f"the answer is larger than {attempt.most} bytes")
    if isinstance(error, TimeoutError) and error.errno is None:  # otherwise the system gave up first
        return LinkUnavailable("timeout", attempt.overdue())
    return LinkUnavailable("unreachable", _words(error, origin))


def _blocked(failure: HandshakeFailed, origin: ConnectionOrigin) -> LinkError:
    """Return the error for a failed handshake.

    A handshake that failed for no known reason may succeed later; others are blocked.
    """
    detail = f"TLS with {origin.address} failed: {failure.detail}"
    if failure.reason is Reason.FAILED:
        return LinkUnavailable(failure.reason, detail)
    return Blocked(failure.reason, detail)


def _words(error: Exception, origin: ConnectionOrigin) -> str:
    if isinstance(error, NoAnswer):
        return str(error)
    if isinstance(error, socket.gaierror | UnicodeError):
        return f"the name {origin.host!r} cannot be resolved"
    number = error.errno if isinstance(error, OSError) else None
    return f"cannot connect to {origin.address}: {os.strerror(number) if number and number > 0 else error}"
